"""``search``: find the config of a fused kernel, with a bound that says how much better one could be."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from xstage_tune.base.errors import ExitCode, UsageError
from xstage_tune.base.limits import SEED, TIMEOUT_S, TOLERANCE, TRIALS, Objective, SamplerName
from xstage_tune.commands._completion import study_ids
from xstage_tune.commands._next_steps import after_search
from xstage_tune.commands._options import (
    FormatOption,
    OutputFormat,
    PlatformOption,
    SetOption,
    StoreOption,
    number,
    workload_option,
)
from xstage_tune.commands._runs import notify, warn
from xstage_tune.commands._targets import OtherGpuOption, check_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xstage_tune.launches.device import Device
    from xstage_tune.search.request import SearchOptions, SearchRequest
    from xstage_tune.search.result import SearchResult
    from xstage_tune.store.facade import Store

_TRIALS = (
    "Most configs to evaluate: the default, today's heuristics, then the best expected. Those of a study's "
    "earlier runs count."
)
_MOST_TRIALS = "100; 24 in a suite; all if exhaustive, or if few and simulated"
_TOLERANCE = "Stop once the best is within this fraction of the bound."


def search(
    workload: Annotated[str | None, workload_option("Workload to tune for.")] = None,
    space: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.toml",
            help="The space of a kernel of your own, in place of a workload; init-space writes one.",
        ),
    ] = None,
    suite: Annotated[
        Literal["paper-84"] | None,
        typer.Option(help="Tune for every workload of a suite instead; each search is kept as a study."),
    ] = None,
    platform: PlatformOption = None,
    device: Annotated[
        str,
        typer.Option(
            help="auto (the fused kernels where there are some and a GPU, else the simulator), cuda[:N], "
            "simulator, emulate[:N] (skeletons on a GPU), or replay[:NAME|FILE.xstune] (a space on record)."
        ),
    ] = "auto",
    trials: Annotated[int | None, number(TRIALS, _TRIALS, _MOST_TRIALS)] = None,
    timeout: Annotated[float | None, number(TIMEOUT_S, "Most seconds to search.", "none")] = None,
    seed: Annotated[int | None, number(SEED, "Of the sampler; the same seed, the same result.", "0")] = None,
    sampler: Annotated[
        SamplerName | None,
        typer.Option(
            help="Who proposes configs beside the model's ranking; auto: tpe for what is measured or has no "
            "closed form, else none. exhaustive evaluates all.",
            show_default="auto",
        ),
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
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="With --resume: do not wait for a process on another host that was heard of minutes ago: it "
            "is gone, as a pod that was restarted.",
        ),
    ] = False,
    objective: Annotated[
        Objective | None,
        typer.Option(
            help="Time of the launch, or time that its Tensor Core roles wait; in no slower launch.",
            show_default="latency",
        ),
    ] = None,
    tolerance: Annotated[float | None, number(TOLERANCE, _TOLERANCE, "0.01")] = None,
    overrides: SetOption = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="Search a layer at each of these sizes, a study each, all of one bundle; --set KEY=N,N,... "
            "does so for any key.",
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Keep what is measured for replay (.xstune); with --sampler exhaustive all of it."),
    ] = None,
    store: StoreOption = None,
    output: FormatOption = OutputFormat.TABLE,
    force: OtherGpuOption = False,
) -> None:
    """Search tile sizes, schedule and staging of a fused kernel, guided by bounds and the X-Stage model."""
    from xstage_tune.devices.opener import open_kernels
    from xstage_tune.devices.recorded_kernels import KernelRecorder
    from xstage_tune.devices.spec import SEARCH
    from xstage_tune.launches.recording import SUFFIXES, new_recording
    from xstage_tune.search.ladder import ladder_of
    from xstage_tune.search.request import SearchOptions
    from xstage_tune.store.facade import Store

    if space is not None:
        if workload is not None:
            raise UsageError("--space stands in place of --workload", "leave one of them out")
        if Path(space).is_dir():
            raise UsageError(
                f"--space {space} is a folder", f"name the file in it: {Path(space, 'space.toml')}"
            )
        workload = space
    if retry_failed and resume is None:
        raise UsageError("--retry-failed is of a study that is taken up again", "give --resume ID too")
    if take_over and resume is None:
        raise UsageError("--take-over is of a study that is taken up again", "give --resume ID too")
    if (workload is not None and suite is not None) or not (workload or suite or resume):
        raise UsageError("give either --workload or --suite, or --space", "xstage-tune workloads list")
    asked = {
        "objective": objective, "sampler": sampler, "seed": seed, "trials": trials, "timeout_s": timeout,
        "tolerance": tolerance,
    }  # fmt: skip
    given = {name: value for name, value in asked.items() if value is not None}
    if suite is not None:
        if overrides or resume or timeout is not None or objective is not None:
            raise UsageError(f"--suite {suite} takes no --set, --resume, --timeout or --objective")
        if tokens or record:
            raise UsageError(f"--suite {suite} takes no --tokens or --record")
        _run_suite(platform, device, SearchOptions.read(given, "the command line"), store, output, force)
        return
    if workload is None and (overrides or tokens):
        raise UsageError(
            "--resume without --workload takes the study's own workload, and no --set or --tokens",
            "leave them out, or give --workload too",
        )
    steps = ladder_of(overrides or (), tokens)
    if len(steps) > 1:
        if workload is None or resume or record is not None:
            raise UsageError("sizes are searched with --workload, without --resume and --record")
        _run_ladder(workload, steps, platform, device, given, store, output, force)
        return
    request, study = _request(workload, steps[0], platform, resume, given, store)
    if record is not None:
        check_target(record, SUFFIXES["search"], force=force, option="--record")
    layer = request.workload
    with ExitStack() as opened:
        kernels = open_kernels(
            SEARCH.parse(device), request.platform, notify, kind=layer.kind, workload=layer, force=force
        )
        opened.callback(kernels.close)
        kept = opened.enter_context(Store.open(store, create=study is None))
        if record is not None:
            of = {"workload": layer.model_dump(mode="json", exclude_none=True)}
            recording = opened.enter_context(
                new_recording(record, "search", kernels.describe(), kernels.identity, of, force=force)
            )
            kernels = KernelRecorder(kernels, recording)
        result = _search_one(request, kernels, kept, study, retry_failed, take_over)
    for warning in result.warnings:
        warn(warning)
    _show(result, output)
    if output is OutputFormat.TABLE:
        after_search(result, store)
    if result.faults:
        raise typer.Exit(ExitCode.FINDING)


def _request(
    workload: str | None,
    overrides: Sequence[str],
    platform: str | None,
    resume: str | None,
    given: dict[str, Any],
    location: str | None,
) -> tuple[SearchRequest, str | None]:
    """The request, and the id of the study that it takes up again.

    What is not named is the study's own; the platform of a new one is chosen by the rule of all commands.
    Resuming refuses what differs.
    """
    from xstage_tune.devices.platform_choice import choose_platform
    from xstage_tune.families.workload_files import load_workload
    from xstage_tune.search.journal import studied_platform, studied_request
    from xstage_tune.search.request import SearchRequest
    from xstage_tune.store.facade import Store

    if workload is not None:
        given = given | {"workload": load_workload(workload, overrides)}
    if platform is not None or resume is None:
        given = given | {"platform": choose_platform(platform, notify)}
    if resume is None:
        return SearchRequest(**given), None
    with Store.open(location, create=False) as store:
        study = store.studies.to_resume(resume)
    if workload is None:
        return studied_request(study, **given), study.id
    return SearchRequest(**({"platform": studied_platform(study)} | given)), study.id


def _search_one(
    request: SearchRequest,
    device: Device,
    store: Store,
    study: str | None,
    retry_failed: bool,
    take_over: bool,
) -> SearchResult:
    from xstage_tune.base.progress import phase
    from xstage_tune.families.binding import family_of
    from xstage_tune.report.progress import SweepProgress
    from xstage_tune.search.driver import run_search
    from xstage_tune.search.journal import begin_study, resume_study
    from xstage_tune.search.sampling import require_sampler
    from xstage_tune.search.space import build_space
    from xstage_tune.simulator.launch_size import require_simulable

    require_sampler(request.sampler)
    family = family_of(request.workload)
    if request.objective not in family.objectives:
        raise UsageError(
            f"--objective {request.objective}: nobody tells it of '{request.workload.name}'",
            f"leave it out, or give {' or '.join(family.objectives)}",
        )
    with SweepProgress("searching") as progress:
        with phase("listing the configs"):
            space = build_space(request.workload, request.platform)
            if family.simulated:
                require_simulable(space.configs, request.workload, request.platform)
        if study is None:
            journal = begin_study(store, request, space, device.identity)
        else:
            journal = resume_study(
                store, study, request, device.identity, retry_failed=retry_failed, take_over=take_over
            )
        return run_search(request, space, device, journal, progress)


def _run_ladder(
    workload: str,
    steps: Sequence[tuple[str, ...]],
    platform: str | None,
    device: str,
    given: dict[str, Any],
    location: str | None,
    output: OutputFormat,
    force: bool,
) -> None:
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.devices.opener import open_kernels
    from xstage_tune.devices.platform_choice import choose_platform
    from xstage_tune.devices.spec import SEARCH
    from xstage_tune.families.workload_files import load_workload
    from xstage_tune.report.progress import SweepProgress
    from xstage_tune.report.search_tables import ladder_report
    from xstage_tune.report.tables import result_console
    from xstage_tune.search.ladder import run_ladder, settings_of
    from xstage_tune.search.request import SearchRequest
    from xstage_tune.search.sampling import require_sampler
    from xstage_tune.store.facade import Store

    spec = SEARCH.parse(device)
    if spec.kind == "replay":
        raise UsageError("a space on record is of one size", "search one size on it, or several elsewhere")
    profile = choose_platform(platform, notify)
    layers = [load_workload(workload, step) for step in steps]
    requests = [SearchRequest(workload=layer, platform=profile, **given) for layer in layers]
    require_sampler(requests[0].sampler)
    with (
        closing(
            open_kernels(spec, profile, notify, kind=layers[0].kind, workload=layers[0], force=force)
        ) as kernels,
        Store.open(location) as store,
        SweepProgress("searching") as progress,
    ):
        asked = list(zip(settings_of(steps), requests, strict=True))
        result = run_ladder(asked, kernels, store, progress)
    for step in result.steps:
        for warning in step.result.warnings if step.result else ():
            warn(f"{step.setting}: {warning}")
    if output is OutputFormat.JSON:
        emit_json(result.keys())
    else:
        result_console().print(ladder_report(result))
    if result.faults:
        raise typer.Exit(ExitCode.FINDING)


def _run_suite(
    platform: str | None,
    device: str,
    options: SearchOptions,
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
    from xstage_tune.search.suite import run_paper_84
    from xstage_tune.store.facade import Store

    profile = choose_platform(platform, notify)
    require_sampler(options.sampler)
    with (
        closing(open_kernels(SEARCH.parse(device), profile, notify, kind="moe", force=force)) as kernels,
        Store.open(location) as store,
        SweepProgress("searching") as progress,
    ):
        result = run_paper_84(profile, kernels, options, store, progress)
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
