"""``profile``: a fused kernel on this GPU, beside what it replaces and its predictions."""

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
    from xstage_tune.experiments.profiling.use import ProfileResult

_CONFIG = "Kernel config; default: the one that a search has to beat; study:latest works too."
_PLATFORM = "Calibrated platform that the predictions rest on, of a replayed run too."
_OWN = "your own, if exactly one fits the GPU and the path; of a replay the one recorded"


def profile(
    context: typer.Context,
    workload: Annotated[str | None, workload_option("Attention or MoE layer to profile.")] = None,
    config: Annotated[str, config_option(_CONFIG)] = "default",
    device: Annotated[
        str, typer.Option(help="auto (the first GPU), cuda[:N], or replay[:NAME|FILE.xsprof].")
    ] = "auto",
    path: PathOption = "auto",
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="For example tokens=1024,2048,4096; of a MoE layer also lead, remote_fraction.",
        ),
    ] = None,
    platform: Annotated[str | None, platform_option(_PLATFORM, _OWN)] = None,
    repeats: Annotated[
        int, number(REPEATS, "Blocks of each implementation, or rounds of all; six or more give intervals.")
    ] = 12,
    seed: Annotated[int, number(SEED, "Of the inputs.")] = 0,
    overrides: SetOption = None,
    record: Annotated[Path | None, typer.Option(help="Keep the run for replay (.xsprof).")] = None,
    store: StoreOption = None,
    output: FormatOption = OutputFormat.TABLE,
    force: ForceRunOption = False,
) -> None:
    """Time a fused kernel beside what it replaces and what the calibrated platform predicts.

    Outputs are checked, then launches timed back to back in CUDA graphs, then spans of recording builds.
    Of an attention: the fused FlashAttention-A2A beside the attention alone and three serial versions, each
    alone and for E_res in turn with the attention; hiding ratio and speedups. A sweep of tokens draws E_res
    against M: the paper's Figure 11. Of a MoE layer in bf16 or w8a8: all schedules in turn, the same without
    remote stores, and with torch the layer without fusion; the stalls of Linear-2, which is the paper's
    Table 2, and Tensor Cores over time.
    """
    from xstage_tune.devices import opener
    from xstage_tune.devices.spec import PROFILE
    from xstage_tune.experiments.emulation.sweep import parse_sweep
    from xstage_tune.experiments.profiling.request import make_request
    from xstage_tune.experiments.profiling.session import run_profile
    from xstage_tune.experiments.profiling.use import profile_use
    from xstage_tune.families.workload_files import load_workload
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
    layer = load_workload(workload, overrides or ())
    model = profile_use(layer.kind).request
    text = the_only(sweep, "--sweep")
    swept = text and parse_sweep(text, model.swept(layer), layer.TOKENS_KEY)
    asked = {"sweep": swept, "repeats": repeats, "seed": seed}
    require_readable(platform, config)
    with closing(opener.open_cuda(PROFILE, spec.which, layer.kind)) as gpu, Store.open(store) as kept:
        request = make_request(
            model, layer, config, platform, gpu.describe(), kept, notify,
            path=named_path(path), force=force, **asked, **model.on_this_machine(layer),
        )  # fmt: skip
        _show(run_session(run_profile, "profiling", gpu, request, kept, record, force), output)


def _replay(which: str, platform: str | None, store: str | None, force: bool) -> ProfileResult:
    from xstage_tune.devices.opener import open_replay
    from xstage_tune.devices.platform_choice import accept_gpu
    from xstage_tune.devices.spec import PROFILE
    from xstage_tune.experiments.profiling.session import run_profile
    from xstage_tune.experiments.profiling.use import read_request
    from xstage_tune.platforms.loader import load_platform
    from xstage_tune.store.facade import Store

    with closing(open_replay(PROFILE, which)) as device, Store.open(store) as kept:
        _, request = read_request(device.request, device.identity)
        if platform is not None:
            request = request.changed(platform=load_platform(platform))
            if force:
                other = accept_gpu(device.describe(), request.platform, request.path, notify)
                request = request.changed(other_gpu=other)
        request = request.changed(platform_recorded=platform is None)
        result: ProfileResult = run_session(run_profile, "profiling", device, request, kept)
        return result


def _show(result: ProfileResult, output: OutputFormat) -> None:
    from xstage_tune.report.profiles import profile_view

    view = profile_view(result)
    show_result(result, output, view.tables, view.sweep_figure)
