"""An audit as JSON and as tables: every number with its basis and origin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from xstage_tune.audit.finite_run import MOST_EXPOSED
from xstage_tune.audit.run import Audit
from xstage_tune.base.number_format import ABSENT, byte_count, duration, percent, rate
from xstage_tune.estimates.figures import Figure
from xstage_tune.estimates.schedule import SchedulePrediction
from xstage_tune.families.architecture import compute_of, unmeasured_compute
from xstage_tune.families.config_files import config_keys
from xstage_tune.families.estimate import Quantity, Show
from xstage_tune.report.study_words import latency_words, workload_words
from xstage_tune.report.tables import Column, TableData, render_table

#: Rows of an attention's predictions that leave out what drains behind the last store.
_ON_THE_SENDER = ("residual", "hiding ratio")
#: Rows that say what the stores expose.
_EXPOSED = ("stall dt of a tile", *_ON_THE_SENDER)


def audit_json(audit: Audit, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """An audit under stable keys: plain numbers, and ``basis`` by their dotted key.

    Args:
        overrides: the ``key=value`` texts that were applied to the workload's profile.
    """
    test = {
        "rate_bound": {
            "ok": audit.rate_ok,
            "injection_bytes_per_s": audit.predicted[audit.schedule].injection_bytes_per_s,
            "drain_bytes_per_s": audit.burst.drain_bytes_per_s,
        },
        "capacity_bound": {
            "ok": audit.capacity_ok,
            "peak_outstanding_bytes": audit.burst.peak_outstanding_bytes,
            "capacity_bytes": audit.burst.capacity_bytes,
        },
        "finite_run": audit.finite,
        "predicted": audit.predicted,
        "actions": audit.actions,
        **{key: quantity.figure for key, quantity in _quantities_of(audit).items()},
    }
    basis: dict[str, dict[str, str]] = {}
    return {
        "workload": audit.workload.name,
        "compute_origin": compute_of(audit.platform).origin,
        "workload_keys": audit.workload.model_dump(mode="json", exclude_none=True),
        "workload_overrides": list(overrides),
        "platform": audit.platform.name,
        "kind": audit.workload.kind,
        "config": config_keys(audit.config),
        "config_given": audit.config_given,
        "schedule": audit.schedule,
        "producers": audit.burst.producers,
        "verdict": audit.verdict,
        "design_test_ok": audit.design_test_ok,
        "not_simulated": audit.not_simulated,
        "interleaving_suffices": _interleaving_suffices(audit),
        "d_knee_rows": None,
        "converged_tokens": None,
        "shared_room_bytes": None,
        "operand_wait_ns": None,
        **_plain(test, "", basis),
        "basis": basis,
    }


def audit_report(audit: Audit, overrides: Sequence[str] = ()) -> RenderableType:
    """All of an audit for the terminal, what was audited and the verdict first.

    Args:
        overrides: the ``key=value`` texts that were applied to the workload's profile.
    """
    parts = [_with_workload(verdict_table(audit), audit, overrides), _quantities(audit), _predictions(audit)]
    return Group(*(part for table in parts for part in (render_table(table), Text())))


def _plain(value: Any, key: str, basis: dict[str, dict[str, str]]) -> Any:
    """``value`` with numbers for figures, whose basis and origin are noted in ``basis``."""
    if isinstance(value, Figure):
        basis[key] = {"basis": value.basis.label, "origin": value.origin}
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(item, f"{key}.{name}" if key else name, basis) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item, f"{key}[{index}]", basis) for index, item in enumerate(value)]
    return value


def _interleaving_suffices(audit: Audit) -> bool | None:
    """Equation 14; None for attention."""
    return audit.predicted["interleaved"].rate_ok if "interleaved" in audit.predicted else None


def _quantities_of(audit: Audit) -> dict[str, Quantity]:
    """The audit's own quantities by key: those of its burst, then those of its family."""
    burst = audit.burst
    named = {
        "burst_bytes": Quantity(burst.burst_bytes, "burst of a producer, B", byte_count),
        "volume_bytes": Quantity(burst.volume_bytes, f"volume of {burst.producers} producers, V", byte_count),
        "drain_bytes_per_s": Quantity(burst.drain_bytes_per_s, "drain rate, R", rate),
        "free_issue_ns": Quantity(burst.free_issue_ns, "issue without backpressure, T0", duration),
        "drain_ns": Quantity(burst.drain_ns, "drain of a burst, V/R", duration),
        "gap_ns": Quantity(audit.gap_ns, f"gap of {audit.schedule}, G", duration),
        "recovery_gap_ns": Quantity(burst.recovery_gap_ns, "recovery gap, G*", duration),
        "peak_outstanding_bytes": Quantity(
            burst.peak_outstanding_bytes, "peak outstanding, q_peak", byte_count
        ),
        "capacity_bytes": Quantity(burst.capacity_bytes, "capacity, Q", byte_count),
    }
    if burst.shared_room_bytes and burst.operand_wait_ns:
        named["shared_room_bytes"] = Quantity(burst.shared_room_bytes, "of it, shared by all SMs", byte_count)
        named["operand_wait_ns"] = Quantity(burst.operand_wait_ns, "operands behind a burst", duration)
    return named | dict(audit.detail.quantities())


def verdict_table(audit: Audit) -> TableData:
    """The design test: the verdict, both bounds with their numbers, and what to change."""
    burst, gap = audit.burst, duration(audit.gap_ns.value)
    asked = audit.predicted[audit.schedule].injection_bytes_per_s
    recovery = duration(burst.recovery_gap_ns.value)
    rows = [
        ("verdict", audit.verdict),
        *_finite_run(audit),
        (
            "rate bound",
            f"{_held(audit.rate_ok)}: {asked.origin} is {rate(asked.value)} "
            f"of R = {rate(burst.drain_bytes_per_s.value)}; G is {gap}, G* is {recovery}",
        ),
        (
            "capacity bound",
            f"{_held(audit.capacity_ok)}: q_peak is {byte_count(burst.peak_outstanding_bytes.value)} "
            f"of Q = {byte_count(burst.capacity_bytes.value)}",
        ),
    ]
    rows += [*_operand_loads(audit), *audit.detail.remarks()]
    sections = frozenset({1, len(rows)})
    for action in audit.actions:
        assumed = f" ({action.limit.basis.label})" if action.limit else ""
        rows.append((action.kind.replace("_", " "), action.text + assumed))
    source = "given config" if audit.config_given else "default config"
    return TableData(
        f"{audit.workload.name} on {audit.platform.name}",
        (Column("design test"), Column(f"{source}: {audit.config.label}")),
        tuple(rows),
        sections=sections,
    )


def _finite_run(audit: Audit) -> Iterator[tuple[str, str]]:
    """What the simulated launch exposes; and why the verdict is another than the bounds'."""
    finite = audit.finite
    if finite is not None:
        words = (
            f"simulated, remote stores make the launch {duration(finite.residual_ns.value)} longer, "
            f"{_share(finite.exposed_part.value)} of {duration(finite.latency_ns.value)}; up to "
            f"{percent(100 * MOST_EXPOSED, 0)} count as hidden"
        )
        yield "finite run", words
    if audit.not_simulated:
        yield "finite run", f"not simulated: {audit.not_simulated}; the verdict is that of the closed forms"
    if audit.verdict == "piggyback" and not audit.design_test_ok:
        yield (
            "design test",
            "violated, yet its stores are hidden: it is sufficient, not necessary, being of full bursts that "
            "stay aligned",
        )
    elif audit.verdict == "reshape" and audit.design_test_ok:
        yield "design test", "holds, but leaves out the operand loads that wait behind remote stores"


def _with_workload(table: TableData, audit: Audit, overrides: Sequence[str]) -> TableData:
    """The design test below a row of what it was made of, overridden keys named."""
    words = workload_words(audit.workload)
    if overrides:
        words += f" Overridden: {', '.join(overrides)}."
    sections = frozenset({1, *(index + 1 for index in table.sections)})
    return replace(table, rows=(("workload", words), *table.rows), sections=sections)


def _operand_loads(audit: Audit) -> list[tuple[str, str]]:
    """What the equations leave out: loads wait behind the stores that are outstanding."""
    wait = audit.burst.operand_wait_ns
    if not (wait and wait.value > 0):
        return []
    words = (
        f"wait up to {duration(wait.value)} behind a burst, less what is loaded ahead: all that is "
        "outstanding drains in front of them. The predictions below leave that out; search and its "
        "simulation do not"
    )
    return [("operand loads", words)]


def _held(ok: bool) -> str:
    return "holds" if ok else "violated"


def _quantities(audit: Audit) -> TableData:
    rows = (
        (one.name, one.show(one.figure.value), one.figure.basis.label, _first_sentence(one.figure.origin))
        for one in _quantities_of(audit).values()
    )
    columns = (Column("quantity"), Column("value", "right"), Column("basis"), Column("origin"))
    return TableData("What it rests on", columns, tuple(rows))


def _first_sentence(text: str) -> str:
    return text.split(". ")[0]


def _predictions(audit: Audit) -> TableData:
    def row(name: str, show: Show, of: Callable[[SchedulePrediction], Figure | None]) -> tuple[str, ...]:
        figures = (of(prediction) for prediction in audit.predicted.values())
        return (name, *(show(figure.value) if figure else "none" for figure in figures))

    rows = [
        row("gap G", duration, lambda p: p.gap_ns),
        ("rate bound", *(_held(prediction.rate_ok) for prediction in audit.predicted.values())),
        row("issue T_iss at G", duration, lambda p: p.issue_ns),
        row("remote-store span T_RS", duration, lambda p: p.span_ns),
        row("stall dt of a tile", duration, lambda p: p.stall_ns),
        row("residual", duration, lambda p: p.residual_ns),
        row("hiding ratio", _share, lambda p: p.hiding_ratio),
        row("period", duration, lambda p: p.completion_coupled.period_ns),
        row("stall dt of a tile", duration, lambda p: p.completion_coupled.stall_ns),
        row("residual", duration, lambda p: p.completion_coupled.residual_ns),
        row("hiding ratio", _share, lambda p: p.completion_coupled.hiding_ratio),
    ]
    coupled = len(rows) - 4
    rows[coupled:] = [(f"completion-coupled {name}", *cells) for name, *cells in rows[coupled:]]
    if audit.detail.kernel_ends_when_issued:
        rows = [
            (f"{name} on the sender" if name in _ON_THE_SENDER else name, *cells) for name, *cells in rows
        ]
    launch_rows = tuple(_launch_rows(audit))
    rows = [*launch_rows, *((_steady(name, audit), *cells) for name, *cells in rows)]
    weakest = max(p.stall_ns.basis for p in audit.predicted.values())
    undefined = any(p.hiding_ratio is None for p in audit.predicted.values())
    notes = (
        f"steady state, of bursts that stay aligned; {weakest.label}",
        *filter(None, (unmeasured_compute(audit.platform),)),
        *_finite_notes(audit),
        *audit.detail.notes(),
        "hiding ratio: against a serial transfer of the same bytes at R"
        + ("; none where a burst drains faster than it is issued, V/R < T0" if undefined else ""),
        "completion-coupled: an issuer that waits until its stores are visible; equation 17 with "
        f"{latency_words()}",
        *audit.detail.footnotes(),
    )
    columns = (Column("predicted"), *(Column(name, "right") for name in audit.predicted))
    return TableData(
        "Predicted",
        columns,
        tuple(rows),
        notes,
        frozenset({len(launch_rows), len(launch_rows) + coupled}) - {0},
    )


def _launch_rows(audit: Audit) -> Iterator[tuple[str, ...]]:
    """What the simulated launch of the audited schedule exposes, which decides."""
    if audit.finite is None:
        return
    hiding = audit.finite.hiding_ratio
    for name, cell in (
        ("launch: residual", duration(audit.finite.residual_ns.value)),
        ("launch: hiding ratio", _share(hiding.value) if hiding else "none"),
    ):
        yield (name, *(cell if schedule == audit.schedule else ABSENT for schedule in audit.predicted))


def _steady(name: str, audit: Audit) -> str:
    """The name of a row of the closed forms; says so where the verdict rests on more than they know."""
    if name.removesuffix(" on the sender") not in _EXPOSED:
        return name
    if audit.finite is not None:
        return f"steady state: {name}"
    left_out = audit.burst.operand_wait_ns and audit.burst.operand_wait_ns.value > 0
    return f"{name}, if no operand load waits" if left_out else name


def _finite_notes(audit: Audit) -> Iterator[str]:
    """That a launch is not the steady state, in its numbers."""
    if audit.finite is not None:
        yield (
            "a launch is finite, and its CTAs drift apart: simulated, those that compute wait "
            f"{duration(audit.finite.waits_ns.value)} for remote stores, and until all have arrived E_res is "
            f"{duration(audit.finite.residual_ns.value)}"
        )


def _share(value: float) -> str:
    return percent(100 * value, 1)
