"""What a kernel family is: one kind of fused kernel, from its workload to its launch.

A family is a folder with its workload, config, budgets, defaults, tile times, launch, bounds and words, each
beside the other, and one object that names them. Everything above knows families by this protocol alone.
:mod:`xstage_tune.families.registry` finds them, those of installed packages too.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, get_args, get_origin

from xstage_tune.base.errors import UsageError
from xstage_tune.base.limits import Objective
from xstage_tune.base.number_format import counted, percent
from xstage_tune.base.profile_templates import checked_template
from xstage_tune.families.advice import Action
from xstage_tune.families.architecture import Architecture, architecture_of, compute_of, unmeasured_compute
from xstage_tune.families.budget import Budget, Violation
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.estimate import Estimate
from xstage_tune.families.floors import Floors
from xstage_tune.families.kernel_process import KernelProcess
from xstage_tune.families.launch import FusedLaunch, GivenTimes
from xstage_tune.families.prediction import Prediction
from xstage_tune.families.resources import Resources, resources_of
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.schema import Compute, PlatformProfile

WorkloadT = TypeVar("WorkloadT", bound=Workload)
ConfigT = TypeVar("ConfigT", bound=KernelConfig)

Value = int | float | str
#: Values of each axis of a search space, in order.
Axes = dict[str, tuple[Value, ...]]
#: Parameter values by axis; axes that do not apply are absent.
Params = dict[str, Value]


class Judged(NamedTuple):
    """A config's bound and prediction, and the key of all that they follow from: twins share it."""

    floors: Floors
    prediction: Prediction
    key: Hashable


class Knob(NamedTuple):
    """A key of a config that an emulation sweeps; whole numbers from 1 up.

    Args:
        example: of values, as a hint gives them.
        order: the only one that has it; None where all have.
    """

    example: str
    order: str | None = None


class Ordered(NamedTuple, Generic[ConfigT]):
    """A config with one of its family's orders.

    Args:
        label: of the order, its parameters included.
        name: without parameters, the same at every value of a sweep.
    """

    label: str
    name: str
    config: ConfigT


@dataclass(frozen=True, slots=True)
class Variants(Generic[ConfigT]):
    """Configs that break the same limits.

    Args:
        checked: the one to check.
        count: how many they are.
        configs: all of them; not to be made where the one breaks a limit.
    """

    checked: ConfigT
    count: int
    configs: Iterable[ConfigT]


class BoundFamily(ABC, Generic[WorkloadT, ConfigT]):
    """A family for one workload on one platform: what follows from the two is worked out once."""

    config_model: type[ConfigT]

    def __init__(self, workload: WorkloadT, platform: PlatformProfile) -> None:
        self.workload, self.platform = workload, platform

    @cached_property
    def architecture(self) -> Architecture:
        """Limits of the platform's Tensor Cores; raises ``UsageError`` where the kernels have no variant."""
        return architecture_of(self.platform)

    @cached_property
    def compute(self) -> Compute:
        """The platform's compute section; raises ``UsageError`` where it has none."""
        return compute_of(self.platform)

    def check(self, config: ConfigT) -> Resources:
        """Budgets and violations of a config."""
        return resources_of(config, self.platform, self.budgets(config), self.rules(config))

    def require_feasible(self, config: ConfigT) -> None:
        """Refuse a config that cannot run.

        Raises:
            UsageError: it breaks limits; says which.
        """
        violations = self.check(config).violations
        if violations:
            broken = "; ".join(violation.message for violation in violations)
            raise UsageError(f"config {config.label} cannot run on '{self.platform.name}': {broken}")

    def default(self) -> ConfigT:
        """The baseline that a tuned config has to beat: the first of the family's choices that fits.

        Raises:
            UsageError: none does; says which limit binds.
        """
        return self.first_feasible(self.default_candidates())

    def first_feasible(self, candidates: Sequence[ConfigT]) -> ConfigT:
        """The first of some configs that fits.

        Raises:
            UsageError: none does; says which limit the first one breaks.
        """
        for config in candidates:
            if self.check(config).feasible:
                return config
        problem = self.check(candidates[0]).violations[0]
        if problem.hint:
            raise UsageError(
                f"no config of '{self.workload.name}' can run on '{self.platform.name}': {problem.message}",
                problem.hint,
            )
        raise UsageError(
            f"workload '{self.workload.name}' has no default config on '{self.platform.name}': "
            f"{problem.message}",
            "xstage-tune search needs none; its answer is --config study:latest",
        )

    @abstractmethod
    def budgets(self, config: ConfigT) -> tuple[Budget, ...]:
        """What a config takes of an SM, shared memory first."""

    @abstractmethod
    def rules(self, config: ConfigT) -> Iterator[Violation]:
        """What a config breaks beside budgets."""

    @abstractmethod
    def default_candidates(self) -> Sequence[ConfigT]:
        """Configs of which the first that fits is the default."""

    def heuristics(self) -> dict[str, ConfigT]:
        """What today's libraries would run, by name; those that fit."""
        return {}

    @abstractmethod
    def axes(self) -> Axes:
        """Usual values of each knob of a config, for a search."""

    def searched_axes(self) -> Axes:
        """Those that a search has: :meth:`axes`, and the store flavours that the platform has times for."""
        return self.axes() | {"store_flavour": tuple(sorted({one.flavour for one in self.platform.issue}))}

    def yardsticks(self) -> dict[str, ConfigT]:
        """What an answer is shown beside, by name, that is no config of the space and never the answer."""
        return {}

    def variants(self, axes: Mapping[str, tuple[Value, ...]]) -> Iterator[Variants[ConfigT]]:
        """Every combination of some axes, those that break the same limits together: here each by itself."""
        for values in itertools.product(*axes.values()):
            config = self.config_model.model_validate(dict(zip(axes, values, strict=True)))
            yield Variants(config, 1, (config,))

    def needless(
        self,
        config: ConfigT,  # noqa: ARG002 - a family that searches all that fits
        axes: Mapping[str, tuple[Value, ...]],  # noqa: ARG002
    ) -> Iterator[Violation]:
        """Why a config that may fit is not worth a search, where the axes have better ones."""
        return iter(())

    @abstractmethod
    def tiles(self, config: ConfigT) -> int:
        """Tiles of the rank that has most; those that CTAs share, once for each CTA."""

    @abstractmethod
    def launch(
        self, config: ConfigT, given: GivenTimes | None = None, *, dependencies: bool = True
    ) -> FusedLaunch:
        """The launch of a config that fits, on the rank that sets the workload's time.

        Args:
            given: tile times in place of the compute model's.
            dependencies: False runs tiles as if their inputs were ready.

        Raises:
            UsageError: the platform lacks compute figures.
        """

    def ordered(self, config: ConfigT, order: str, placement: str) -> Ordered[ConfigT]:  # noqa: ARG002
        """A config with an order and a placement of the family's in place of its own, to be emulated.

        An order that is the config's own keeps its parameters, another has its usual ones. Here the order is
        the config's ``tile_order``.
        """
        return Ordered(order, order, config.model_copy(update={"tile_order": order}))

    def with_knob(self, config: ConfigT, knob: str, value: int) -> ConfigT:  # noqa: ARG002 - has none
        """A config with another value of one of the family's knobs, and what must change with it.

        Raises:
            UsageError: the family has no such knob, or the value does not fit; says which does.
        """
        option = f"--{knob.replace('_', '-')}"
        raise UsageError(f"{option} does not fit the workload '{self.workload.name}'", "leave it out")

    @abstractmethod
    def judge(self) -> Callable[[ConfigT], Judged]:
        """What bounds and predicts a config in closed form; shares what configs have in common.

        Raises:
            UsageError: when called, the platform lacks compute figures, T0 or Q.
        """

    def outgrown(self, config: ConfigT) -> str | None:  # noqa: ARG002 - a family that cannot tell
        """That a config which was tuned for other tokens is slower here than the default, in words.

        None where that is not expected.

        Raises:
            UsageError: as :meth:`default` and :meth:`judge`.
        """
        return None

    @abstractmethod
    def estimate(self, config: ConfigT, given: GivenTimes | None = None) -> Estimate:
        """What the closed forms of the design test say of a config that fits.

        Args:
            given: tile times in place of the compute model's.

        Raises:
            UsageError: the platform lacks what it needs.
        """

    def skeleton_estimate(self, config: ConfigT, given: GivenTimes | None = None) -> Estimate:
        """:meth:`estimate` of the config's skeleton, which stores a tile at once whatever the kernel does."""
        return self.estimate(config, given)

    @abstractmethod
    def advice(self, config: ConfigT, estimate: Any) -> tuple[Action, ...]:
        """What to change, the most useful first; to piggyback where nothing need be.

        Args:
            estimate: of :meth:`estimate`.
        """

    def schedule_model(self, config: ConfigT) -> Any:  # noqa: ARG002 - a family of one schedule
        """Terms by which a server chooses the schedule, as exports have them; None where it does not."""
        return None

    @abstractmethod
    def depth(self, config: ConfigT) -> int:
        """Operand buffers of its pipeline: of configs expected to be equal the deepest is tried first."""

    def assumed(self, config: ConfigT) -> str | None:
        """What the time of a config's tile rests on that nobody measured, in words; None for nothing.

        Raises:
            UsageError: as :meth:`scaled_from`.
        """
        return "; ".join(filter(None, (unmeasured_compute(self.platform), self.scaled_from(config)))) or None

    def scaled_from(self, config: ConfigT) -> str | None:  # noqa: ARG002 - a family without such times
        """What the time of a config's tile is scaled from, in words; None where it is not scaled."""
        return None


class Family(ABC, Generic[WorkloadT, ConfigT]):
    """One kind of fused kernel."""

    #: ``kind`` of its workload files and of its configs.
    workload_kind: ClassVar[str]
    config_kind: ClassVar[str]
    workload_model: type[WorkloadT]
    config_model: type[ConfigT]
    #: One line at the head of a template of its workload files.
    template_heading: ClassVar[str]
    #: Source of its fused kernel among those of the tool; empty where that is the user's own, or of some
    #: workloads.
    kernel_source: ClassVar[str] = ""
    #: Axes that exist only where another one has a value: the other's name, and the value.
    conditional_axes: ClassVar[Mapping[str, tuple[str, Value]]] = {}
    #: Whether tiles wait for outputs of others. Where they do not, an emulation compares a launch with the
    #: same one that keeps all stores local.
    depends: ClassVar[bool] = False
    #: What an emulation compares, and what that is called: values of ``tile_order`` of its configs, or the
    #: kinds of a schedule; empty where it is not emulated.
    orders: ClassVar[tuple[str, ...]] = ()
    orders_name: ClassVar[str] = "tile orders"
    #: Where an emulation may place the tiles of an order.
    placements: ClassVar[tuple[str, ...]] = ("even",)
    #: What of a config an emulation sweeps, beside keys of the workload.
    knobs: ClassVar[Mapping[str, Knob]] = {}
    #: What a search of its configs can make small.
    objectives: ClassVar[tuple[Objective, ...]] = get_args(Objective)
    #: Whether a simulator can run its launches.
    simulated: ClassVar[bool] = True
    #: Mainloops whose time ``--tile-ns`` gives, all or none of them: of l1, l2 and q.
    mainloops: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def bind(self, workload: WorkloadT, platform: PlatformProfile) -> BoundFamily[WorkloadT, ConfigT]:
        """The family for one workload on one platform."""

    def kernel_source_of(self, workload: WorkloadT) -> str:  # noqa: ARG002 - one kernel for all
        """:attr:`kernel_source` for a workload."""
        return self.kernel_source

    def process_of(self, workload: WorkloadT) -> KernelProcess | None:  # noqa: ARG002 - has none
        """The process of the user's that measures a workload's configs; None where the tool does."""
        return None

    def template(self, name: str) -> str:
        """A commented workload file, which loads as it is.

        Raises:
            UsageError: a workload cannot be called so.
        """
        return checked_template(self.workload_model, self.template_heading, name)

    def template_companions(self) -> Mapping[str, str]:
        """What a template needs beside it to be of use: texts by the names of their files."""
        return {}

    def anchor(self, data: dict[str, Any], folder: Path) -> None:
        """Make what the keys of a workload file name relative to its folder so, in place."""

    def prepare_workload(self, data: dict[str, Any], origin: str) -> None:
        """Complete the keys of a workload file before they are checked, in place.

        Raises:
            UsageError: they name something that cannot be read.
        """

    @abstractmethod
    def shape_words(self, workload: WorkloadT) -> str:
        """Its shape in a few characters, for lists."""

    def tokens_words(self, workload: WorkloadT) -> str:
        """How many tokens, of what."""
        return f"{workload.token_count:,}"

    def facts(self, workload: WorkloadT) -> list[tuple[str, str]]:
        """What it says and what follows from that: names and values to read."""
        return [("remote share of stores", f"{workload.leaving_fraction:.1%}")]

    def derived(self, workload: WorkloadT) -> dict[str, object]:
        """What follows from it, under stable names, as JSON has it."""
        return {"remote_fraction": workload.leaving_fraction}

    def sentence(self, workload: WorkloadT) -> str:
        """The whole of it in one sentence."""
        ranks = counted(workload.ranks, "rank")
        return (
            f"{self.shape_words(workload)}, {self.tokens_words(workload)} tokens, {ranks}; "
            f"{percent(100 * workload.leaving_fraction, 1)} of its bytes leave the GPU."
        )

    def usual_orders(self, config: ConfigT, *, chosen: bool, swept: bool) -> tuple[str, ...]:  # noqa: ARG002
        """What an emulation compares where nothing is named: here all, or in a sweep the config's own.

        Args:
            chosen: whether the config is another than the default.
            swept: whether a quantity is varied.
        """
        return (config.model_dump()["tile_order"],) if swept and self.orders else self.orders

    def placement_of(self, config: ConfigT) -> str:  # noqa: ARG002 - a family of one placement
        """The config's own of :attr:`placements`."""
        return self.placements[0]

    def params_of(self, config: ConfigT) -> Params:
        """A config as values by axis."""
        return {
            name: value for name, value in config.model_dump(exclude={"kind"}).items() if value is not None
        }

    def config_of(self, params: Mapping[str, Any]) -> ConfigT:
        """The config that has these values; the reverse of :meth:`params_of`."""
        return self.config_model.model_validate(dict(params))

    def choices(self) -> dict[str, tuple[str, ...]]:
        """All values of each axis whose values are names: a kernel branches on them at compile time."""
        fields = self.config_model.model_fields
        return {
            name: get_args(field.annotation)
            for name, field in fields.items()
            if name != "kind" and get_origin(field.annotation) is Literal
        }

    def constants_of(self, config: ConfigT) -> Params:
        """A config as values by axis, each of which a kernel is to be compiled for, whatever the config."""
        return self.params_of(config)
