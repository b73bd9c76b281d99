"""The fused MoE layer, as a family."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from xstage_tune.base.errors import UsageError
from xstage_tune.families.family import Family, Knob, Params
from xstage_tune.families.megamoe.axes import CONDITIONAL, PLACEMENT, SCHEDULE
from xstage_tune.families.megamoe.config import MegaMoeConfig, Placement, ScheduleKind
from xstage_tune.families.megamoe.histogram import read_histogram
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.platforms.schema import PlatformProfile

if TYPE_CHECKING:
    from xstage_tune.families.megamoe.bound import BoundMegaMoe


class MegaMoeFamily(Family[MoeWorkload, MegaMoeConfig]):
    """See :class:`~xstage_tune.families.family.Family`."""

    workload_kind = "moe"
    config_kind = "megamoe"
    workload_model = MoeWorkload
    config_model = MegaMoeConfig
    depends = True
    orders = get_args(ScheduleKind)
    orders_name = "schedules"
    placements = get_args(Placement)
    knobs: ClassVar = {"lead": Knob("1..32", "interleaved"), "staging_depth": Knob("1..4")}
    mainloops = ("l1", "l2")
    template_heading = (
        "A fused MoE layer, for xstage-tune. The values are examples: put in those of your layer."
    )
    conditional_axes: ClassVar = {name: (SCHEDULE, kind) for name, kind in CONDITIONAL.items()}

    def bind(self, workload: MoeWorkload, platform: PlatformProfile) -> BoundMegaMoe:
        """See :class:`~xstage_tune.families.family.Family`."""
        from xstage_tune.families.megamoe.bound import BoundMegaMoe  # a lookup needs none of it

        return BoundMegaMoe(workload, platform)

    def kernel_source_of(self, workload: MoeWorkload) -> str:
        """The tool's own is of some precisions."""
        from xstage_tune.families.megamoe.built import BUILT

        return "megamoe/megamoe.cu" if workload.precision in BUILT else ""

    def anchor(self, data: dict[str, Any], folder: Path) -> None:
        """Make a relative ``routing.file`` one below ``folder``."""
        routing = data.get("routing")
        if isinstance(routing, dict) and isinstance(routing.get("file"), str):
            routing["file"] = str(folder / routing["file"])

    def prepare_workload(self, data: dict[str, Any], origin: str) -> None:
        """Replace ``routing.file`` by what it holds.

        Raises:
            UsageError: there is a histogram too, or the file cannot be read.
        """
        routing = data.get("routing")
        if not isinstance(routing, dict) or "file" not in routing:
            return
        if "histogram" in routing or not isinstance(routing["file"], str):
            raise UsageError(f"{origin}: routing takes either a histogram or the path of one as 'file'")
        routing["histogram"] = read_histogram(Path(routing.pop("file")))

    def usual_orders(self, config: MegaMoeConfig, *, chosen: bool, swept: bool) -> tuple[str, ...]:  # noqa: ARG002
        """The historical baseline, Algorithm 1, and 1:1; before them that of a config that was chosen."""
        usual: tuple[ScheduleKind, ...] = ("wave", "interleaved", "alternating")
        return tuple(dict.fromkeys((config.schedule.kind, *usual))) if chosen else usual

    def placement_of(self, config: MegaMoeConfig) -> Placement:
        """Of its schedule."""
        return config.schedule.placement

    def params_of(self, config: MegaMoeConfig) -> Params:
        """The schedule's kind and parameter are axes beside the others."""
        params: Params = {
            name: value
            for name, value in config.model_dump(exclude={"kind", SCHEDULE}).items()
            if value is not None
        }
        params[SCHEDULE] = config.schedule.kind
        for name in CONDITIONAL:
            value = getattr(config.schedule, name)
            if value is not None:
                params[name] = value
        if config.schedule.placement != "even":
            params[PLACEMENT] = config.schedule.placement
        return params

    def config_of(self, params: Mapping[str, Any]) -> MegaMoeConfig:
        """See :meth:`params_of`."""
        keys = dict(params)
        of_schedule = [name for name in (*CONDITIONAL, PLACEMENT) if name in keys]
        schedule = {"kind": keys.pop(SCHEDULE)} | {name: keys.pop(name) for name in of_schedule}
        return MegaMoeConfig.model_validate(keys | {SCHEDULE: schedule})

    def choices(self) -> dict[str, tuple[str, ...]]:
        """The schedule's kind and placement beside the others."""
        return {**super().choices(), SCHEDULE: get_args(ScheduleKind), PLACEMENT: get_args(Placement)}

    def constants_of(self, config: MegaMoeConfig) -> Params:
        """A parameter of a schedule that is not the config's is 0."""
        params = dict.fromkeys(CONDITIONAL, 0) | self.params_of(config)
        return params | {PLACEMENT: config.schedule.placement}

    def shape_words(self, workload: MoeWorkload) -> str:
        """See :mod:`~xstage_tune.families.megamoe.words`."""
        from xstage_tune.families.megamoe import words

        return words.shape_words(workload)

    def facts(self, workload: MoeWorkload) -> list[tuple[str, str]]:
        """See :mod:`~xstage_tune.families.megamoe.words`."""
        from xstage_tune.families.megamoe import words

        return words.facts(workload)

    def derived(self, workload: MoeWorkload) -> dict[str, object]:
        """See :mod:`~xstage_tune.families.megamoe.words`."""
        from xstage_tune.families.megamoe import words

        return words.derived(workload)

    def sentence(self, workload: MoeWorkload) -> str:
        """See :mod:`~xstage_tune.families.megamoe.words`."""
        from xstage_tune.families.megamoe import words

        return words.sentence(workload)

    def tokens_words(self, workload: MoeWorkload) -> str:
        """Of each rank."""
        return f"{workload.tokens_per_rank:,} per rank"


FAMILY = MegaMoeFamily()
