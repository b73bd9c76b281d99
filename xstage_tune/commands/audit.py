"""``audit``: will a workload's kernel stall on a platform, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.base.errors import FindingError, UsageError
from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.commands._options import (
    FormatOption,
    OutputFormat,
    PlatformOption,
    SetOption,
    StoreOption,
    config_option,
    the_only,
    workload_option,
)
from xstage_tune.commands._runs import notify
from xstage_tune.commands._spans import BurstOption, FromOption, only_timeline, require_source

if TYPE_CHECKING:
    from xstage_tune.audit.run import BurstTest
    from xstage_tune.families.config import KernelConfig


def audit(
    workload: Annotated[str | None, workload_option("Workload to audit.")] = None,
    platform: PlatformOption = None,
    config: Annotated[str, config_option("Kernel config; study:latest works too.")] = "default",
    overrides: SetOption = None,
    store: StoreOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 when the verdict is to reshape the kernel.")
    ] = False,
    closed_forms: Annotated[
        bool,
        typer.Option("--closed-forms", help="Simulate no launch, even where the bounds do not settle it."),
    ] = False,
    burst_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="In place of a workload: what each producer stores in a burst, e.g. 32KiB.",
        ),
    ] = None,
    producers: Annotated[
        int | None, typer.Option(min=1, help="SMs that store together.", show_default="all SMs")
    ] = None,
    gap_us: Annotated[
        float | None,
        typer.Option(min=0, help="Microseconds of work without remote stores between two bursts."),
    ] = None,
    stores: Annotated[
        StoreFlavour | None,
        typer.Option(help="Register stores of 16 bytes, or bulk copies.", show_default="the platform's"),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES", help="burst-bytes=8KiB,32KiB, producers=8,33,66,132 or gap-us=1,2,4."
        ),
    ] = None,
    source: FromOption = None,
    burst: BurstOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Test a kernel's bursts against what the platform drains and holds, and say what to change.

    Of a workload, or of any kernel by its numbers: --burst-bytes, --producers, --gap-us and --stores. Of
    imported spans, --from takes the producers and the median gap.

    Closed forms, and no GPU. Where a bound is violated, or loads wait behind stores, a workload's launch is
    simulated too, and decides. Either verdict is an answer and exits 0, unless --strict.
    """
    numbers = {"--burst-bytes": burst_bytes, "--producers": producers, "--gap-us": gap_us, "--stores": stores}
    numbers["--from"] = source
    require_source(source, burst)
    given = [name for name, value in numbers.items() if value is not None]
    if (given or sweep) and workload is not None:
        option = (*given, "--sweep")[0]
        raise UsageError(f"{option} stands in place of --workload", "leave one of them out")
    if given or sweep:
        if overrides or config != "default":
            raise UsageError("bursts by their numbers take no --config or --set", "leave them out")
        if source is not None:
            from xstage_tune.spans.bursts import imported_bursts
            from xstage_tune.store.facade import Store

            with Store.open(store, create=False) as kept:
                recorded = only_timeline(imported_bursts(kept, source, burst or [])[1])
            producers = recorded.producers if producers is None else producers
            gap_us = recorded.median_gap_ns / 1e3 if gap_us is None else gap_us
        _audit_numbers(platform, burst_bytes, producers, gap_us, stores, sweep, strict, output)
        return
    if workload is None:
        raise UsageError(
            "give --workload, or the numbers of your own kernel",
            "xstage-tune workloads list; or --burst-bytes 32KiB --gap-us 4",
        )
    from xstage_tune.audit.run import audit as run_audit
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.devices.platform_choice import choose_platform
    from xstage_tune.families.workload_files import load_workload
    from xstage_tune.report.audit_tables import audit_json, audit_report
    from xstage_tune.report.tables import result_console

    result = run_audit(
        load_workload(workload, overrides or ()),
        choose_platform(platform, notify),
        _chosen(config, store),
        simulate=not closed_forms,
    )
    if output is OutputFormat.JSON:
        emit_json(audit_json(result, overrides or ()))
    else:
        result_console().print(audit_report(result, overrides or ()))
    if strict and result.verdict == "reshape":
        raise FindingError(
            f"{result.workload.name} on {result.platform.name} exposes its remote stores: {_why(result)}",
            result.actions[0].text if result.actions else "",
        )


def _audit_numbers(
    platform: str | None,
    burst_bytes: str | None,
    producers: int | None,
    gap_us: float | None,
    stores: StoreFlavour | None,
    sweep: list[str] | None,
    strict: bool,
    output: OutputFormat,
) -> None:
    """The audit of bursts in place of a workload."""
    from xstage_tune.audit.numbers import audit_bursts, given_bursts, sweep_bursts
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.devices.platform_choice import choose_platform
    from xstage_tune.platforms.queries import preferred_flavour
    from xstage_tune.report.audit_tables import bursts_json
    from xstage_tune.report.bursts_tables import bursts_report, sweep_json, sweep_report
    from xstage_tune.report.tables import result_console

    swept = the_only(sweep, "--sweep")
    key = swept.partition("=")[0].strip() if swept else ""
    if burst_bytes is None and key == "burst-bytes":
        burst_bytes = "1"  # each value of the sweep takes its place
    if gap_us is None and key == "gap-us":
        gap_us = 0.0
    if burst_bytes is None or gap_us is None:
        missing = "--burst-bytes" if burst_bytes is None else "--gap-us"
        raise UsageError(f"{missing} is missing", "for example --burst-bytes 32KiB --gap-us 4")
    profile = choose_platform(platform, notify)
    given = given_bursts(
        burst_bytes,
        profile.gpu.sm_count if producers is None else producers,
        gap_us,
        stores or preferred_flavour(profile),
    )
    if swept is not None:
        points = sweep_bursts(profile, given, swept)
        tests = points.tests
        if output is OutputFormat.JSON:
            emit_json(sweep_json(points))
        else:
            result_console().print(sweep_report(points))
    else:
        tests = (audit_bursts(profile, given),)
        if output is OutputFormat.JSON:
            emit_json(bursts_json(tests[0]))
        else:
            result_console().print(bursts_report(tests[0]))
    if strict and (bad := [test for test in tests if test.verdict == "reshape"]):
        raise FindingError(
            f"given bursts on {profile.name} expose their stores: {_why(bad[0])}", bad[0].actions[0].text
        )


def _why(result: BurstTest) -> str:
    """What the verdict to reshape rests on."""
    finite = result.finite
    bounds = {"rate": result.rate_ok, "capacity": result.capacity_ok}
    violated = " and ".join(name for name, ok in bounds.items() if not ok)
    reasons = [f"it violates the {violated} bound"] if violated else []
    if finite is not None:
        reasons.append(f"they take {100 * finite.exposed_part.value:.1f}% of the simulated launch")
    return "; ".join(reasons)


def _chosen(choice: str, store: str | None) -> KernelConfig | None:
    """What ``--config`` names; None for the default."""
    from xstage_tune.families.config_choice import is_file_choice, study_of
    from xstage_tune.families.config_files import load_config

    if is_file_choice(choice):
        return load_config(Path(choice))
    if (study := study_of(choice)) is None:
        return None
    from xstage_tune.search.journal import stored_result
    from xstage_tune.store.facade import Store

    with Store.open(store) as kept:
        return stored_result(kept, study).best.config
