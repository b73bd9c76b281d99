"""``emulate``: what a schedule does on the real fabric, before its kernel is written."""

from __future__ import annotations

from contextlib import closing, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.base.errors import UsageError
from xstage_tune.commands._completion import config_choices, workload_names
from xstage_tune.commands._devices import PATHS, PathChoice, PathOption, refuse_options
from xstage_tune.commands._next_steps import after_emulation
from xstage_tune.commands._options import (
    FormatOption,
    OutputFormat,
    PlatformOption,
    SetOption,
    StoreOption,
    the_only,
)
from xstage_tune.commands._runs import notify, run_session, show_result
from xstage_tune.commands._targets import ForceRunOption, check_target

if TYPE_CHECKING:
    from xstage_tune.devices.spec import DeviceSpec
    from xstage_tune.experiments.emulation.options import EmulationOptions
    from xstage_tune.experiments.emulation.result import EmulationResult


class ScheduleChoice(StrEnum):
    """``--schedule``: MegaMoE's schedules, attention's tile orders."""

    WAVE = "wave"
    INTERLEAVED = "interleaved"
    ALTERNATING = "alternating"
    CLAMPED_LAG = "clamped-lag"
    SEQUENTIAL = "sequential"
    ROTATED = "rotated"
    SPREAD = "spread"
    OWN_LAST = "own-last"
    ALL = "all"


class FlavourChoice(StrEnum):
    """``--store-flavour``."""

    REGISTER = "st.v4"
    BULK = "tma"


class PlacementChoice(StrEnum):
    """``--placement``."""

    EVEN = "even"
    SHARE = "share"
    BOTH = "both"


def emulate(
    context: typer.Context,
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            "-w",
            metavar="NAME|FILE.toml",
            autocompletion=workload_names,
            help="Workload to emulate.",
        ),
    ] = None,
    config: Annotated[
        str,
        typer.Option(
            metavar="FILE|default|study:ID",
            autocompletion=config_choices,
            help="Kernel config; study:latest works too.",
        ),
    ] = "default",
    schedule: Annotated[
        list[ScheduleChoice] | None,
        typer.Option(
            metavar="NAME|all",
            help=f"Schedule or tile order; may be repeated: {', '.join(ScheduleChoice)}.",
            show_default="wave, interleaved, alternating; of attention every tile order",
        ),
    ] = None,
    placement: Annotated[
        PlacementChoice | None,
        typer.Option(
            help="Linear-2 tiles evenly or by the SMs' share of the drain rate.", show_default="the config's"
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help="auto (a GPU, else the simulator), cuda[:N], simulator, or replay[:NAME|FILE.xsemu]."
        ),
    ] = "auto",
    path: PathOption = PathChoice.AUTO,
    store_flavour: Annotated[
        FlavourChoice | None,
        typer.Option(help="Register stores of 16 bytes, or bulk copies.", show_default="the config's"),
    ] = None,
    staging_depth: Annotated[
        int | None, typer.Option(min=1, help="Staging slots S of MegaMoE.", show_default="the config's")
    ] = None,
    tile_ns: Annotated[
        str | None,
        typer.Option(
            metavar="l1=NS,l2=NS|q=NS[,epilogue=NS]",
            help="Length of the spins that stand for mainloops.",
            show_default="by the platform's compute model",
        ),
    ] = None,
    dependencies: Annotated[
        bool, typer.Option(help="Linear-2 waits for the Linear-1 tiles that it reads.")
    ] = True,
    completion_coupled: Annotated[
        bool, typer.Option("--completion-coupled", help="The issue role waits until its stores are visible.")
    ] = False,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="lead=1..32, remote_fraction=0,0.25,0.5, staging_depth=1..4, or tokens=1024,4096 (as --set "
            "tokens).",
        ),
    ] = None,
    platform: PlatformOption = None,
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="Launches of each case.")] = 5,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of the simulator's start times.")] = 0,
    overrides: SetOption = None,
    record: Annotated[Path | None, typer.Option(help="Keep the run for replay (.xsemu).")] = None,
    store: StoreOption = None,
    output: FormatOption = OutputFormat.TABLE,
    force: ForceRunOption = False,
) -> None:
    """Run a workload's schedules as skeletons: real stores, roles and waits; spins in place of mainloops.

    Each schedule's time, T_RS and stalls, beside what the closed forms and the simulator predict from the
    calibrated platform. Spans go to the store: `trace --run` and `report --run` show them.
    """
    from xstage_tune.devices.spec import EMULATE
    from xstage_tune.experiments.emulation.options import EmulationOptions

    if record is not None:
        check_target(record, ".xsemu", force=force, option="--record")
    spec = EMULATE.parse(device)
    if spec.kind == "replay":
        refuse_options(context, "emulate anew with --device cuda or simulator")
        _show(_replay(spec.which, store), store, output)
        return
    if workload is None:
        raise UsageError("--workload is missing", "one of: xstage-tune workloads list")
    options = EmulationOptions(
        workload=workload,
        overrides=overrides or (),
        config=config,
        schedules=tuple(choice.value for choice in schedule or ()),
        placement=placement.value if placement else None,
        path=PATHS[path],
        flavour=store_flavour.value if store_flavour else None,
        staging_depth=staging_depth,
        tile_ns=tile_ns,
        dependencies=dependencies,
        completion_coupled=completion_coupled,
        sweep=the_only(sweep, "--sweep"),
        platform=platform,
        repeats=repeats,
        seed=seed,
        force=force,
    )
    _show(_emulate(options, spec, store, record, force), store, output)


def _replay(which: str, store: str | None) -> EmulationResult:
    from xstage_tune.devices.opener import open_replay
    from xstage_tune.devices.spec import EMULATE
    from xstage_tune.experiments.emulation.request import request_from_keys
    from xstage_tune.experiments.emulation.session import run_emulation
    from xstage_tune.store.facade import Store

    with closing(open_replay(EMULATE, which)) as device, Store.open(store) as kept:
        request = request_from_keys(device.request, device.identity)
        return run_session(run_emulation, "emulating", device, request, kept)


def _emulate(
    options: EmulationOptions, spec: DeviceSpec, store: str | None, record: Path | None, force: bool
) -> EmulationResult:
    from xstage_tune.devices import opener
    from xstage_tune.devices.spec import EMULATE
    from xstage_tune.experiments.emulation.options import check_options, make_request
    from xstage_tune.experiments.emulation.session import run_emulation
    from xstage_tune.store.facade import Store

    check_options(options)
    simulated = spec.kind == "simulator"
    gpu = None if simulated else opener.open_any_cuda(spec, EMULATE, notify, "simulating")
    with closing(gpu) if gpu else nullcontext(), Store.open(store) as kept:
        request = make_request(options, gpu.describe() if gpu else None, kept, notify)
        device = gpu or opener.open_simulator(request.platform, seed=request.seed)
        return run_session(run_emulation, "emulating", device, request, kept, record, force)


def _show(result: EmulationResult, store: str | None, output: OutputFormat) -> None:
    from xstage_tune.report.emulation_figure import sweep_figure
    from xstage_tune.report.emulation_tables import emulation_report

    show_result(result, output, emulation_report, sweep_figure)
    if output is OutputFormat.TABLE:
        after_emulation(result, store)
