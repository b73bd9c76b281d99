"""``audit``: will a workload's kernel stall on a platform, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.base.errors import FindingError
from xstage_tune.commands._options import (
    FormatOption,
    OutputFormat,
    PlatformOption,
    SetOption,
    StoreOption,
    config_option,
    workload_option,
)
from xstage_tune.commands._runs import notify

if TYPE_CHECKING:
    from xstage_tune.audit.run import Audit
    from xstage_tune.families.config import KernelConfig


def audit(
    workload: Annotated[str, workload_option("Workload to audit.")],
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
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Test a kernel's bursts against what the platform drains and holds, and say what to change.

    Closed forms, and no GPU. Where a bound is violated, or loads wait behind stores, a launch is simulated
    too, and decides. Either verdict is an answer and exits 0, unless --strict.
    """
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


def _why(result: Audit) -> str:
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
