"""Routing histograms from files: what a deployment's own counters wrote."""

from __future__ import annotations

from pathlib import Path

from xstage_tune.base.errors import UsageError
from xstage_tune.base.parsing import parse_json, read_text

_HINT = "a JSON array with one number per expert, or CSV with the header expert,tokens"


def read_histogram(path: Path) -> list[float]:
    """Numbers per expert, in expert order: ``.json``, an array; ``.csv``, columns ``expert`` and ``tokens``.

    Their sum is checked against a layer later: counts and shares both occur.

    Raises:
        UsageError: the file cannot be read, or is no such table; names the file and the line.
    """
    readers = {".json": _from_json, ".csv": _from_csv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"routing histogram {path} is neither .csv nor .json", _HINT)
    return reader(path, read_text(path))


def _from_json(path: Path, text: str) -> list[float]:
    try:
        values = parse_json(text)
    except ValueError as error:
        raise UsageError(f"{path}: invalid JSON: {error}", _HINT) from None
    if not isinstance(values, list) or any(
        isinstance(v, bool) or not isinstance(v, int | float) for v in values
    ):
        raise UsageError(f"{path}: not an array of numbers", _HINT)
    return values


def _from_csv(path: Path, text: str) -> list[float]:
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    if rows[:1] != [["expert", "tokens"]]:
        raise UsageError(f"{path}: the header is not expert,tokens", _HINT)
    tokens: dict[int, float] = {}
    for line, row in enumerate(rows[1:], start=2):
        try:
            expert, count = int(row[0]), float(row[1])
        except (IndexError, ValueError):
            raise UsageError(f"{path}, line {line}: not an expert and a number", _HINT) from None
        if len(row) > 2:
            raise UsageError(f"{path}, line {line}: more than two columns", _HINT)
        if expert in tokens:
            raise UsageError(f"{path}, line {line}: expert {expert} again", _HINT)
        tokens[expert] = count
    if sorted(tokens) != list(range(len(tokens))):
        raise UsageError(f"{path}: experts are not numbered 0 to {len(tokens) - 1} without a gap", _HINT)
    return [tokens[expert] for expert in range(len(tokens))]
