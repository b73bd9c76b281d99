"""How near the model comes while a search measures."""

from __future__ import annotations

from statistics import median

from xstage_tune.search.candidates import Candidates
from xstage_tune.search.result import ModelCheck


class Expectations:
    """What was expected of the measured configs, in the order of the trials."""

    def __init__(self) -> None:
        #: Measured over expected objective, and over that of the closed forms alone.
        self._surprises: list[tuple[float, float]] = []
        #: Configs that were measured though they would have been left out, and whether a bound cut them.
        self._checks: dict[int, bool] = {}

    def measured(self, objective_ns: float, expected_ns: float, closed_form_ns: float) -> None:
        """Keep how far a config was from what was expected of it, where anything was."""
        if expected_ns > 0 and closed_form_ns > 0:
            self._surprises.append((objective_ns / expected_ns, objective_ns / closed_form_ns))

    def to_be_checked(self, index: int, *, bounded: bool) -> None:
        """Keep that a config is measured which would have been left out."""
        self._checks[index] = bounded

    @property
    def last_surprise(self) -> float | None:
        """The last objective over the expected one; None before the first."""
        return self._surprises[-1][0] if self._surprises else None

    def summary(self, candidates: Candidates) -> ModelCheck:
        """How near the expectations came, and what the configs show that would have been left out."""
        checked = {i: bounded for i, bounded in self._checks.items() if i in candidates.measured_ns}
        times_ns = [candidates.measured_ns[i] for i in checked]
        others_ns = [time_ns for i, time_ns in candidates.measured_ns.items() if i not in checked]
        closed = [abs(of_closed - 1) for _, of_closed in self._surprises]
        expected = [abs(of_expected - 1) for of_expected, _ in self._surprises]
        half = len(expected) // 2
        return ModelCheck(
            closed_form_error=median(closed) if closed else None,
            first_half_error=median(expected[:half]) if half else None,
            second_half_error=median(expected[half:]) if expected else None,
            checked=len(checked),
            checked_bounded=sum(checked.values()),
            checked_best_over_best=min(times_ns) / min(others_ns) if times_ns and others_ns else None,
        )
