"""Numbers that know where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Basis(IntEnum):
    """How well a number is founded, best first: a result is as weak as the weakest number in it."""

    MEASURED = 1  # a point of the platform profile itself
    DERIVED = 2  # by an equation, a fitted law or interpolation, from measured numbers and shapes
    ASSUMED = 3  # beyond the calibrated points, or from a figure that nobody measured here

    @property
    def label(self) -> str:
        """``measured``, ``derived`` or ``assumed``."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, its basis and, in one line, its origin."""

    value: float
    basis: Basis
    origin: str

    def __float__(self) -> float:
        return self.value


def derived(value: float, origin: str, *inputs: Figure) -> Figure:
    """The result of an equation: derived, or assumed if one of ``inputs`` is."""
    return Figure(float(value), max([Basis.DERIVED, *(figure.basis for figure in inputs)]), origin)
