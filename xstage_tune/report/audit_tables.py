"""An audit as JSON and as tables: every number with its basis and origin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from operator import itemgetter
from typing import Any

from rich.console import RenderableType

from xstage_tune.audit.finite_run import MOST_EXPOSED
from xstage_tune.audit.run import Audit, BurstTest
from xstage_tune.base.number_format import byte_count, duration, percent, rate, share
from xstage_tune.estimates.figures import Figure
from xstage_tune.estimates.schedule import SchedulePrediction
from xstage_tune.families.advice import Action
from xstage_tune.families.architecture import compute_of, unmeasured_compute
from xstage_tune.families.config_files import config_keys
from xstage_tune.families.estimate import Quantity, Show
from xstage_tune.report.sentences import latency_note, workload_sentence
from xstage_tune.report.tables import Column, Columns, TableData, number, pairs, render_report, table


def audit_json(audit: Audit, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """An audit under stable keys: plain numbers, and ``basis`` by their dotted key.

    Args:
        overrides: the ``key=value`` texts that were applied to the workload's profile.
    """
    return {
        "workload": audit.workload.name,
        "compute_origin": compute_of(audit.platform).origin,
        "workload_keys": audit.workload.model_dump(mode="json", exclude_none=True),
        "workload_overrides": list(overrides),
        "kind": audit.workload.kind,
        "config": config_keys(audit.config),
        "config_given": audit.config_given,
        "interleaving_suffices": _interleaving_suffices(audit),
        "d_knee_rows": None,
        "converged_tokens": None,
        **bursts_json(audit),
    }


def bursts_json(test: BurstTest) -> dict[str, Any]:
    """The part of it that bursts alone make."""
    keys = {
        "rate_bound": {
            "ok": test.rate_ok,
            "injection_bytes_per_s": test.predicted[test.schedule].injection_bytes_per_s,
            "drain_bytes_per_s": test.burst.drain_bytes_per_s,
        },
        "capacity_bound": {
            "ok": test.capacity_ok,
            "peak_outstanding_bytes": test.burst.peak_outstanding_bytes,
            "capacity_bytes": test.burst.capacity_bytes,
        },
        "finite_run": test.finite,
        "predicted": test.predicted,
        "actions": tuple(_action_keys(action) for action in test.actions),
        "rejected": tuple(_action_keys(action) for action in test.rejected),
        **{key: quantity.figure for key, quantity in _quantities_of(test).items()},
    }
    basis: dict[str, dict[str, str]] = {}
    return {
        "platform": test.platform.name,
        "schedule": test.schedule,
        "producers": test.burst.producers,
        "verdict": test.verdict,
        "design_test_ok": test.design_test_ok,
        "not_simulated": test.not_simulated,
        "shared_room_bytes": None,
        "operand_wait_ns": None,
        **_plain(keys, "", basis),
        "basis": basis,
    }


def _action_keys(action: Action) -> dict[str, Any]:
    config = None if action.config is None else config_keys(action.config)
    return {
        "kind": action.kind,
        "limit": action.limit,
        "text": action.text,
        "config": config,
        "saves_ns": action.saves_ns,
    }


def audit_report(audit: Audit, overrides: Sequence[str] = ()) -> RenderableType:
    """All of an audit for the terminal, what was audited and the verdict first.

    Args:
        overrides: the ``key=value`` texts that were applied to the workload's profile.
    """
    return render_report((_with_workload(verdict_table(audit), audit, overrides), *basis_tables(audit)))


def basis_tables(test: BurstTest) -> tuple[TableData, TableData]:
    """What a verdict rests on: the quantities, and what is predicted of each schedule."""
    return _quantities(test), _predictions(test)


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


def _quantities_of(audit: BurstTest) -> dict[str, Quantity]:
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
    source = "given config" if audit.config_given else "default config"
    title = f"{audit.workload.name} on {audit.platform.name}"
    rows, sections = verdict_rows(audit)
    return pairs(title, rows, ("design test", f"{source}: {audit.config.label}"), sections=sections)


def verdict_rows(audit: BurstTest) -> tuple[list[tuple[str, str]], frozenset[int]]:
    """The rows of a verdict, and where its sections begin."""
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
    for action in (*audit.actions, *audit.rejected):
        assumed = f" ({action.limit.basis.label})" if action.limit else ""
        rows.append((action.kind.replace("_", " "), action.text + assumed))
    return rows, sections


def _finite_run(audit: BurstTest) -> Iterator[tuple[str, str]]:
    """What the simulated launch exposes; and why the verdict is another than the bounds'."""
    finite = audit.finite
    if finite is not None:
        words = (
            f"simulated, remote stores make the launch {duration(finite.residual_ns.value)} longer, "
            f"{share(finite.exposed_part.value)} of {duration(finite.latency_ns.value)}; up to "
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
    words = workload_sentence(audit.workload)
    if overrides:
        words += f" Overridden: {', '.join(overrides)}."
    sections = frozenset({1, *(index + 1 for index in table.sections)})
    return replace(table, rows=(("workload", words), *table.rows), sections=sections)


def _operand_loads(audit: BurstTest) -> list[tuple[str, str]]:
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


def _quantities(audit: BurstTest) -> TableData:
    columns: Columns[Quantity] = (
        Column("quantity", lambda one: one.name),
        number("value", lambda one: one.show(one.figure.value)),
        Column("basis", lambda one: one.figure.basis.label),
        Column("origin", lambda one: one.figure.origin.split(". ")[0]),
    )
    return table("What it rests on", columns, _quantities_of(audit).values())


def _predictions(audit: BurstTest) -> TableData:
    """A column a schedule: what is predicted of it, and of an issuer that waits for completion."""
    launch, steady = tuple(_launch_rows(audit)), _steady(audit)
    sender = " on the sender" if audit.detail.kernel_ends_when_issued else ""
    own: Columns[_Predicted] = (
        _figure("gap G", lambda p: p.gap_ns),
        Column("rate bound", lambda one: _held(one[1].rate_ok)),
        _figure("issue T_iss at G", lambda p: p.issue_ns),
        _figure("remote-store span T_RS", lambda p: p.span_ns),
        _figure(steady.format("stall dt of a tile"), lambda p: p.stall_ns),
        _figure(steady.format(f"residual{sender}"), lambda p: p.residual_ns),
        _figure(steady.format(f"hiding ratio{sender}"), lambda p: p.hiding_ratio, share),
    )
    coupled: Columns[_Predicted] = (
        _figure("completion-coupled period", lambda p: p.completion_coupled.period_ns),
        _figure("completion-coupled stall dt of a tile", lambda p: p.completion_coupled.stall_ns),
        _figure("completion-coupled residual", lambda p: p.completion_coupled.residual_ns),
        _figure("completion-coupled hiding ratio", lambda p: p.completion_coupled.hiding_ratio, share),
    )
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
        f"{latency_note(audit.platform)}",
        *audit.detail.footnotes(),
    )
    rows: Columns[_Predicted] = (Column("predicted", itemgetter(0)), *launch, *own, *coupled)
    sections = {len(launch), len(launch) + len(own)} - {0}
    return table("Predicted", rows, audit.predicted.items(), notes=notes).transposed(sections=sections)


_Predicted = tuple[str, SchedulePrediction]


def _figure(
    name: str, of: Callable[[SchedulePrediction], Figure | None], show: Show = duration
) -> Column[_Predicted]:
    def cell(one: _Predicted) -> str:
        figure = of(one[1])
        return show(figure.value) if figure else "none"

    return number(name, cell)


def _launch_rows(audit: BurstTest) -> Iterator[Column[_Predicted]]:
    """What the simulated launch of the audited schedule exposes, which decides."""
    if audit.finite is None:
        return
    hiding = audit.finite.hiding_ratio
    yield _of_schedule("launch: residual", audit, duration(audit.finite.residual_ns.value))
    yield _of_schedule("launch: hiding ratio", audit, share(hiding.value) if hiding else "none")


def _of_schedule(name: str, audit: BurstTest, cell: str) -> Column[_Predicted]:
    return Column(name, lambda one: cell if one[0] == audit.schedule else None)


def _steady(audit: BurstTest) -> str:
    """How rows of the closed forms are named where the verdict rests on more than they know."""
    if audit.finite is not None:
        return "steady state: {}"
    left_out = audit.burst.operand_wait_ns and audit.burst.operand_wait_ns.value > 0
    return "{}, if no operand load waits" if left_out else "{}"


def _finite_notes(audit: BurstTest) -> Iterator[str]:
    """That a launch is not the steady state, in its numbers."""
    if audit.finite is not None:
        yield (
            "a launch is finite, and its CTAs drift apart: simulated, those that compute wait "
            f"{duration(audit.finite.waits_ns.value)} for remote stores, and until all have arrived E_res is "
            f"{duration(audit.finite.residual_ns.value)}"
        )
