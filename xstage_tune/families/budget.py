"""A limited resource, and what takes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """One named part of a budget."""

    name: str
    amount: int


@dataclass(frozen=True, slots=True)
class Budget:
    """What a config needs of one resource; amounts and limit in ``unit``."""

    resource: str
    unit: str
    limit: int
    terms: tuple[Term, ...]

    @property
    def used(self) -> int:
        return sum(term.amount for term in self.terms)

    @property
    def fits(self) -> bool:
        return self.used <= self.limit

    def explain(self) -> str:
        """``shared memory: 249,856 B of 232,448 (operand stages 196,608 + output staging 53,248)``."""
        parts = " + ".join(f"{term.name} {term.amount:,}" for term in self.terms if term.amount)
        return f"{self.resource}: {self.used:,} {self.unit} of {self.limit:,} ({parts})"


@dataclass(frozen=True, slots=True)
class Violation:
    """A limit or rule that a config breaks; ``used`` and ``limit`` where it is a matter of amounts.

    Args:
        hint: what to do where every config breaks it; empty where another config need not.
    """

    limit_name: str
    message: str
    used: int | None = None
    limit: int | None = None
    hint: str = ""
