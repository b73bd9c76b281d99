"""Text of any origin, made safe to show."""

from __future__ import annotations

import re

#: Controls of terminals (C0, DEL, C1) and of writing direction, bytes that are no UTF-8 (lone surrogates),
#: and what XML cannot hold.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_WHITE = frozenset("\t\n\r")


def printable(text: str) -> str:
    """``text`` in one line that neither steers a terminal nor breaks XML.

    White space becomes blanks; any other character that does not print is written as Python escapes it, and
    a byte that is no UTF-8 as that byte.
    """
    return _UNPRINTABLE.sub(lambda match: _escaped(match.group()), text)


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _WHITE:
        return " "
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name, as Python decodes it
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
