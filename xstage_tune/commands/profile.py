"""``profile``: the fused attention on this GPU, beside the serial ones and its predictions."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.base.errors import UsageError
from xstage_tune.commands._completion import config_choices, platform_names, workload_names
from xstage_tune.commands._devices import PATHS, PathChoice, PathOption, refuse_options
from xstage_tune.commands._options import FormatOption, OutputFormat, SetOption, StoreOption, the_only
from xstage_tune.commands._runs import notify, run_session, show_result
from xstage_tune.commands._targets import ForceRunOption, check_target

if TYPE_CHECKING:
    from xstage_tune.experiments.timing.options import ProfileOptions
    from xstage_tune.experiments.timing.result import ProfileResult


def profile(
    context: typer.Context,
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            "-w",
            metavar="NAME|FILE.toml",
            autocompletion=workload_names,
            help="Attention to profile.",
        ),
    ] = None,
    config: Annotated[
        str,
        typer.Option(
            metavar="FILE|default|study:ID",
            autocompletion=config_choices,
            help="Kernel config; default: the one that a search has to beat; study:latest works too.",
        ),
    ] = "default",
    device: Annotated[
        str, typer.Option(help="auto (the first GPU), cuda[:N], or replay[:NAME|FILE.xsprof].")
    ] = "auto",
    path: PathOption = PathChoice.AUTO,
    sweep: Annotated[
        list[str] | None, typer.Option(metavar="tokens=VALUES", help="For example tokens=1024,2048,4096.")
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(
            "--platform",
            "-p",
            metavar="NAME|FILE.toml",
            autocompletion=platform_names,
            help="Calibrated platform that the predictions rest on, of a replayed run too.",
            show_default="your own, if exactly one fits the GPU and the path; of a replay the one recorded",
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, max=1000, help="Blocks of each implementation; six or more give intervals.")
    ] = 12,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of the inputs.")] = 0,
    overrides: SetOption = None,
    record: Annotated[Path | None, typer.Option(help="Keep the run for replay (.xsprof).")] = None,
    store: StoreOption = None,
    output: FormatOption = OutputFormat.TABLE,
    force: ForceRunOption = False,
) -> None:
    """Time the fused FlashAttention-A2A beside the attention alone and three serial versions.

    Outputs are checked, then launches timed back to back in CUDA graphs, each implementation alone, and for
    E_res in turn with the attention. Hiding ratio and speedups, spans of a recording build and what recording
    costs, and what the calibrated platform predicts of each. A sweep of tokens draws E_res against M: the
    paper's Figure 11.
    """
    from xstage_tune.devices.spec import PROFILE
    from xstage_tune.experiments.timing.options import ProfileOptions

    if record is not None:
        check_target(record, ".xsprof", force=force, option="--record")
    spec = PROFILE.parse(device)
    if spec.kind == "replay":
        refuse_options(context, "profile anew with --device cuda", allowed=("platform",))
        _show(_replay(spec.which, platform, store, force), output)
        return
    if workload is None:
        raise UsageError("--workload is missing", "one of: xstage-tune workloads list")
    options = ProfileOptions(
        workload=workload,
        overrides=overrides or (),
        config=config,
        path=PATHS[path],
        sweep=the_only(sweep, "--sweep"),
        platform=platform,
        repeats=repeats,
        seed=seed,
        force=force,
    )
    _show(_profile(options, spec.which, store, record, force), output)


def _replay(which: str, platform: str | None, store: str | None, force: bool) -> ProfileResult:
    from xstage_tune.devices.opener import open_replay
    from xstage_tune.devices.platform_choice import accept_gpu
    from xstage_tune.devices.spec import PROFILE
    from xstage_tune.experiments.timing.request import request_from_keys
    from xstage_tune.experiments.timing.session import run_profile
    from xstage_tune.platforms.loader import load_platform
    from xstage_tune.store.facade import Store

    with closing(open_replay(PROFILE, which)) as device, Store.open(store) as kept:
        request = request_from_keys(device.request, device.identity)
        if platform is None:
            request = replace(request, platform_recorded=True)
        else:
            request = replace(request, platform=load_platform(platform), platform_recorded=False)
            if force:
                other = accept_gpu(device.describe(), request.platform, request.path, notify)
                request = replace(request, other_gpu=other)
        return run_session(run_profile, "profiling", device, request, kept)


def _profile(
    options: ProfileOptions, which: str, store: str | None, record: Path | None, force: bool
) -> ProfileResult:
    from xstage_tune.devices import opener
    from xstage_tune.devices.spec import PROFILE
    from xstage_tune.experiments.timing.options import attention_workload, check_options, make_request
    from xstage_tune.experiments.timing.session import run_profile
    from xstage_tune.store.facade import Store

    workload = attention_workload(options)
    check_options(options)
    with closing(opener.open_cuda(PROFILE, which)) as gpu, Store.open(store) as kept:
        request = make_request(options, workload, gpu.describe(), kept, notify)
        return run_session(run_profile, "profiling", gpu, request, kept, record, force)


def _show(result: ProfileResult, output: OutputFormat) -> None:
    from xstage_tune.report.profile_figure import sweep_figure
    from xstage_tune.report.profile_tables import profile_report

    show_result(result, output, profile_report, sweep_figure)
