"""What closed forms say of a config: its bursts, each schedule, and the words to read beside them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xstage_tune.base.number_format import duration
from xstage_tune.estimates.bursts import BurstTerms
from xstage_tune.estimates.figures import Figure
from xstage_tune.estimates.schedule import SchedulePrediction

Show = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of an estimate, by the name that the field has for it, and how it is printed."""

    figure: Figure
    name: str
    show: Show


@dataclass(frozen=True, slots=True)
class Arrival:
    """E_res until all stores have arrived, when the kernel ends: no mainloop hides the last round's drain."""

    last_drain_ns: Figure  # V/R of the last round of tiles in their order
    residual_ns: Figure
    hiding_ratio: Figure  # equation 21, against a serial transfer of the same bytes at R
    completion_coupled_residual_ns: Figure
    mainloops_ns: float  # of the busiest SM, which no stores disturb: T_FA


class Estimate(ABC):
    """The estimate of one config of any family."""

    __slots__ = ()

    if TYPE_CHECKING:  # a field of each family's own

        @property
        def burst(self) -> BurstTerms:
            """Its bursts, with all producers aligned."""
            ...

    @property
    @abstractmethod
    def schedules(self) -> Mapping[str, SchedulePrediction]:
        """What each schedule that is compared does with the bursts, by its name."""

    @property
    @abstractmethod
    def audited(self) -> str:
        """The config's own, of :attr:`schedules`."""

    @property
    def parts_of_bursts(self) -> Mapping[str, float]:
        """Parts of its bursts, in sum 1, by the one of :attr:`schedules` that tells of them."""
        return {self.audited: 1.0}

    @property
    def starved(self) -> bool:
        """Whether its order lets tiles catch up with those they wait for, so that bursts re-concentrate."""
        return False

    @property
    def until_arrived(self) -> Arrival | None:
        """Beside predictions that end when the last store is issued: the same until all have arrived."""
        return None

    @property
    def kernel_ends_when_issued(self) -> bool:
        """Whether the predictions go until the last store is issued, so that a residual counts from there."""
        return self.until_arrived is not None

    @abstractmethod
    def quantities(self) -> Mapping[str, Quantity]:
        """What it rests on beside the burst, by stable keys."""

    def remarks(self) -> Iterator[tuple[str, str]]:
        """What stands below the bounds of the design test: a head and a sentence each."""
        return iter(())

    def notes(self) -> Iterator[str]:
        """What stands below the predictions."""
        yield (
            "sender-visible: the kernel ends when its last burst has drained, up to "
            f"{duration(self.burst.drain_ns.value)} later"
        )

    def footnotes(self) -> Iterator[str]:
        """What stands below those."""
        return iter(())
