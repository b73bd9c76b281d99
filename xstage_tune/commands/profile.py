"""``profile``: the fused attention on this GPU, beside the serial ones and its predictions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.commands._devices import PATHS, refuse_options
from xstage_tune.commands._options import FormatOption, OutputFormat, SetOption, StoreOption
from xstage_tune.commands._targets import ForceOption, check_target
from xstage_tune.commands.calibrate import PathChoice
from xstage_tune.errors import UsageError

if TYPE_CHECKING:
    from xstage_tune.devices.attention_profiles import ProfileDevice
    from xstage_tune.devices.open_profiles import ProfileSpec
    from xstage_tune.profiling.options import ProfileOptions
    from xstage_tune.profiling.request import ProfileRequest
    from xstage_tune.profiling.result import ProfileResult
    from xstage_tune.store.facade import Store


def profile(
    context: typer.Context,
    workload: Annotated[
        str | None,
        typer.Option("--workload", "-w", metavar="NAME|FILE.toml", help="Attention to profile."),
    ] = None,
    config: Annotated[
        str,
        typer.Option(
            metavar="FILE|default|study:ID",
            help="Kernel config; default: the one that a search has to beat; study:latest works too.",
        ),
    ] = "default",
    device: Annotated[
        str, typer.Option(help="auto (the first GPU), cuda[:N], or replay[:NAME|FILE.xsprof].")
    ] = "auto",
    path: Annotated[
        PathChoice, typer.Option(help="Whose memory is stored to; auto: the platform's.")
    ] = PathChoice.AUTO,
    sweep: Annotated[
        str | None, typer.Option(metavar="tokens=VALUES", help="For example tokens=1024,2048,4096.")
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(
            "--platform",
            "-p",
            metavar="NAME|FILE.toml",
            help="Calibrated platform that the predictions rest on.",
            show_default="the GPU's own",
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="Timed replays of each implementation.")] = 7,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of the inputs.")] = 0,
    overrides: SetOption = None,
    record: Annotated[Path | None, typer.Option(help="Keep the run for replay (.xsprof).")] = None,
    store: StoreOption = None,
    output: FormatOption = OutputFormat.TABLE,
    force: ForceOption = False,
) -> None:
    """Time the fused FlashAttention-A2A beside the attention alone and three serial versions.

    CUDA-graph replays back to back, in rotated order, outputs checked before. E_res, hiding ratio and
    speedups, spans of a recording build, and what the calibrated platform predicts of each. A sweep of tokens
    draws E_res against M, as the paper's Figure 11.
    """
    from xstage_tune.devices.open_profiles import parse_spec
    from xstage_tune.profiling.options import ProfileOptions

    if record is not None:
        check_target(record, ".xsprof", force=force, option="--record")
    spec = parse_spec(device)
    if spec.kind == "replay":
        refuse_options(context, "profile anew with --device cuda")
        _show(_replay(spec, store), output)
        return
    if workload is None:
        raise UsageError("--workload is missing", "one of: xstage-tune workloads list")
    options = ProfileOptions(
        workload=workload,
        overrides=overrides or (),
        config=config,
        path=PATHS[path],
        sweep=sweep,
        platform=platform,
        repeats=repeats,
        seed=seed,
    )
    _show(_profile(options, spec, store, record, force), output)


def _replay(spec: ProfileSpec, store: str | None) -> ProfileResult:
    from xstage_tune.devices.open_profiles import open_replay
    from xstage_tune.profiling.request import request_from_keys
    from xstage_tune.store.facade import Store

    device = open_replay(spec)
    try:
        with Store.open(store) as kept:
            return _run(device, request_from_keys(device.request, device.identity), kept)
    finally:
        device.close()


def _profile(
    options: ProfileOptions, spec: ProfileSpec, store: str | None, record: Path | None, force: bool
) -> ProfileResult:
    from xstage_tune.devices import open_profiles
    from xstage_tune.profiling.options import attention_workload, make_request
    from xstage_tune.store.facade import Store

    workload = attention_workload(options)
    gpu = open_profiles.open_cuda_profiles(spec.which)
    try:
        with Store.open(store) as kept:
            request = make_request(options, workload, gpu.describe(), kept)
            return _run(gpu, request, kept, record, force)
    finally:
        gpu.close()


def _run(
    device: ProfileDevice,
    request: ProfileRequest,
    store: Store,
    record: Path | None = None,
    force: bool = False,
) -> ProfileResult:
    from xstage_tune.profiling.session import run_profile
    from xstage_tune.report.progress import SweepProgress

    with SweepProgress("profiling") as progress:
        return run_profile(
            device,
            request,
            store,
            argv=("xstage-tune", *sys.argv[1:]),
            progress=progress,
            record=record,
            force=force,
        )


def _show(result: ProfileResult, output: OutputFormat) -> None:
    from xstage_tune.report.emit import emit_json
    from xstage_tune.report.profile_figure import sweep_figure
    from xstage_tune.report.profile_tables import profile_report
    from xstage_tune.report.tables import result_console
    from xstage_tune.report.terminal_plot import TerminalPlot

    if output is OutputFormat.JSON:
        emit_json(result.keys())
        return
    console = result_console()
    console.print(profile_report(result))
    if result.request.sweep is not None:
        console.print(TerminalPlot(sweep_figure(result)))
    console.print(f"run {result.run_id}", markup=False)
