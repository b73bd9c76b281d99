"""The audit of bursts that are given as numbers: no workload, no config, no kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from xstage_tune.audit.run import BurstTest
from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.base.number_format import byte_count, duration
from xstage_tune.base.parsing import parse_byte_count
from xstage_tune.families.given_bursts import GivenBursts, estimate_bursts
from xstage_tune.platforms.schema import PlatformProfile

#: Of a burst, far more than an SM stages; of a gap, an hour.
MOST_BURST_BYTES, MOST_GAP_NS = 2**26, 3600e9
NS_PER_US = 1e3
_MOST_VALUES = 64
_RANGE = re.compile(r"(\d{1,6})\.\.(\d{1,6})")


@dataclass(frozen=True, slots=True)
class BurstSweep:
    """One of the numbers over several values, each tested by itself.

    Args:
        key: ``burst-bytes``, ``producers`` or ``gap-us``, as the option is called.
        given: the bursts at each value, in order.
        tests: of each.
    """

    key: str
    given: tuple[GivenBursts, ...]
    tests: tuple[BurstTest, ...]

    def shown(self, given: GivenBursts) -> str:
        """The value of the swept number, to read."""
        return _NUMBERS[self.key].show(given)


def audit_bursts(platform: PlatformProfile, given: GivenBursts) -> BurstTest:
    """Test given bursts on a platform.

    Raises:
        UsageError: there are more producers than SMs, a number is out of range, or the platform has no issue
            times or no capacity for the store flavour.
    """
    if not 1 <= given.producers <= platform.gpu.sm_count:
        raise UsageError(
            f"--producers {given.producers}: should be SMs of '{platform.name}', which has "
            f"{platform.gpu.sm_count}",
            f"1 to {platform.gpu.sm_count}",
        )
    if not 1 <= given.burst_bytes <= MOST_BURST_BYTES:
        raise UsageError(f"--burst-bytes {given.burst_bytes:.0f}: should be from 1 to {MOST_BURST_BYTES:,}")
    if not 0 <= given.gap_ns <= MOST_GAP_NS:
        raise UsageError(f"--gap-us {given.gap_ns / NS_PER_US:g}: should be from 0 to an hour")
    estimate = estimate_bursts(platform, given)
    return BurstTest(platform, estimate, estimate.actions())


def sweep_bursts(platform: PlatformProfile, given: GivenBursts, text: str) -> BurstSweep:
    """Test bursts over the values of ``key=a,b,c``, of producers also ``key=a..b``, ends included.

    Raises:
        UsageError: it is not of that form, or as :func:`audit_bursts`.
    """
    key, _, listed = (part.strip() for part in text.partition("="))
    if key not in _NUMBERS or not listed:
        raise UsageError(
            f"--sweep {text}: not one of {', '.join(_NUMBERS)} with its values",
            " or ".join(f"--sweep {name}={number.example}" for name, number in _NUMBERS.items()),
        )
    values = list(dict.fromkeys(_values(key, listed)))
    if len(values) > _MOST_VALUES:
        raise UsageError(
            f"--sweep {text}: {len(values)} values, more than {_MOST_VALUES}", "name some of them: A,B,C"
        )
    try:
        swept = tuple(_NUMBERS[key].put(given, value) for value in values)
    except ValueError as error:
        raise UsageError(f"--sweep {text}: {error}", f"for example {key}={_NUMBERS[key].example}") from None
    return BurstSweep(key, swept, tuple(audit_bursts(platform, one) for one in swept))


def _values(key: str, listed: str) -> Iterator[str]:
    for part in map(str.strip, listed.split(",")):
        if key == "producers" and (match := _RANGE.fullmatch(part)):
            yield from map(str, range(int(match[1]), int(match[2]) + 1))
        else:
            yield part


@dataclass(frozen=True, slots=True)
class _Number:
    """A number of the bursts: what puts a written value in its place, what shows it, values for a hint."""

    put: Callable[[GivenBursts, str], GivenBursts]
    show: Callable[[GivenBursts], str]
    example: str


_NUMBERS = {
    "burst-bytes": _Number(
        lambda given, text: replace(given, burst_bytes=parse_byte_count(text)),
        lambda given: byte_count(given.burst_bytes),
        "8KiB,16KiB,32KiB",
    ),
    "producers": _Number(
        lambda given, text: replace(given, producers=int(text)),
        lambda given: str(given.producers),
        "8,33,66,132",
    ),
    "gap-us": _Number(
        lambda given, text: replace(given, gap_ns=NS_PER_US * float(text)),
        lambda given: duration(given.gap_ns),
        "1,2,4,8",
    ),
}


def given_bursts(burst_bytes: str, producers: int, gap_us: float, flavour: StoreFlavour) -> GivenBursts:
    """The bursts of the command's options.

    Raises:
        UsageError: the size is none.
    """
    try:
        size = parse_byte_count(burst_bytes)
    except ValueError as error:
        raise UsageError(f"--burst-bytes: {error}", "for example 32KiB") from None
    return GivenBursts(size, producers, NS_PER_US * gap_us, flavour)
