"""``search``: find the config of a fused kernel, with a bound that says how much better one could be."""

from __future__ import annotations

from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.commands._options import FormatOption, OutputFormat, SetOption, StoreOption
from xstage_tune.errors import UsageError

if TYPE_CHECKING:
    from xstage_tune.devices.kernels import KernelDevice
    from xstage_tune.search.journal import Journal
    from xstage_tune.search.request import SearchRequest
    from xstage_tune.search.result import SearchResult
    from xstage_tune.search.space import Space
    from xstage_tune.store.facade import Store


class SamplerChoice(StrEnum):
    """``--sampler``."""

    TPE = "tpe"
    GP = "gp"
    RANDOM = "random"
    EXHAUSTIVE = "exhaustive"


class ObjectiveChoice(StrEnum):
    """``--objective``."""

    LATENCY = "latency"
    STALL = "stall"


class SuiteChoice(StrEnum):
    """``--suite``."""

    PAPER_84 = "paper-84"


def search(
    workload: Annotated[
        str | None, typer.Option("--workload", "-w", metavar="NAME|FILE.toml", help="Workload to tune for.")
    ] = None,
    suite: Annotated[
        SuiteChoice | None, typer.Option(help="Tune for every workload of a suite instead.")
    ] = None,
    platform: Annotated[
        str,
        typer.Option("--platform", "-p", metavar="NAME|FILE.toml", help="Calibrated platform to tune on."),
    ] = "paper-nvlink5",
    device: Annotated[
        str,
        typer.Option(help="auto (the simulator), simulator, or emulate[:N] (skeletons on a GPU)."),
    ] = "auto",
    trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="Most configs to evaluate.", show_default="100; 24 in a suite; all if exhaustive"
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.0, help="Most seconds to search.", show_default="none")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Of the sampler; the same seed, the same result.")
    ] = 0,
    sampler: Annotated[
        SamplerChoice, typer.Option(help="Who proposes configs beside the model's ranking.")
    ] = SamplerChoice.TPE,
    resume: Annotated[str | None, typer.Option(metavar="ID|latest", help="Study to take up again.")] = None,
    objective: Annotated[
        ObjectiveChoice, typer.Option(help="Time of the launch, or time that its Tensor Core roles wait.")
    ] = ObjectiveChoice.LATENCY,
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="Stop once the best is within this fraction of the bound.")
    ] = 0.01,
    overrides: SetOption = None,
    store: StoreOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Search tile sizes, schedule and staging of a fused kernel, guided by bounds and the X-Stage model."""
    if (workload is None) == (suite is None):
        raise UsageError("give either --workload or --suite", "xstage-tune workloads list")
    if suite is not None:
        if overrides or resume or timeout is not None or objective is not ObjectiveChoice.LATENCY:
            raise UsageError(f"--suite {suite.value} takes no --set, --resume, --timeout or --objective")
        _run_suite(platform, device, trials, seed, sampler, tolerance, output)
        return
    assert workload is not None
    from xstage_tune.devices.open_kernels import open_kernel_device
    from xstage_tune.platforms.loader import load_platform
    from xstage_tune.search.request import SearchRequest
    from xstage_tune.store.facade import Store
    from xstage_tune.workloads.loader import load_workload

    profile = load_platform(platform)
    request = SearchRequest(
        workload=load_workload(workload, overrides or ()),
        platform=profile,
        objective=objective.value,
        sampler=sampler.value,
        seed=seed,
        trials=trials,
        timeout_s=timeout,
        tolerance=tolerance,
    )
    with (
        closing(open_kernel_device(device, profile)) as kernels,
        Store.open(store, create=resume is None) as kept,
    ):
        result = _search_one(request, kernels, kept, resume)
    _show(result, output)


def _search_one(
    request: SearchRequest, device: KernelDevice, store: Store, resume: str | None
) -> SearchResult:
    from xstage_tune.report.progress import SweepProgress
    from xstage_tune.search.driver import run_search
    from xstage_tune.search.launch_size import require_simulable
    from xstage_tune.search.sampling import require_sampler
    from xstage_tune.search.space import build_space

    require_sampler(request.sampler)
    space = build_space(request.workload, request.platform)
    require_simulable(space.configs, request.workload)
    journal = _journal(request, space, device, store, resume)
    with SweepProgress("searching") as progress:
        return run_search(request, space, device, journal, progress)


def _journal(
    request: SearchRequest, space: Space, device: KernelDevice, store: Store, resume: str | None
) -> Journal:
    from xstage_tune.search.journal import begin_study, resume_study

    if resume is None:
        return begin_study(store, request, space, device.identity)
    return resume_study(store, resume, request, device.identity)


def _run_suite(
    platform: str,
    device: str,
    trials: int | None,
    seed: int,
    sampler: SamplerChoice,
    tolerance: float,
    output: OutputFormat,
) -> None:
    from xstage_tune.devices.open_kernels import open_kernel_device
    from xstage_tune.platforms.loader import load_platform
    from xstage_tune.report.emit import emit_json
    from xstage_tune.report.progress import SweepProgress
    from xstage_tune.report.search_tables import suite_report
    from xstage_tune.report.tables import result_console
    from xstage_tune.search.suite import DEFAULT_TRIALS, SuiteOptions, run_paper_84

    profile = load_platform(platform)
    options = SuiteOptions(trials or DEFAULT_TRIALS, seed, sampler.value, tolerance)
    with closing(open_kernel_device(device, profile)) as kernels, SweepProgress("searching") as progress:
        result = run_paper_84(profile, kernels, options, progress)
    if output is OutputFormat.JSON:
        emit_json(result.keys())
    else:
        result_console().print(suite_report(result))


def _show(result: SearchResult, output: OutputFormat) -> None:
    from xstage_tune.report.emit import emit_json
    from xstage_tune.report.search_tables import search_report
    from xstage_tune.report.tables import result_console

    if output is OutputFormat.JSON:
        emit_json(result.keys())
    else:
        result_console().print(search_report(result))
