"""``emulate``: what a schedule does on the real fabric, before its kernel is written."""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.base.limits import REPEATS, SEED, SPIN_NS, STAGING_DEPTH
from xstage_tune.commands._devices import PathOption, given_options, named_path, refuse_options
from xstage_tune.commands._next_steps import after_emulation
from xstage_tune.commands._options import (
    FormatOption,
    OutputFormat,
    PlatformOption,
    SetOption,
    StoreOption,
    config_option,
    number,
    the_only,
    workload_option,
)
from xstage_tune.commands._runs import notify, run_session, show_result
from xstage_tune.commands._spans import BurstOption, FromOption, require_source
from xstage_tune.commands._targets import ForceRunOption, check_target

if TYPE_CHECKING:
    from xstage_tune.base.fabric import StorePath
    from xstage_tune.devices.spec import DeviceSpec
    from xstage_tune.experiments.emulation.result import EmulationResult

_SCHEDULES = (
    "Schedule or tile order; may be repeated: wave, interleaved, alternating, clamped-lag, sequential, "
    "rotated, spread, own-last, all."
)
_SWEEP = "lead=1..32, remote_fraction=0,0.25,0.5, staging_depth=1..4, or tokens=1024,4096 (as --set tokens)."


def emulate(
    context: typer.Context,
    workload: Annotated[str | None, workload_option("Workload to emulate.")] = None,
    config: Annotated[str, config_option("Kernel config; study:latest works too.")] = "default",
    schedule: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|all",
            help=_SCHEDULES,
            show_default="wave, interleaved, alternating; of attention every tile order",
        ),
    ] = None,
    placement: Annotated[
        Literal["even", "share", "both"] | None,
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
    path: PathOption = "auto",
    store_flavour: Annotated[
        StoreFlavour | None,
        typer.Option(help="Register stores of 16 bytes, or bulk copies.", show_default="the config's"),
    ] = None,
    staging_depth: Annotated[
        int | None, number(STAGING_DEPTH, "Staging slots S of MegaMoE.", "the config's")
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
    sweep: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUES", help=_SWEEP)] = None,
    platform: PlatformOption = None,
    repeats: Annotated[int, number(REPEATS, "Launches of each case.")] = 5,
    seed: Annotated[int, number(SEED, "Of the simulator's start times.")] = 0,
    overrides: SetOption = None,
    source: FromOption = None,
    burst: BurstOption = None,
    burst_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="With --from: what each burst stores, e.g. 32KiB.")
    ] = None,
    epilogue_ns: Annotated[
        float,
        number(SPIN_NS, "With --from: what of each burst's span is no remote store, such as local ones."),
    ] = 0.0,
    record: Annotated[Path | None, typer.Option(help="Keep the run for replay (.xsemu).")] = None,
    store: StoreOption = None,
    output: FormatOption = OutputFormat.TABLE,
    force: ForceRunOption = False,
) -> None:
    """Run a workload's schedules as skeletons: real stores, roles and waits; spins in place of mainloops.

    Each schedule's time, T_RS and stalls, beside what the closed forms and the simulator predict from the
    calibrated platform. Spans go to the store: `trace --run` and `report --run` show them.

    Of a kernel of your own whose spans were imported, --from runs the gaps and bursts that were recorded.
    """
    from xstage_tune.devices import opener
    from xstage_tune.devices.spec import EMULATE
    from xstage_tune.experiments.emulation.options import make_request
    from xstage_tune.experiments.emulation.request import parse_given
    from xstage_tune.experiments.emulation.session import run_emulation
    from xstage_tune.experiments.emulation.sweep import parse_sweep, swept_by_emulation
    from xstage_tune.families.workload_files import load_workload
    from xstage_tune.search.journal import require_readable
    from xstage_tune.store.facade import Store

    if record is not None:
        check_target(record, ".xsemu", force=force, option="--record")
    require_source(source, burst)
    spec = EMULATE.parse(device)
    if source is not None:
        if others := given_options(context, _OF_SPANS):
            raise UsageError(f"--from takes no {others}: spans tell the launch", "leave these options out")
        _emulate_spans(
            source, burst or [], burst_bytes, epilogue_ns, spec, platform, named_path(path), store_flavour,
            store=store, repeats=repeats, seed=seed, force=force, output=output,
        )  # fmt: skip
        return
    if burst_bytes is not None or epilogue_ns:
        option = "--burst-bytes" if burst_bytes is not None else "--epilogue-ns"
        raise UsageError(f"{option} goes with --from", "--from latest takes the last imported run")
    if spec.kind == "replay":
        refuse_options(context, "emulate anew with --device cuda or simulator")
        _show(_replay(spec.which, store), store, output)
        return
    if workload is None:
        raise UsageError("--workload is missing", "one of: xstage-tune workloads list")
    layer = load_workload(workload, overrides or ())
    given = {} if tile_ns is None else {"given": parse_given(tile_ns)}
    text = the_only(sweep, "--sweep")
    swept = parse_sweep(text, swept_by_emulation(layer), layer.TOKENS_KEY) if text is not None else None
    require_readable(platform, config)
    gpu = None if spec.kind == "simulator" else opener.open_any_cuda(spec, EMULATE, notify, "simulating")
    with closing(gpu) if gpu else nullcontext(), Store.open(store) as kept:
        request = make_request(
            layer, config, platform, gpu.describe() if gpu else None, kept, notify,
            path=named_path(path), schedules=schedule or (), placement=placement, flavour=store_flavour,
            staging_depth=staging_depth, sweep=swept, force=force, dependencies=dependencies,
            completion_coupled=completion_coupled, repeats=repeats, seed=seed, **given,
        )  # fmt: skip
        ran_on = gpu or opener.open_simulator(request.platform, seed=request.seed)
        _show(run_session(run_emulation, "emulating", ran_on, request, kept, record, force), store, output)


#: Parameters that go with ``--from``.
_OF_SPANS = (
    "source", "burst", "burst_bytes", "epilogue_ns", "device", "path", "store_flavour", "platform", "repeats",
    "seed", "store", "output", "force",
)  # fmt: skip


def _emulate_spans(
    source: str,
    names: list[str],
    burst_bytes: str | None,
    epilogue_ns: float,
    spec: DeviceSpec,
    platform: str | None,
    path: StorePath | None,
    flavour: StoreFlavour | None,
    *,
    store: str | None,
    repeats: int,
    seed: int,
    force: bool,
    output: OutputFormat,
) -> None:
    """The emulation of imported bursts in place of a workload."""
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.base.redaction import command_line
    from xstage_tune.devices import opener
    from xstage_tune.devices.platform_choice import accept_gpu, choose_platform
    from xstage_tune.devices.spec import EMULATE
    from xstage_tune.experiments.burst_replay import ReplayRequest, parse_burst_bytes, replay_bursts
    from xstage_tune.platforms.queries import preferred_flavour
    from xstage_tune.report.progress import SweepProgress
    from xstage_tune.report.replay_tables import replay_table
    from xstage_tune.report.tables import print_tables
    from xstage_tune.spans.bursts import imported_bursts
    from xstage_tune.store.facade import Store

    if spec.kind == "replay":
        raise UsageError("--from takes no --device replay", "--device cuda or simulator")
    size = parse_burst_bytes(burst_bytes)
    gpu = None if spec.kind == "simulator" else opener.open_any_cuda(spec, EMULATE, notify, "simulating")
    with closing(gpu) if gpu else nullcontext(), Store.open(store) as kept:
        run_id, bursts = imported_bursts(kept, source, names)
        described = gpu.describe() if gpu else None
        profile = choose_platform(platform, notify, device=described, path=path)
        path = path or profile.path
        request = ReplayRequest(
            run=run_id,
            names=tuple(names),
            burst_bytes=size,
            epilogue_ns=epilogue_ns,
            platform=profile,
            path=path,
            flavour=flavour or preferred_flavour(profile),
            repeats=repeats,
            seed=seed,
            other_gpu=accept_gpu(described, profile, path, notify) if described and force else "",
        )
        ran_on = gpu or opener.open_simulator(profile, seed=seed)
        with SweepProgress("emulating") as progress:
            result = replay_bursts(ran_on, request, kept, bursts, argv=command_line(), progress=progress)
    if output is OutputFormat.JSON:
        emit_json(result.keys())
        return
    print_tables(replay_table(result))
    print(f"run {result.run_id}")


def _replay(which: str, store: str | None) -> EmulationResult:
    from xstage_tune.devices.opener import open_replay
    from xstage_tune.devices.spec import EMULATE
    from xstage_tune.experiments.emulation.request import EmulationRequest
    from xstage_tune.experiments.emulation.session import run_emulation
    from xstage_tune.store.facade import Store

    with closing(open_replay(EMULATE, which)) as device, Store.open(store) as kept:
        request = EmulationRequest.read(device.request, device.identity)
        return run_session(run_emulation, "emulating", device, request, kept)


def _show(result: EmulationResult, store: str | None, output: OutputFormat) -> None:
    from xstage_tune.report.emulation_page import sweep_figure
    from xstage_tune.report.emulation_tables import emulation_report

    show_result(result, output, emulation_report, sweep_figure)
    if output is OutputFormat.TABLE:
        after_emulation(result, store)
