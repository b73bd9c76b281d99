"""``profile``: the fused attention on this GPU, beside the serial ones and its predictions."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.base.errors import UsageError
from xstage_tune.base.limits import REPEATS, SEED
from xstage_tune.commands._devices import PathOption, named_path, refuse_options
from xstage_tune.commands._options import (
    FormatOption,
    OutputFormat,
    SetOption,
    StoreOption,
    config_option,
    number,
    platform_option,
    the_only,
    workload_option,
)
from xstage_tune.commands._runs import notify, run_session, show_result
from xstage_tune.commands._targets import ForceRunOption, check_target

if TYPE_CHECKING:
    from xstage_tune.experiments.timing.result import ProfileResult

_CONFIG = "Kernel config; default: the one that a search has to beat; study:latest works too."
_PLATFORM = "Calibrated platform that the predictions rest on, of a replayed run too."
_OWN = "your own, if exactly one fits the GPU and the path; of a replay the one recorded"


def profile(
    context: typer.Context,
    workload: Annotated[str | None, workload_option("Attention to profile.")] = None,
    config: Annotated[str, config_option(_CONFIG)] = "default",
    device: Annotated[
        str, typer.Option(help="auto (the first GPU), cuda[:N], or replay[:NAME|FILE.xsprof].")
    ] = "auto",
    path: PathOption = "auto",
    sweep: Annotated[
        list[str] | None, typer.Option(metavar="tokens=VALUES", help="For example tokens=1024,2048,4096.")
    ] = None,
    platform: Annotated[str | None, platform_option(_PLATFORM, _OWN)] = None,
    repeats: Annotated[
        int, number(REPEATS, "Blocks of each implementation; six or more give intervals.")
    ] = 12,
    seed: Annotated[int, number(SEED, "Of the inputs.")] = 0,
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
    from xstage_tune.devices import opener
    from xstage_tune.devices.spec import PROFILE
    from xstage_tune.experiments.emulation.sweep import TOKENS, parse_sweep
    from xstage_tune.experiments.timing.request import attention_workload, make_request
    from xstage_tune.experiments.timing.session import run_profile
    from xstage_tune.search.journal import require_readable
    from xstage_tune.store.facade import Store

    if record is not None:
        check_target(record, ".xsprof", force=force, option="--record")
    spec = PROFILE.parse(device)
    if spec.kind == "replay":
        refuse_options(context, "profile anew with --device cuda", allowed=("platform",))
        _show(_replay(spec.which, platform, store, force), output)
        return
    if workload is None:
        raise UsageError("--workload is missing", "one of: xstage-tune workloads list")
    attention = attention_workload(workload, overrides or ())
    text = the_only(sweep, "--sweep")
    asked = {"sweep": text and parse_sweep(text, TOKENS), "repeats": repeats, "seed": seed}
    require_readable(platform, config)
    with closing(opener.open_cuda(PROFILE, spec.which)) as gpu, Store.open(store) as kept:
        request = make_request(
            attention, config, platform, gpu.describe(), kept, notify,
            path=named_path(path), force=force, **asked,
        )  # fmt: skip
        _show(run_session(run_profile, "profiling", gpu, request, kept, record, force), output)


def _replay(which: str, platform: str | None, store: str | None, force: bool) -> ProfileResult:
    from xstage_tune.devices.opener import open_replay
    from xstage_tune.devices.platform_choice import accept_gpu
    from xstage_tune.devices.spec import PROFILE
    from xstage_tune.experiments.timing.request import ProfileRequest
    from xstage_tune.experiments.timing.session import run_profile
    from xstage_tune.platforms.loader import load_platform
    from xstage_tune.store.facade import Store

    with closing(open_replay(PROFILE, which)) as device, Store.open(store) as kept:
        request = ProfileRequest.read(device.request, device.identity)
        if platform is not None:
            request = request.changed(platform=load_platform(platform))
            if force:
                other = accept_gpu(device.describe(), request.platform, request.path, notify)
                request = request.changed(other_gpu=other)
        request = request.changed(platform_recorded=platform is None)
        return run_session(run_profile, "profiling", device, request, kept)


def _show(result: ProfileResult, output: OutputFormat) -> None:
    from xstage_tune.report.profile_page import sweep_figure
    from xstage_tune.report.profile_tables import profile_report

    show_result(result, output, profile_report, sweep_figure)
