"""Launches of a MoE layer under every schedule: a case in; checks, replays and spans out."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.base.spans import SpanTable
from xstage_tune.families.config_files import config_keys
from xstage_tune.families.megamoe.built import SCALE_BLOCK
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.spans import LANES
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.profiled import (
    CheckFigures,
    Distribution,
    ProfiledKind,
    ProfiledLaunch,
    ReplayFigures,
    What,
    sampled_ctas,
)
from xstage_tune.families.workload_fields import OUTPUT_BYTES
from xstage_tune.launches.device import LaunchKind, Outcome

#: The control: the fused kernel whose destinations all lie in the GPU's own memory.
LOCAL = "no remote stores"
#: Both matrix products by the vendor's library, expert by expert, and nothing else.
PRODUCTS = "products alone"
#: Those with SwiGLU between them (and, in w8a8, its quantisation), then the rows sent by direct stores of all
#: SMs: the layer without fusion.
SERIAL = "serial"
#: Behind a schedule's name: built to record spans.
RECORDING = ", recording"
#: Behind a schedule's name: so built, and a tile's stores leave at once, not spread over the next mainloop.
AT_ONCE = ", at once"
#: Of one launch in a recording, which holds as many as there are schedules, twice: about 15 kB.
_MOST_RECORDED_SPANS = 2_000


@dataclass(frozen=True, slots=True)
class LayerCase:
    """One layer whose schedules are all timed together, on the rank that receives most.

    What that rank would pull is there already. The buffers of the other ranks are on ``path``.

    Args:
        label: unique in a request; empty for its only one.
        schedules: each one's name and config; all of one tile.
        seed: of the tokens.
        serial: whether the layer without fusion is timed too.
    """

    label: str
    workload: MoeWorkload
    schedules: tuple[tuple[str, MegaMoeConfig], ...]
    path: StorePath
    seed: int = 0
    serial: bool = False

    @property
    def words(self) -> str:
        """See :class:`~xstage_tune.families.profiled.ProfiledCase`."""
        return self.config.tile_label

    @property
    def config(self) -> MegaMoeConfig:
        """The first schedule's."""
        return self.schedules[0][1]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the schedules."""
        return tuple(name for name, _ in self.schedules)

    @property
    def stores_remotely(self) -> bool:
        """Whether anything leaves the GPU."""
        return self.path != "local" and self.workload.stores_remotely

    @property
    def control(self) -> MegaMoeConfig:
        """Whose stores all stay local, of :data:`LOCAL`: the interleaved one, if it is among them."""
        interleaved = (config for _, config in self.schedules if config.schedule.kind == "interleaved")
        return next(interleaved, self.config)

    @property
    def checked(self) -> tuple[str, ...]:
        """Implementations whose outputs are compared; the first with fp32, all others with it too."""
        return (*self.names, *((SERIAL,) if self.serial else ()))

    @property
    def timed(self) -> tuple[str, ...]:
        """Implementations that run in turn, the first schedule's recording build among them."""
        local = (LOCAL,) if self.stores_remotely else ()
        serial = (PRODUCTS, SERIAL) if self.serial else ()
        return (*self.names, *local, *serial, self.names[0] + RECORDING)

    @property
    def recorded(self) -> tuple[str, ...]:
        """Whose spans are recorded: each schedule as it runs and with stores at once, and the control."""
        local = (LOCAL,) if self.stores_remotely else ()
        return (*self.names, *(name + AT_ONCE for name in self.names), *local)

    def config_of(self, implementation: str) -> MegaMoeConfig:
        """The fused kernel's that an implementation runs, or that it stands beside."""
        name = implementation.removesuffix(RECORDING).removesuffix(AT_ONCE)
        return self.control if name == LOCAL else dict(self.schedules).get(name, self.config)


def has_serial(workload: MoeWorkload) -> bool:
    """Whether the vendor's products take the layer's sizes: in w8a8 whole blocks of scales."""
    if workload.precision == "bf16":
        return True
    sizes = (workload.hidden, workload.intermediate)
    return workload.precision == "w8a8" and all(size % SCALE_BLOCK == 0 for size in sizes)


@dataclass(frozen=True, slots=True)
class LayerSpans:
    """Spans of one launch of a recording variant; None where no part of a tile has the span.

    A tile is computed by two consumers, each with its part; all spans are of parts.

    Args:
        launch_ns: from the first lane's begin until the last one's end.
        parts: whose mainloops were kept.
        dropped: spans that found no room.
        l1, l2: mainloops, T_L1 and T_L2.
        operand_wait: for the first operands of a part, where rows that are not ready show.
        slot_wait: for a staging slot, of parts of both layers.
        issue: T_RS of a Linear-2 part, until the SM has passed its stores on.
        expected_stall: equation 15 with a part's own T_RS and the time until its slot is asked for again.
        stall: how long that slot was waited for then.
        stall_ns: both waits together, mean over the consumers of a launch.
        active: part of the launch in which a mainloop of an SM runs, mean over the SMs.
    """

    launch_ns: float
    parts: int
    dropped: int
    l1: Distribution | None
    l2: Distribution | None
    operand_wait: Distribution | None
    slot_wait: Distribution | None
    issue: Distribution | None
    expected_stall: Distribution | None
    stall: Distribution | None
    stall_ns: float
    active: float
    what: Literal["spans"] = "spans"


Figures = CheckFigures | ReplayFigures | LayerSpans


@dataclass(frozen=True, slots=True)
class LayerLaunch(ProfiledLaunch[LayerCase, str]):
    """See :class:`~xstage_tune.families.profiled.ProfiledLaunch`. The first schedule is checked first."""

    @property
    def kind(self) -> LaunchKind[LayerLaunch, Figures, LayerPoint]:
        """See :class:`~xstage_tune.launches.device.Launch`."""
        return LAYERS


LayerOutcome = Outcome[LayerLaunch, Figures]


@dataclass(frozen=True, slots=True)
class LayerPoint:
    """A launch of a profiled layer in the store.

    Args:
        label: of the case; empty for a run's only one.
        what: kind of the launch, as its figures name it.
        producers: SMs that take part.
        tokens: of each rank.
        remote_tile_bytes: that a Linear-2 tile stores remotely, mean.
        config: keys of the kernel's config.
    """

    label: str
    implementation: str
    what: What
    path: StorePath
    flavour: StoreFlavour
    producers: int
    tokens: int
    ranks: int
    remote_tile_bytes: int
    config: dict[str, Any]
    mode: Literal["profile-layer"] = "profile-layer"

    @property
    def burst_bytes(self) -> int:
        """See :class:`~xstage_tune.launches.device.Point`."""
        return self.remote_tile_bytes

    @property
    def gap_ns(self) -> int:
        """See :class:`~xstage_tune.launches.device.Point`."""
        return 0


class _Layers(ProfiledKind[LayerLaunch, Figures, LayerPoint]):
    name = "layers"
    figures: TypeAdapter[Figures] = TypeAdapter(Annotated[Figures, Field(discriminator="what")])
    modes = ("profile-layer",)
    points = TypeAdapter(LayerPoint)

    def sha256(self, launch: LayerLaunch) -> str:
        return case_sha256(launch.case)

    def recorded_spans(self, outcome: LayerOutcome, before: int) -> SpanTable:
        del before
        return sampled_ctas(outcome.table, LANES, _MOST_RECORDED_SPANS)

    def point(self, outcome: LayerOutcome) -> LayerPoint:
        launch, case = outcome.launch, outcome.launch.case
        config = case.config_of(launch.implementation)
        remote = case.stores_remotely and launch.implementation not in (LOCAL, PRODUCTS)
        tile_bytes = config.block_m * config.block_n * OUTPUT_BYTES * case.workload.combine_remote_fraction
        return LayerPoint(
            label=case.label,
            implementation=launch.implementation,
            what=launch.what,
            path=case.path if remote else "local",
            flavour=config.store_flavour,
            producers=outcome.info.producers,
            tokens=case.workload.tokens_per_rank,
            ranks=case.workload.ep_degree,
            remote_tile_bytes=round(tile_bytes) if remote else 0,
            config=config_keys(config),
        )


LAYERS = _Layers()


def case_sha256(case: LayerCase) -> str:
    """Hash of a case: what a recorded launch is of."""
    keys = {
        "label": case.label,
        "workload": case.workload.model_dump(mode="json", exclude={"description", "source"}),
        "schedules": [(name, config_keys(config)) for name, config in case.schedules],
        "path": case.path,
        "seed": case.seed,
        "serial": case.serial,
    }
    return hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()
