"""``--sweep key=values``: one quantity over several values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from xstage_tune.base.errors import UsageError
from xstage_tune.families.binding import family_of
from xstage_tune.families.workload import Workload

_RANGE = re.compile(r"(\d{1,10})\.\.(\d{1,10})")
#: Each value is a launch of every schedule, and of every repeat.
_MOST_VALUES = 64
#: Of every workload, with values of it as a hint gives them.
TOKENS: Mapping[str, str] = {"tokens": "1024,2048,4096"}
_OF_WORKLOADS: Mapping[str, str] = {"remote_fraction": "0,0.25,0.5", **TOKENS}


@dataclass(frozen=True, slots=True)
class Sweep:
    """A quantity and its values in order.

    ``tokens``: of a MoE layer on each rank, or of an attention's sequence. ``remote_fraction``: of the output
    bytes. Else a knob of the family's: ``lead``, D of the interleaved schedule, rows; ``staging_depth``, S.
    """

    key: str
    values: tuple[float, ...]

    def shown(self, value: float) -> str:
        """A value as it was written: whole numbers without a point."""
        return f"{value:g}" if self.key == "remote_fraction" else f"{value:.0f}"


def swept_by_emulation(workload: Workload) -> dict[str, str]:
    """What an emulation of a workload can vary, with values of it as a hint gives them."""
    knobs = {name: knob.example for name, knob in family_of(workload).knobs.items()}
    return {**knobs, **_OF_WORKLOADS}


def parse_sweep(text: str, keys: Mapping[str, str], tokens_key: str = "tokens") -> Sweep:
    """``key=a,b,c``, and for whole numbers also ``key=a..b``, ends included.

    Args:
        keys: what the command sweeps, with values of it as a hint gives them.
        tokens_key: of the workload, by which its ``tokens`` are known too.

    Raises:
        UsageError: it is not of that form; says what is wrong.
    """
    key, separator, listed = (part.strip() for part in text.partition("="))
    if not separator or not listed:
        raise UsageError(f"--sweep {text}: not of the form key=values", _example(keys))
    swept = "tokens" if key == tokens_key else key
    if swept not in keys:
        own = "an attention has tokens, of its whole sequence; " if key == "tokens_per_rank" else ""
        raise UsageError(
            f"--sweep {text}: '{key}' cannot be swept, only {', '.join(keys)}", own + _example(keys)
        )
    values = tuple(value for part in listed.split(",") for value in _values(part.strip(), swept, text, keys))
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise UsageError(f"--sweep {text}: {twice:g} is there twice")
    if len(values) > _MOST_VALUES:
        raise UsageError(
            f"--sweep {text}: {len(values)} values, more than {_MOST_VALUES}", "name some of them: A,B,C"
        )
    return Sweep(swept, values)


def _example(keys: Mapping[str, str]) -> str:
    return "for example " + " or ".join(f"--sweep {key}={values}" for key, values in keys.items())


def _values(part: str, key: str, text: str, keys: Mapping[str, str]) -> tuple[float, ...]:
    """One value, or those of a range."""
    if match := _RANGE.fullmatch(part):
        low, high = int(match[1]), int(match[2])
        if low > high:
            raise UsageError(f"--sweep {text}: the range {part} runs backwards", f"{key}={high}..{low}")
        if high - low >= _MOST_VALUES:
            raise UsageError(f"--sweep {text}: the range {part} has more than {_MOST_VALUES} values")
        values = tuple(float(value) for value in range(low, high + 1))
    else:
        values = (_number(part, text, _example({key: keys[key]})),)
    whole = key != "remote_fraction"
    for value in values:
        if whole and not (value >= 1 and value.is_integer()):
            raise UsageError(f"--sweep {text}: {key} must be a whole number from 1 up, got {part}")
        if not whole and not 0 <= value <= 1:
            raise UsageError(f"--sweep {text}: remote_fraction must be in 0 to 1, got {part}")
    return values


def _number(part: str, text: str, example: str) -> float:
    try:
        value = float(part)
    except ValueError:
        raise UsageError(f"--sweep {text}: {part!r} is no number", example) from None
    if abs(value) >= 2**31:  # also what is not finite
        raise UsageError(f"--sweep {text}: {part} is out of range")
    return value
