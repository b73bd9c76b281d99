"""A ladder: one layer at several sizes, each searched as a study, all of them one bundle."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from xstage_tune.base.errors import FindingError, RunInterrupted, UsageError
from xstage_tune.base.progress import Progress
from xstage_tune.families.workload import Workload
from xstage_tune.launches.device import Device
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import begin_study
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.result import SearchResult
from xstage_tune.search.space import build_space
from xstage_tune.search.suite import suite_interrupted
from xstage_tune.store.facade import Store
from xstage_tune.store.provenance import new_id

LADDER = "ladder"
#: More sizes than anybody serves are a slip of the keyboard.
MOST_STEPS = 256


@dataclass(frozen=True, slots=True)
class Step:
    """One size: what was set for it, and what came of its search; ``failed`` says why nothing did."""

    setting: str
    workload: Workload
    result: SearchResult | None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class LadderResult:
    """All sizes; ``suite_id`` names them in the store."""

    suite_id: str
    workload: str
    platform: str
    device: str
    steps: tuple[Step, ...]

    @property
    def faults(self) -> int:
        """Configs that a fault ruled out, and steps of which nothing ran."""
        return sum(step.result.faults if step.result else 1 for step in self.steps)

    def keys(self) -> dict[str, Any]:
        """As plain keys for JSON."""
        return {
            "suite": LADDER,
            "suite_id": self.suite_id,
            "workload": self.workload,
            "platform": self.platform,
            "device": self.device,
            "steps": [
                {"set": step.setting, "failed": step.failed, "result": step.result and step.result.keys()}
                for step in self.steps
            ],
        }


def ladder_of(overrides: Sequence[str], tokens: str | None) -> list[tuple[str, ...]]:
    """Every combination of what is set: a value that is a list of numbers, ``heads=16,24``, is a step each.

    Args:
        overrides: ``KEY=VALUE`` each.
        tokens: of the key ``tokens``, a list or a number; None for the workload's own.

    Raises:
        UsageError: a list is malformed, names a value twice, or there are too many steps.
    """
    for one in tokens.split(",") if tokens is not None else ():
        if not _is_number(one):
            raise UsageError(
                f"--tokens {tokens}: '{one.strip()}' is no number", "for example --tokens 64,512"
            )
    asked = [*overrides, *([] if tokens is None else [f"tokens={tokens}"])]
    choices = [_values(one) for one in asked]
    steps = list(itertools.product(*choices))
    if len(steps) > MOST_STEPS:
        raise UsageError(f"{len(steps)} sizes are asked for, of at most {MOST_STEPS}", "name fewer of them")
    return steps


def run_ladder(
    steps: Sequence[tuple[str, SearchRequest]],
    device: Device,
    store: Store,
    progress: Progress,
) -> LadderResult:
    """Search each size, the studies of one suite.

    Args:
        steps: what is set for each, and its request; all of one workload and platform.

    Raises:
        UsageError: a size cannot run on the platform.
        RunInterrupted: the user stopped it; the studies are kept.
    """
    first = steps[0][1]
    suite_id = new_id("suite")
    suite = {"name": LADDER, "id": suite_id, "searches": len(steps)}
    spaces = [build_space(request.workload, request.platform) for _, request in steps]
    done: list[Step] = []
    studies: list[str] = []
    try:
        for (setting, request), space in zip(steps, spaces, strict=True):
            journal = begin_study(store, request, space, device.identity, suite)
            studies.append(journal.study_id)
            place = _OfAll(progress, f"{len(done) + 1} of {len(steps)}, {setting}", len(steps))
            try:
                result = run_search(request, space, device, journal, place)
            except FindingError as error:  # of this size alone
                done.append(Step(setting, request.workload, None, error.message))
            else:
                done.append(Step(setting, request.workload, result))
    except (KeyboardInterrupt, RunInterrupted):
        raise suite_interrupted(suite_id, studies, len(steps), store) from None
    return LadderResult(suite_id, first.workload.name, first.platform.name, device.identity, tuple(done))


class _OfAll:
    """Progress of one step, told as that of all."""

    def __init__(self, progress: Progress, place: str, steps: int) -> None:
        self._progress, self._place, self._steps = progress, place, steps

    def planned(self, total: int) -> None:
        """As if each step had as many as this one."""
        self._progress.planned(total * self._steps)

    def advance(self, label: str) -> None:
        """With the step that it is of."""
        self._progress.advance(f"{self._place}: {label}")


def _values(override: str) -> tuple[str, ...]:
    key, equals, value = override.partition("=")
    parts = [part.strip() for part in value.split(",")]
    if not equals or len(parts) < 2 or not all(map(_is_number, parts)):
        return (override,)
    if len(set(parts)) < len(parts):
        raise UsageError(f"'{override}' names a value twice", "name each once")
    return tuple(f"{key}={part}" for part in parts)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def settings_of(steps: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """What differs from step to step, in words."""
    varied = [place for place, values in enumerate(zip(*steps, strict=True)) if len(set(values)) > 1]
    for step in steps:
        yield ", ".join(step[place] for place in varied)
