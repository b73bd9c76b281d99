"""What the compiler's log says: the resources of every kernel, its warnings, its first error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '(?P<symbol>[^']+)'")
_FUNCTION = re.compile(r"Function properties for (?P<symbol>\S+)")
_LOCAL = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
)
_REGISTERS = re.compile(r"Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(?P<bytes>\d+) bytes smem")

#: Front end: ``file(12): warning #177-D: text``.
_FRONT_END = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): (?:catastrophic )?(?P<kind>error|warning)"
    r"(?: #(?P<number>[\w-]+))?: (?P<text>.*)"
)
#: Assembler: ``ptxas warning : text``, and numbered remarks such as ``ptxas info : (C7510) text`` (wgmma
#: serialised), which cost more than most warnings.
_ASSEMBLER_WARNING = re.compile(r"^\s*ptxas (?:warning\s*: (?P<text>.*)|info\s*: (?P<remark>\(C\d+\).*))")
_OTHER_ERROR = re.compile(r"(?:^|[\s;])(?:[Cc]ommand-line )?(?:error|fatal)\s*: (?P<text>.*)")

#: Pseudo file in which NVRTC looks up the names of kernels.
_NAME_LOOKUP = "__nv_name_map"


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """One kernel of a cubin: its symbol, and what it takes of an SM.

    All per thread, except ``shared_bytes``, which is static and per CTA.
    """

    symbol: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int

    @property
    def spill_bytes(self) -> int:
        """Bytes spilled to local memory and loaded back."""
        return self.spill_store_bytes + self.spill_load_bytes


def parse_entries(log: str) -> dict[str, KernelEntry]:
    """Every kernel in a log made with ``ptxas -v``, by symbol.

    The stack and spills of a function that was not inlined have lines of their own and belong to no kernel.
    """
    local: dict[str, re.Match[str]] = {}
    entries: dict[str, KernelEntry] = {}
    kernel = function = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            kernel = match["symbol"]
        elif match := _FUNCTION.search(line):
            function = match["symbol"]
        elif match := _LOCAL.search(line):
            local[function] = match
        elif (match := _REGISTERS.search(line)) and kernel in local:
            shared = _SHARED.search(line)
            entries[kernel] = KernelEntry(
                symbol=kernel,
                registers=int(match["registers"]),
                stack_bytes=int(local[kernel]["stack"]),
                spill_store_bytes=int(local[kernel]["stores"]),
                spill_load_bytes=int(local[kernel]["loads"]),
                shared_bytes=int(shared["bytes"]) if shared else 0,
            )
    return entries


def parse_warnings(log: str, root: str) -> tuple[str, ...]:
    """One line a warning, each once: ``file:line: text [number]``, or the assembler's text.

    Args:
        root: folder that file names are made relative to.
    """
    return tuple(dict.fromkeys(_warnings(log, root)))


def first_error(log: str, root: str, source: str) -> str:
    """The first error as ``file:line: message``, or ``source: message`` where the log gives no line.

    Args:
        root: folder that file names are made relative to.
        source: the file that was compiled.
    """
    lookup_failure = ""
    for line in log.splitlines():
        match = _FRONT_END.match(line)
        if match and match["kind"] == "error":
            if match["file"] != _NAME_LOOKUP:
                return f"{_relative(match['file'], root)}:{match['line']}: {match['text']}"
            # Reported first, but where the file has an error of its own, no name is found in it.
            lookup_failure = lookup_failure or f"{source}: {match['text']}"
        elif not match and (other := _OTHER_ERROR.search(line)):
            return f"{source}: {other['text']}"
    return lookup_failure or f"{source}: {' '.join(log.split())[:200] or 'the compiler gave no reason'}"


def _warnings(log: str, root: str) -> Iterator[str]:
    for line in log.splitlines():
        front_end = _FRONT_END.match(line)
        if front_end and front_end["kind"] == "warning":
            number = f" [{front_end['number']}]" if front_end["number"] else ""
            yield f"{_relative(front_end['file'], root)}:{front_end['line']}: {front_end['text']}{number}"
        elif assembler := _ASSEMBLER_WARNING.match(line):
            yield (assembler["text"] or assembler["remark"]).strip()


def _relative(file: str, root: str) -> str:
    return file.removeprefix(root).lstrip("/") if file.startswith(root) else file
