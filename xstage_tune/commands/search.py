"""``search``: find the config of a fused kernel, with a bound that says how much better one could be."""

from __future__ import annotations

from contextlib import closing
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xstage_tune.base.errors import UsageError
from xstage_tune.commands._completion import study_ids, workload_names
from xstage_tune.commands._next_steps import after_search
from xstage_tune.commands._options import (
    FormatOption,
    OutputFormat,
    PlatformOption,
    SetOption,
    StoreOption,
)
from xstage_tune.commands._runs import notify, warn
from xstage_tune.commands._targets import OtherGpuOption

if TYPE_CHECKING:
    from xstage_tune.launches.device import Device
    from xstage_tune.platforms.schema import PlatformProfile
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
        str | None,
        typer.Option(
            "--workload",
            "-w",
            metavar="NAME|FILE.toml",
            autocompletion=workload_names,
            help="Workload to tune for.",
        ),
    ] = None,
    suite: Annotated[
        SuiteChoice | None,
        typer.Option(help="Tune for every workload of a suite instead; each search is kept as a study."),
    ] = None,
    platform: PlatformOption = None,
    device: Annotated[
        str,
        typer.Option(help="auto (the simulator), simulator, or emulate[:N] (skeletons on a GPU)."),
    ] = "auto",
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most configs to evaluate, those of a study's earlier runs included.",
            show_default="100; 24 in a suite; all if exhaustive",
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.0, help="Most seconds to search.", show_default="none")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, max=2**32 - 1, help="Of the sampler; the same seed, the same result.", show_default="0"
        ),
    ] = None,
    sampler: Annotated[
        SamplerChoice | None,
        typer.Option(help="Who proposes configs beside the model's ranking.", show_default="tpe"),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="ID|latest",
            autocompletion=study_ids,
            help="Study to take up again; latest: the last one begun that is unfinished and that nobody "
            "searches. Without --workload, with the study's own workload and options.",
        ),
    ] = None,
    retry_failed: Annotated[
        bool,
        typer.Option("--retry-failed", help="With --resume: run again what failed, e.g. after a repair."),
    ] = False,
    objective: Annotated[
        ObjectiveChoice | None,
        typer.Option(
            help="Time of the launch, or time that its Tensor Core roles wait; in no slower launch.",
            show_default="latency",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="Stop once the best is within this fraction of the bound.", show_default="0.01"
        ),
    ] = None,
    overrides: SetOption = None,
    store: StoreOption = None,
    output: FormatOption = OutputFormat.TABLE,
    force: OtherGpuOption = False,
) -> None:
    """Search tile sizes, schedule and staging of a fused kernel, guided by bounds and the X-Stage model."""
    _require_finite("--tolerance", tolerance)
    _require_finite("--timeout", timeout)
    if retry_failed and resume is None:
        raise UsageError("--retry-failed is of a study that is taken up again", "give --resume ID too")
    given = {
        "objective": objective and objective.value,
        "sampler": sampler and sampler.value,
        "seed": seed,
        "tolerance": tolerance,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if suite is not None:
        if workload is not None:
            raise UsageError("give either --workload or --suite", "xstage-tune workloads list")
        if overrides or resume or timeout is not None or objective is not None:
            raise UsageError(f"--suite {suite.value} takes no --set, --resume, --timeout or --objective")
        _run_suite(platform, device, trials, options, store, output, force)
        return
    from xstage_tune.devices.opener import open_kernels
    from xstage_tune.devices.spec import SEARCH
    from xstage_tune.families.workload_files import load_workload
    from xstage_tune.search.request import SearchRequest
    from xstage_tune.store.facade import Store

    options |= {"trials": trials, "timeout_s": timeout}
    if workload is not None:
        layer = load_workload(workload, overrides or ())
        request = SearchRequest(layer, _platform(platform, resume, store), **options)
    elif resume is None:
        raise UsageError("give either --workload or --suite", "xstage-tune workloads list")
    elif overrides:
        raise UsageError(
            "--resume without --workload takes the study's own workload, and no --set",
            "leave out --set, or give --workload too",
        )
    else:
        resume, request = _studied_request(resume, platform, options, store)
    with (
        closing(open_kernels(SEARCH.parse(device), request.platform, notify, force=force)) as kernels,
        Store.open(store, create=resume is None) as kept,
    ):
        result = _search_one(request, kernels, kept, resume, retry_failed)
    for warning in result.warnings:
        warn(warning)
    _show(result, output)
    if output is OutputFormat.TABLE:
        after_search(result, store)


def _require_finite(option: str, value: float | None) -> None:
    if value is not None and not isfinite(value):
        raise UsageError(f"{option} {value:g}: should be a finite number", f"leave out {option}, or give one")


def _platform(name: str | None, resume: str | None, location: str | None) -> PlatformProfile:
    """The platform of a search: as named, else the study's own, else by the rule of all commands."""
    from xstage_tune.devices.platform_choice import choose_platform
    from xstage_tune.search.journal import studied_platform
    from xstage_tune.store.facade import Store

    if name is not None or resume is None:
        return choose_platform(name, notify)
    with Store.open(location, create=False) as store:
        return studied_platform(store.studies.to_resume(resume))


def _studied_request(
    study_id: str, platform: str | None, options: dict[str, Any], location: str | None
) -> tuple[str, SearchRequest]:
    """The id of a study and what it was begun with, but for what is given; resuming refuses what differs."""
    from xstage_tune.platforms.loader import load_platform
    from xstage_tune.search.journal import studied_platform, studied_workload
    from xstage_tune.search.request import SearchRequest
    from xstage_tune.store.facade import Store

    with Store.open(location, create=False) as store:
        study = store.studies.to_resume(study_id)
    profile = load_platform(platform) if platform is not None else studied_platform(study)
    own = {
        "objective": study.objective,
        "sampler": study.sampler,
        "seed": study.seed,
        "tolerance": study.space["tolerance"],
    }
    options["trials"] = options["trials"] or study.space.get("trials")  # older studies did not keep it
    return study.id, SearchRequest(studied_workload(study), profile, **(own | options))


def _search_one(
    request: SearchRequest, device: Device, store: Store, resume: str | None, retry_failed: bool
) -> SearchResult:
    from xstage_tune.base.progress import phase
    from xstage_tune.report.progress import SweepProgress
    from xstage_tune.search.driver import run_search
    from xstage_tune.search.sampling import require_sampler
    from xstage_tune.search.space import build_space
    from xstage_tune.simulator.launch_size import require_simulable

    require_sampler(request.sampler)
    with SweepProgress("searching") as progress:
        with phase("listing the configs"):
            space = build_space(request.workload, request.platform)
            require_simulable(space.configs, request.workload, request.platform)
        journal = _journal(request, space, device, store, resume, retry_failed)
        return run_search(request, space, device, journal, progress)


def _journal(
    request: SearchRequest,
    space: Space,
    device: Device,
    store: Store,
    resume: str | None,
    retry_failed: bool,
) -> Journal:
    from xstage_tune.search.journal import begin_study, resume_study

    if resume is None:
        return begin_study(store, request, space, device.identity)
    return resume_study(store, resume, request, device.identity, retry_failed=retry_failed)


def _run_suite(
    platform: str | None,
    device: str,
    trials: int | None,
    options: dict[str, Any],
    location: str | None,
    output: OutputFormat,
    force: bool,
) -> None:
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.devices.opener import open_kernels
    from xstage_tune.devices.platform_choice import choose_platform
    from xstage_tune.devices.spec import SEARCH
    from xstage_tune.report.progress import SweepProgress
    from xstage_tune.report.search_tables import suite_report
    from xstage_tune.report.tables import result_console
    from xstage_tune.search.sampling import require_sampler
    from xstage_tune.search.suite import DEFAULT_TRIALS, SuiteOptions, run_paper_84
    from xstage_tune.store.facade import Store

    profile = choose_platform(platform, notify)
    asked = SuiteOptions(trials or DEFAULT_TRIALS, **options)
    require_sampler(asked.sampler)
    with (
        closing(open_kernels(SEARCH.parse(device), profile, notify, force=force)) as kernels,
        Store.open(location) as store,
        SweepProgress("searching") as progress,
    ):
        result = run_paper_84(profile, kernels, asked, store, progress)
    if output is OutputFormat.JSON:
        emit_json(result.keys())
    else:
        result_console().print(suite_report(result))


def _show(result: SearchResult, output: OutputFormat) -> None:
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.report.search_tables import search_report
    from xstage_tune.report.tables import result_console

    if output is OutputFormat.JSON:
        emit_json(result.keys())
    else:
        result_console().print(search_report(result))
