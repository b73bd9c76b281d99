"""The paper's symbols and signs in plain ASCII text, as typeset pieces."""

from __future__ import annotations

import re

from xstage_tune.base.text import printable

#: Symbols as (letter, subscript).
_SYMBOLS = {
    "T_iss": ("T", "iss"),
    "T_period": ("T", "period"),
    "T_RS": ("T", "RS"),
    "T_L1": ("T", "L1"),
    "T_L2": ("T", "L2"),
    "T_FA": ("T", "FA"),
    "T_fused": ("T", "fused"),
    "T0": ("T", "0"),
    "E_res": ("E", "res"),
    "q_peak": ("q", "peak"),
    "D_knee": ("D", "knee"),
    "M*_ub": ("M*", "ub"),
}
_SIGNS = {
    "us": "\N{MICRO SIGN}s",
    ">=": "\N{GREATER-THAN OR EQUAL TO}",
    "<=": "\N{LESS-THAN OR EQUAL TO}",
    "*B": "\N{MIDDLE DOT}B",
    " x ": " \N{MULTIPLICATION SIGN} ",
    " - ": " \N{MINUS SIGN} ",
}
_WORD = "|".join(re.escape(symbol) for symbol in sorted(_SYMBOLS, key=len, reverse=True))
_TYPESET = re.compile(rf"\b(?:{_WORD})(?![A-Za-z0-9_])|(?<=[\d( ])us\b|>=|<=|\*B\b|(?<=\d) x (?=\d)| - ")


def typeset(text: str) -> list[tuple[str, bool]]:
    """``text`` in printable pieces, each with whether it is a subscript."""
    text = printable(text)
    pieces = [("", False)]

    def append(piece: str, lowered: bool) -> None:
        if pieces[-1][1] == lowered:
            pieces[-1] = (pieces[-1][0] + piece, lowered)
        else:
            pieces.append((piece, lowered))

    at = 0
    for match in _TYPESET.finditer(text):
        append(text[at : match.start()], False)
        symbol, at = match.group(), match.end()
        if symbol in _SYMBOLS:
            letter, subscript = _SYMBOLS[symbol]
            append(letter, False)
            append(subscript, True)
        else:
            append(_SIGNS[symbol], False)
    append(text[at:], False)
    return [(piece, lowered) for piece, lowered in pieces if piece]
