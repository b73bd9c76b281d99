"""A tuned config as a C++17 header of ``constexpr``s, for host compilers and NVRTC alike."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from xstage_tune.base.json_output import to_json
from xstage_tune.base.number_format import duration
from xstage_tune.base.text import printable
from xstage_tune.export.record import TunedConfig
from xstage_tune.families.binding import family_of_config
from xstage_tune.families.family import Value

#: Of C++23, and what compilers define in lower case.
_TAKEN = re.compile(
    r"(?:alignas|alignof|and|and_eq|asm|auto|bitand|bitor|bool|break|case|catch|char|char8_t|char16_t"
    r"|char32_t|class|compl|concept|const|consteval|constexpr|constinit|const_cast|continue|co_await"
    r"|co_return|co_yield|decltype|default|delete|do|double|dynamic_cast|else|enum|explicit|export|extern"
    r"|false|float|for|friend|goto|if|inline|int|long|mutable|namespace|new|noexcept|not|not_eq|nullptr"
    r"|operator|or|or_eq|private|protected|public|register|reinterpret_cast|requires|return|short|signed"
    r"|sizeof|static|static_assert|static_cast|struct|switch|template|this|thread_local|throw|true|try"
    r"|typedef|typeid|typename|union|unsigned|using|virtual|void|volatile|wchar_t|while|xor|xor_eq|errno"
    r"|linux|unix)"
)


def to_header(tuned: TunedConfig) -> str:
    """The header; its namespace is the workload's name, so that the headers of several can be included.

    An inline namespace within keeps headers of equal names apart: those of other keys of the workload, or of
    another platform. Code that includes only one of them need not name it.

    A parameter of a schedule that is not the config's is 0. ``kGpu``, its ``kGpuSms``, ``kToolVersion`` and
    ``kKernelSha256`` say what it was tuned on and for: 0 or empty where that is not known. No lookup checks
    them for code that includes the header.
    """
    lines = [
        "#pragma once",
        "",
        *(f"// {_one_line(text)}" for text in _comment(tuned)),
        "",
        f"namespace xstage_tuned::{_identifier(tuned.workload.name)} {{",
        f"inline namespace {_variant(tuned)} {{",
        "",
        *_constants(tuned),
        "",
        "}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _variant(tuned: TunedConfig) -> str:
    """A name for the workload's keys and the platform: the same for every export of both."""
    digest = hashlib.sha256(f"{to_json(tuned.workload)}{tuned.platform.sha256}".encode())
    return f"for_{digest.hexdigest()[:8]}"


def _comment(tuned: TunedConfig) -> Iterator[str]:
    """What the config is for and what it reached."""
    objective, provenance, platform = tuned.objective, tuned.provenance, tuned.platform
    yield f"{tuned.workload.name} on {platform.name} ({platform.path} path)"
    if objective.unfinished:
        yield f"UNFINISHED, the best so far: {objective.unfinished}"
    if platform.other_gpu:
        yield f"FORCED on another GPU than the platform's: {platform.other_gpu}"
    if platform.compute_origin not in (None, "measured"):
        yield f"compute: {platform.compute_origin}; tile times were not measured on this GPU"
    latency = "" if objective.quantity == "latency" else f", latency {duration(objective.latency_ns)}"
    yield f"{objective.quantity} {duration(objective.ns)}{latency}, {objective.basis} on {objective.device}"
    yield f"default config {duration(objective.default_ns)}, lower bound {duration(objective.bound_ns)}"
    yield f"xstage-tune {provenance.tool_version}, study {provenance.study_id} of {provenance.created_at}"
    for name, sha256 in (
        ("workload", provenance.workload_sha256),
        ("platform", platform.sha256),
        ("kernel", provenance.kernel_sha256),
    ):
        if sha256:
            yield f"{name} sha256 {sha256}"


def _quoted(text: str) -> str:
    """``text`` within a string literal."""
    return _one_line(text).replace('"', "'")


def _one_line(text: str) -> str:
    """``text`` without what would end a line comment, or carry it on to the next line."""
    return " ".join(printable(text.replace("\\", "/")).replace("\\", "/").split())


def _constants(tuned: TunedConfig) -> Iterator[str]:
    yield f'inline constexpr char kWorkload[] = "{tuned.workload.name}";'
    yield f'inline constexpr char kPlatform[] = "{tuned.platform.name}";'
    yield f'inline constexpr char kGpu[] = "{_quoted(tuned.platform.gpu)}";'
    yield f"inline constexpr int kGpuSms = {tuned.platform.identity.sm_count or 0};"
    yield f'inline constexpr char kToolVersion[] = "{_quoted(tuned.provenance.tool_version)}";'
    yield f'inline constexpr char kKernelSha256[] = "{_quoted(tuned.provenance.kernel_sha256)}";'
    yield f"inline constexpr int k{_pascal(tuned.workload.TOKENS_KEY)} = {tuned.workload.token_count};"
    yield f"inline constexpr bool kMeasured = {str(tuned.objective.basis == 'measured').lower()};"
    yield f"inline constexpr bool kFinished = {str(tuned.objective.unfinished is None).lower()};"
    family = family_of_config(tuned.config)
    choices = family.choices()
    for key, value in family.constants_of(tuned.config).items():
        if key in choices:
            enum = _pascal(key)
            yield f"enum class {enum} {{ {', '.join(map(_identifier, choices[key]))} }};"
            yield f"inline constexpr {enum} k{enum} = {enum}::{_identifier(str(value))};"
        else:
            yield f"inline constexpr {_declared(_pascal(key), value)};"


def _declared(name: str, value: Value) -> str:
    if isinstance(value, str):
        return f'char k{name}[] = "{_quoted(value)}"'
    if isinstance(value, bool):
        return f"bool k{name} = {str(value).lower()}"
    return f"{'int' if isinstance(value, int) else 'double'} k{name} = {value}"


def _pascal(key: str) -> str:
    return "".join(part.capitalize() for part in key.split("_"))


def _identifier(text: str) -> str:
    """``clamped-lag`` as ``clamped_lag``; never a number first, and ``class_`` for a word that is taken."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    return f"_{name}" if name[0].isdigit() else f"{name}_" if _TAKEN.fullmatch(name) else name
