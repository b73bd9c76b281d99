"""What is asked of a profile of a MoE layer, and its launches."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any, cast

from xstage_tune.base.errors import UsageError
from xstage_tune.experiments.emulation.cases import workload_at
from xstage_tune.experiments.emulation.sweep import swept_by_emulation
from xstage_tune.experiments.launch_order import balanced
from xstage_tune.experiments.profiling.request import TimingRequest
from xstage_tune.families.binding import bind
from xstage_tune.families.megamoe.built import unbuilt
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.family import FAMILY
from xstage_tune.families.megamoe.timing import LayerCase, LayerLaunch, has_serial
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload import Workload


class LayerRequest(TimingRequest):
    """One layer under all schedules, or at several values of a quantity.

    Args:
        config: tiles and staging, and the parameters of its own schedule, which comes first.
        repeats: in each of which all implementations run in turn.
        serial: whether the layer without fusion is timed too, which takes torch.

    Raises:
        UsageError: two of them do not go together.
    """

    workload: MoeWorkload
    config: MegaMoeConfig
    serial: bool = False

    @classmethod
    def swept(cls, workload: Workload) -> Mapping[str, str]:
        """What an emulation sweeps too."""
        return swept_by_emulation(workload)

    @classmethod
    def on_this_machine(cls, workload: Workload) -> Mapping[str, Any]:
        """The serial layer where torch is installed, and takes its sizes."""
        installed = importlib.util.find_spec("torch") is not None
        return {"serial": installed and has_serial(cast(MoeWorkload, workload))}

    @property
    def schedules(self) -> tuple[str, ...]:
        """Kinds, the config's own first; in a sweep of a knob of one of them that one alone."""
        knob = FAMILY.knobs.get(self.sweep.key) if self.sweep else None
        if knob is not None and knob.order is not None:
            return (knob.order,)
        return tuple(dict.fromkeys((self.config.schedule.kind, *FAMILY.orders)))

    def case_at(self, value: float | None) -> LayerCase:
        """The case at one value of the sweep.

        Raises:
            UsageError: the value does not fit the workload, or the kernel has no such variant.
        """
        workload = cast(MoeWorkload, workload_at(self.workload, self.sweep, value))
        bound, config = bind(workload, self.platform, self.config), self.config
        if self.sweep is not None and value is not None and self.sweep.key in FAMILY.knobs:
            config = bound.with_knob(config, self.sweep.key, int(value))
        for reason, hint in unbuilt(config, workload.precision):
            raise UsageError(reason, hint)
        bound.require_feasible(config)
        ordered = (bound.ordered(config, kind, "even") for kind in self.schedules)
        return LayerCase(
            label=self.label(value),
            workload=workload,
            schedules=tuple((one.label, one.config) for one in ordered),
            path=self.path,
            seed=self.seed,
            serial=self.serial,
        )


def launches(request: LayerRequest) -> Iterator[LayerLaunch]:
    """Those of all cases: all checked, then timed in turn, then recorded.

    In every repeat all implementations run in turn, over and over, in another order of a balanced design.

    Raises:
        UsageError: a case does not fit the workload.
    """
    for value in request.values():
        case = request.case_at(value)
        for implementation in case.checked:
            yield LayerLaunch(case, implementation, "check")
        timed = case.timed
        for repeat in range(request.repeats):
            in_turn = tuple(timed[place] for place in balanced(len(timed), repeat))
            yield from LayerLaunch(case, in_turn[0], "replay", in_turn).turns()
        for implementation in case.recorded:
            yield LayerLaunch(case, implementation, "spans")
