"""Reference pages of the TOML files, from the schemas that read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

Keys = Mapping[str, Any]

_LIMITS = {
    "minimum": "≥ {}", "ge": "≥ {}", "exclusiveMinimum": "> {}", "gt": "> {}",
    "maximum": "≤ {}", "le": "≤ {}", "exclusiveMaximum": "< {}", "lt": "< {}",
    "minItems": "at least {} entries",
}  # fmt: skip
_TYPES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}


def file_section(title: str, model: type[BaseModel]) -> str:
    """A heading, what the file is, and a table of keys for it and for each of its sections."""
    schema = model.model_json_schema()
    lines = [f"## {title}", "", _prose(schema.get("description", "")), ""]
    lines += _table(schema, schema["properties"], schema.get("required", ()))
    for name, section, repeated in _sections(schema, schema["properties"], ""):
        lines += ["", f"### {title}: `{_header(name, repeated)}`", ""]
        lines += [_prose(section.get("description", "")), ""]
        lines += _table(schema, section["properties"], section.get("required", ()))
    return "\n".join(lines) + "\n"


def _sections(schema: Keys, properties: Keys, place: str) -> Iterator[tuple[str, Keys, bool]]:
    """(dotted name, schema, whether a list of tables) of each section, in the order of the file."""
    for name, key in properties.items():
        section, repeated = _section(schema, key)
        if section is not None:
            dotted = f"{place}{name}"
            yield dotted, section, repeated
            yield from _sections(schema, section["properties"], f"{dotted}.")


def _section(schema: Keys, key: Keys) -> tuple[Keys | None, bool]:
    """The table that a key holds, if it does, and whether it holds a list of them."""
    for option in (key, *key.get("anyOf", ()), *key.get("allOf", ())):
        for part, repeated in ((option, False), (option.get("items", {}), True)):
            if "$ref" in part:
                found = schema["$defs"][part["$ref"].rpartition("/")[2]]
                if "properties" in found:
                    return found, repeated
    return None, False


def _table(schema: Keys, properties: Keys, required: Sequence[str]) -> Iterator[str]:
    yield "| key | value | default | meaning |"
    yield "|---|---|---|---|"
    for name, key in properties.items():
        section, repeated = _section(schema, key)
        value = f"section `{_header(name, repeated)}`" if section is not None else _value(schema, key)
        default = "required" if name in required else _default(key, section is not None)
        meaning = _cell(_prose(key.get("description", "")))
        yield f"| `{name}` | {_cell(value)} | {default} | {meaning} |"


def _header(name: str, repeated: bool) -> str:
    return f"[[{name}]]" if repeated else f"[{name}]"


def _value(schema: Keys, key: Keys) -> str:
    """What may stand behind a key, in words."""
    if "$ref" in key:
        return _value(schema, schema["$defs"][key["$ref"].rpartition("/")[2]])
    options = [option for option in key.get("anyOf", ()) if option.get("type") != "null"]
    if options:
        return " or ".join(_value(schema, option) for option in options)
    if "const" in key:
        return f"`{json.dumps(key['const'])}`"
    if "enum" in key:
        return ", ".join(f"`{json.dumps(choice)}`" for choice in key["enum"])
    if key.get("type") == "array":
        if "prefixItems" in key:
            return "list of " + ", ".join(_value(schema, item) for item in key["prefixItems"])
        text = f"list of: {_value(schema, key['items'])}"
    else:
        text = _TYPES.get(key.get("type", ""), "any value")
    if "pattern" in key:
        text += f" like `{key['pattern']}`"
    limits = dict.fromkeys(form.format(_number(key[name])) for name, form in _LIMITS.items() if name in key)
    return ", ".join((text, *limits))


def _number(limit: float) -> str:
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"


def _default(key: Keys, section: bool) -> str:
    default = key.get("default")
    if default is None or section or default in ("", []):
        return "none"
    return f"`{json.dumps(default)}`"


def _prose(text: str) -> str:
    """A docstring as Markdown, one line a paragraph."""
    return "\n\n".join(" ".join(part.split()) for part in text.replace("``", "`").split("\n\n"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
