"""Commented templates of profiles, made from their schemas: every key, what it means, and a valid value."""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import tomli_w
from pydantic import BaseModel

from xstage_tune.base.profile_files import check_profile
from xstage_tune.base.schema_keys import SchemaKey, schema_keys

_WIDTH = 100
_LARGE = 1e6
_HOW_TO_READ = (
    "Lines of # and a space explain the key below them. Lines of # and a key are optional: "
    "take the # away to give it."
)


def checked_template(
    model: type[BaseModel],
    heading: str,
    name: str,
    *,
    values: Mapping[str, Any] | None = None,
    given: Collection[str] = (),
) -> str:
    """A file of ``model`` that loads as it is: required keys with examples, optional ones commented out.

    Args:
        heading: says what the file is for.
        name: what the profile is called.
        values: of keys, in place of their examples; a key of a section is ``section.key``, and ``*.key`` is
            that key of any section.
        given: optional keys and sections that the file gives, named alike.

    Raises:
        UsageError: a profile cannot be called so.
    """
    values = {"name": name, **(values or {})}
    template = _Template(values, {*given, *values})
    lines = [*_comment(heading), *_comment(_HOW_TO_READ), "", *template.section(model, "", live=True)]
    text = "\n".join(lines) + "\n"
    check_profile(model, tomllib.loads(text), "template")
    return text


class _Template:
    def __init__(self, values: Mapping[str, Any], given: Collection[str]) -> None:
        self._values = values
        self._given = frozenset(given)

    def section(self, model: type[BaseModel], place: str, *, live: bool) -> Iterator[str]:
        """The keys of a section, then the sections in it: TOML wants them in this order."""
        keys = schema_keys(model)
        plain = [key for key in keys if key.section is None]
        for key in plain:
            yield from _comment(_explained(key))
            yield self._line(key, place, 0, live)
        for key in keys:
            if key.section is None:
                continue
            dotted = f"{place}{key.name}"
            inner = live and self._is_given(key, dotted)
            title = f"[[{dotted}]]" if key.repeated else f"[{dotted}]"
            yield from ("", *_comment(f"{key.description}{'' if key.required else ' (optional)'}"))
            yield title if inner else f"#{title}"
            yield from self.section(key.section, f"{dotted}.", live=inner)
            if key.repeated:
                yield from self._more_entries(key.section, title, f"{dotted}.", inner)

    def _more_entries(self, model: type[BaseModel], title: str, place: str, live: bool) -> Iterator[str]:
        """Entries beyond the first of a repeated section without sections of its own, by its examples."""
        plain = schema_keys(model)
        for number in range(1, max(len(key.examples) for key in plain)):
            yield from ("", title if live else f"#{title}")
            yield from (self._line(key, place, number, live) for key in plain)

    def _line(self, key: SchemaKey, place: str, number: int, live: bool) -> str:
        """A key with the value that it has in an entry; commented out where the file does not give it."""
        dotted = f"{place}{key.name}"
        example = key.examples[min(number, len(key.examples) - 1)]
        value = self._values.get(dotted, self._values.get(f"*.{key.name}", example))
        return f"{'' if live and self._is_given(key, dotted) else '#'}{key.name} = {_text(value)}"

    def _is_given(self, key: SchemaKey, dotted: str) -> bool:
        """Whether the file has a key: it must, or it is asked for, or nothing else could be its value."""
        asked = not self._given.isdisjoint((dotted, f"*.{key.name}"))
        return key.required or _is_fixed(key) or asked


def _is_fixed(key: SchemaKey) -> bool:
    """Whether a key takes one value alone, which then needs no words."""
    return key.allowed == str(key.default)


def _explained(key: SchemaKey) -> str:
    facts = [] if _is_fixed(key) else [key.allowed[0].upper() + key.allowed[1:]]
    if not key.required and not _is_fixed(key):
        facts.append(_optional(key.default))
    return ". ".join((key.description, "; ".join(facts))) if facts else key.description


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _optional(default: Any) -> str:
    return "optional" if default in (None, "", ()) else f"optional, {_text(default)} if left out"


def _text(value: Any) -> str:
    """A value as TOML on one line; large numbers with an exponent."""
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, float) and abs(value) >= _LARGE and float(f"{value:g}") == value:
        return f"{value:g}"
    return tomli_w.dumps({"_": value}).removeprefix("_ = ").strip()
