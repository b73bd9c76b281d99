"""The audit of bursts that are given as numbers, for programs and for the terminal; a sweep is drawn too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Group, RenderableType

from xstage_tune.audit.numbers import BurstSweep
from xstage_tune.audit.run import BurstTest
from xstage_tune.base.number_format import byte_count, duration, rate
from xstage_tune.families.given_bursts import GivenBursts
from xstage_tune.report.audit_tables import basis_tables, bursts_json, verdict_rows
from xstage_tune.report.figure import Axis, Drawing, Figure, Quantity
from xstage_tune.report.tables import Column, Columns, TableData, number, pairs, render_report, table
from xstage_tune.report.terminal_plot import TerminalPlot

_QUANTITIES: dict[str, Quantity] = {"burst-bytes": "bytes", "producers": "count", "gap-us": "duration_ns"}
_VALUES: dict[str, Callable[[GivenBursts], float]] = {
    "burst-bytes": lambda given: given.burst_bytes,
    "producers": lambda given: given.producers,
    "gap-us": lambda given: given.gap_ns,
}


def bursts_report(test: BurstTest) -> RenderableType:
    """The verdict on given bursts, and what it rests on."""
    burst = test.burst
    given = (
        f"{byte_count(burst.burst_bytes.value)} of each of {burst.producers} producers every "
        f"{duration(test.gap_ns.value)}, {burst.flavour}"
    )
    rows, sections = verdict_rows(test)
    verdict = pairs(f"given bursts on {test.platform.name}", rows, ("design test", given), sections=sections)
    return render_report((verdict, *basis_tables(test)))


def sweep_json(sweep: BurstSweep) -> dict[str, Any]:
    """The key that was swept, and the audit at each value."""
    return {"sweep": sweep.key, "points": [bursts_json(test) for test in sweep.tests]}


def sweep_report(sweep: BurstSweep) -> RenderableType:
    """A row a value, and a plot of what a burst takes to issue."""
    return Group(render_report((_sweep_table(sweep),)), TerminalPlot(_figure(sweep)))


def _sweep_table(sweep: BurstSweep) -> TableData:
    shown = dict(zip(map(id, sweep.tests), map(sweep.shown, sweep.given), strict=True))
    columns: Columns[BurstTest] = (
        number(_label(sweep), lambda one: shown[id(one)]),
        Column("verdict", lambda one: one.verdict),
        Column("rate", lambda one: "holds" if one.rate_ok else "violated"),
        Column("capacity", lambda one: "holds" if one.capacity_ok else "violated"),
        number("asked", lambda one: one.predicted[one.schedule].injection_bytes_per_s.value, rate),
        number("G*", lambda one: one.burst.recovery_gap_ns.value, duration),
        number("T_RS", lambda one: one.predicted[one.schedule].span_ns.value, duration),
        number("exposed", lambda one: one.predicted[one.schedule].issue_overhead_ns.value, duration),
        number("saturating", _saturating),
    )
    burst = sweep.tests[0].burst
    notes = (
        f"asked: V / (T0 + G), of R = {rate(burst.drain_bytes_per_s.value)}; exposed: of each T_RS, by "
        "backpressure; saturating: SMs that reach R with such bursts and no gap",
    )
    return table(f"given bursts on {sweep.tests[0].platform.name}", columns, sweep.tests, notes=notes)


def _label(sweep: BurstSweep) -> str:
    return sweep.key.removesuffix("-us").replace("-", " ")


def _saturating(test: BurstTest) -> str | None:
    quantity = test.detail.quantities().get("saturating_producers")
    return quantity.show(quantity.figure.value) if quantity else None


def _figure(sweep: BurstSweep) -> Figure:
    """T_RS and T0 over the swept number; where they part, bursts stall."""
    quantity = _QUANTITIES[sweep.key]
    x = np.array([_VALUES[sweep.key](given) for given in sweep.given])
    order = np.argsort(x)
    drawing = Drawing(Axis(_label(sweep), quantity, "linear"), Axis("time", "duration_ns", "linear"))
    span = np.array([test.predicted[test.schedule].span_ns.value for test in sweep.tests])
    free = np.array([test.burst.free_issue_ns.value for test in sweep.tests])
    drawing.add_explained("T_RS", "line", 0, x[order], span[order])
    drawing.add_explained("T0", "dashed", None, x[order], free[order])
    panel = drawing.panel("a", "Where T_RS leaves T0, bursts stall")
    return Figure(f"sweep of {panel.x.label}", sweep.tests[0].platform.name, (panel,))
