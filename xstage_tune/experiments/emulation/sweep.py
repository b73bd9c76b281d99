"""``--sweep key=values``: one quantity over several values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from xstage_tune.base.errors import UsageError

SweepKey = Literal["lead", "remote_fraction", "staging_depth", "tokens"]

_RANGE = re.compile(r"(\d{1,10})\.\.(\d{1,10})")
#: Each value is a launch of every schedule, and of every repeat.
_MOST_VALUES = 64
#: What can be swept, and values of it as a hint gives them.
_EXAMPLES: dict[SweepKey, str] = {
    "lead": "1..32",
    "remote_fraction": "0,0.25,0.5",
    "staging_depth": "1..4",
    "tokens": "1024,2048,4096",
}


@dataclass(frozen=True, slots=True)
class Sweep:
    """A quantity and its values in order.

    ``lead``: D of the interleaved schedule, rows. ``remote_fraction``: of the output bytes.
    ``staging_depth``: S of MegaMoE. ``tokens``: of a MoE layer on each rank, or of an attention's sequence.
    """

    key: SweepKey
    values: tuple[float, ...]

    def shown(self, value: float) -> str:
        """A value as it was written: whole numbers without a point."""
        return f"{value:g}" if self.key == "remote_fraction" else f"{value:.0f}"


def sweep_keys(sweep: Sweep | None) -> dict[str, Any] | None:
    """As plain keys; :func:`sweep_from_keys` reads them back."""
    return {"key": sweep.key, "values": list(sweep.values)} if sweep else None


def sweep_from_keys(keys: Mapping[str, Any] | None) -> Sweep | None:
    """Keys of :func:`sweep_keys` as a sweep; a missing one is a KeyError."""
    return Sweep(keys["key"], tuple(keys["values"])) if keys else None


def parse_sweep(text: str, *, moe: bool = False, keys: Sequence[SweepKey] = tuple(_EXAMPLES)) -> Sweep:
    """``key=a,b,c``, and for whole numbers also ``key=a..b``, ends included.

    Args:
        moe: of a MoE layer, whose ``tokens`` are also known by their key, ``tokens_per_rank``.
        keys: what the command sweeps.

    Raises:
        UsageError: it is not of that form; says what is wrong.
    """
    key, separator, listed = (part.strip() for part in text.partition("="))
    if not separator or not listed:
        raise UsageError(f"--sweep {text}: not of the form key=values", _example(keys))
    if moe and key == "tokens_per_rank":
        key = "tokens"
    swept = next((one for one in keys if one == key), None)
    if swept is None:
        own = "an attention has tokens, of its whole sequence; " if key == "tokens_per_rank" else ""
        raise UsageError(
            f"--sweep {text}: '{key}' cannot be swept, only {', '.join(keys)}", own + _example(keys)
        )
    values = tuple(value for part in listed.split(",") for value in _values(part.strip(), swept, text))
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise UsageError(f"--sweep {text}: {twice:g} is there twice")
    if len(values) > _MOST_VALUES:
        raise UsageError(f"--sweep {text}: {len(values)} values, more than {_MOST_VALUES}", "take fewer")
    return Sweep(swept, values)


def _example(keys: Sequence[SweepKey]) -> str:
    return "for example " + " or ".join(f"--sweep {key}={_EXAMPLES[key]}" for key in keys)


def _values(part: str, key: SweepKey, text: str) -> tuple[float, ...]:
    """One value, or those of a range."""
    if match := _RANGE.fullmatch(part):
        low, high = int(match[1]), int(match[2])
        if low > high:
            raise UsageError(f"--sweep {text}: the range {part} runs backwards", f"{key}={high}..{low}")
        if high - low >= _MOST_VALUES:
            raise UsageError(f"--sweep {text}: the range {part} has more than {_MOST_VALUES} values")
        values = tuple(float(value) for value in range(low, high + 1))
    else:
        values = (_number(part, key, text),)
    whole = key != "remote_fraction"
    for value in values:
        if whole and not (value >= 1 and value.is_integer()):
            raise UsageError(f"--sweep {text}: {key} must be a whole number from 1 up, got {part}")
        if not whole and not 0 <= value <= 1:
            raise UsageError(f"--sweep {text}: remote_fraction must be in 0 to 1, got {part}")
    return values


def _number(part: str, key: SweepKey, text: str) -> float:
    try:
        value = float(part)
    except ValueError:
        raise UsageError(f"--sweep {text}: {part!r} is no number", _example([key])) from None
    if abs(value) >= 2**31:  # also what is not finite
        raise UsageError(f"--sweep {text}: {part} is out of range")
    return value
