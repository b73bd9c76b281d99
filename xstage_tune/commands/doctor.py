"""``doctor``: what this machine can do, and what is in the way."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.base.errors import DeviceError, FindingError
from xstage_tune.commands._options import FormatOption, OutputFormat, StoreOption

if TYPE_CHECKING:
    from xstage_tune.doctor.report import Check, DoctorReport
    from xstage_tune.report.tables import Columns, TableData


def doctor(
    device: Annotated[
        str,
        typer.Option(metavar="auto|cuda[:N]|replay[:NAME]", help="Device that a calibration is to run on."),
    ] = "auto",
    store: StoreOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Check what this machine can do: GPUs, driver, compiler, each path by a transfer, store, profiles.

    Exits 3 if the device asked for by name cannot run, and 1 if a check found something wrong.
    """
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.doctor.run import run_checks
    from xstage_tune.report.tables import print_tables

    report = run_checks(device, store, sys.argv)
    if output is OutputFormat.JSON:
        emit_json(report)
    else:
        print_tables(_table(report))
    failed = report.failed()
    if not report.runnable:
        reason = next((check for check in failed if check.name.startswith(("device", "path"))), None)
        cause = f": {reason.seen}" if reason else ""
        raise DeviceError(f"--device {device} cannot run{cause}", reason.advice if reason else "")
    if failed:
        raise FindingError(f"{failed[0].name}: {failed[0].seen}", failed[0].advice)


def _table(report: DoctorReport) -> TableData:
    from xstage_tune.report.tables import Column, table

    columns: Columns[Check] = (
        Column("check", lambda check: check.name),
        Column("status", lambda check: check.status),
        Column("seen", lambda check: check.seen),
        Column("what to do", lambda check: check.advice),
    )
    can = [f"can run: {command}" for command in report.commands] or ["no calibration can run here"]
    return table("What this machine can do", columns, report.checks, notes=can)
