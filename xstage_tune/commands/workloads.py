"""``workloads list|show|new|path``: the layers that can be audited and tuned."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.commands._completion import workload_names
from xstage_tune.commands._help import GroupOfOwnFiles
from xstage_tune.commands._new import (
    NameArgument,
    NewFileOption,
    as_argument,
    found_by,
    show_written,
    target_of,
)
from xstage_tune.commands._options import FormatOption, OutputFormat, SetOption
from xstage_tune.commands._runs import warn
from xstage_tune.commands._targets import ForceOption
from xstage_tune.errors import UsageError

if TYPE_CHECKING:
    from xstage_tune.report.tables import TableData
    from xstage_tune.workloads.schema import AttentionWorkload, MoeWorkload, Workload

app = typer.Typer(
    cls=GroupOfOwnFiles, help="Workload profiles: MoE layers and Ulysses attentions.", no_args_is_help=True
)


@app.command("list")
def list_command(output: FormatOption = OutputFormat.TABLE) -> None:
    """List the shipped workloads and your own; a broken file is named on stderr and left out."""
    from xstage_tune.report.emit import emit_json
    from xstage_tune.report.tables import render_table, result_console
    from xstage_tune.workloads.loader import list_workloads, load_workload

    found: dict[str, Workload] = {}
    for name in list_workloads():
        try:
            found[name] = load_workload(name)
        except UsageError as error:
            warn(error.message)
    if output is OutputFormat.JSON:
        emit_json({"workloads": [{**profile.model_dump(), "name": name} for name, profile in found.items()]})
    else:
        result_console().print(render_table(_list_table(found)))


@app.command()
def show(
    workload: Annotated[
        str, typer.Argument(metavar="NAME|FILE.toml", autocompletion=workload_names, help="Workload to show.")
    ],
    overrides: SetOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show one workload, with its overrides applied and its tokens per expert and rank."""
    from xstage_tune.report.emit import emit_json
    from xstage_tune.report.tables import render_table, result_console
    from xstage_tune.workloads.loader import load_workload

    profile = load_workload(workload, overrides or ())
    if output is OutputFormat.JSON:
        emit_json({"workload": profile.model_dump(exclude_none=True), "derived": _derived(profile)})
    else:
        result_console().print(render_table(_show_table(profile)))


class KindChoice(StrEnum):
    """``--kind``."""

    MOE = "moe"
    ATTENTION = "attention"


@app.command()
def new(
    name: NameArgument,
    kind: Annotated[KindChoice, typer.Option(help="A MoE layer or a Ulysses attention.")] = KindChoice.MOE,
    output: NewFileOption = None,
    force: ForceOption = False,
) -> None:
    """Write a commented template of a workload of your own, which loads as it is."""
    from xstage_tune.files import write_text
    from xstage_tune.workloads.loader import list_workloads, user_workloads_dir
    from xstage_tune.workloads.template import workload_template

    text = workload_template(found_by(name), kind.value)
    path = target_of(name, output, user_workloads_dir(), list_workloads(), force)
    write_text(path, text, force=force)
    show_written(path, f"xstage-tune workloads show {as_argument(name, output)}")


@app.command("path")
def path_command() -> None:
    """Print the folder of your own workloads: what is in it is found by name."""
    from xstage_tune.workloads.loader import user_workloads_dir

    print(user_workloads_dir())


def _derived(profile: Workload) -> dict[str, object]:
    """What follows from a profile, under stable names."""
    from xstage_tune.workloads import routing
    from xstage_tune.workloads.schema import MoeWorkload

    if isinstance(profile, MoeWorkload):
        return {
            "assignments": profile.assignments,
            "group_tokens": profile.group_tokens,
            "local_experts": profile.local_experts,
            "rank_imbalance": routing.rank_imbalance(profile),
            "remote_fraction": profile.combine_remote_fraction,
            "tokens_per_expert": routing.tokens_per_expert(profile),
            "tokens_per_rank_received": routing.tokens_per_rank_received(profile),
        }
    return {
        "local_heads": profile.local_heads,
        "remote_fraction": profile.output_remote_fraction,
        "rows_per_rank": profile.rows_per_rank,
    }


def _list_table(found: dict[str, Workload]) -> TableData:
    from xstage_tune.report.tables import Column, TableData
    from xstage_tune.workloads.loader import user_workloads_dir

    columns = (Column("name"), Column("shape"), Column("tokens"), Column("description"))
    rows = [(name, _shape(w), _tokens(w), w.description) for name, w in found.items()]
    notes = (f"yours: {user_workloads_dir()} (xstage-tune workloads new NAME)",)
    return TableData("Workloads", columns, tuple(rows), notes)


def _show_table(profile: Workload) -> TableData:
    from xstage_tune.report.tables import Column, TableData
    from xstage_tune.workloads.schema import MoeWorkload

    rows = [("shape", _shape(profile)), ("tokens", _tokens(profile))]
    rows += _moe_rows(profile) if isinstance(profile, MoeWorkload) else _attention_rows(profile)
    rows.append(("source", profile.source or "not stated"))
    title = f"{profile.name}: {profile.description}" if profile.description else profile.name
    return TableData(title, (Column("quantity"), Column("value")), tuple(rows))


def _moe_rows(layer: MoeWorkload) -> list[tuple[str, str]]:
    from xstage_tune.report.format import factor
    from xstage_tune.workloads import routing

    per_expert = routing.tokens_per_expert(layer)
    return [
        ("precision", layer.precision),
        ("experts per rank", f"{layer.local_experts} of {layer.experts}, EP {layer.ep_degree}"),
        ("routing", _routing(layer)),
        ("tokens per expert", f"{per_expert.min():,} to {per_expert.max():,}"),
        ("busiest rank over mean", factor(routing.rank_imbalance(layer))),
        ("remote share of Combine", f"{layer.combine_remote_fraction:.1%}"),
    ]


def _attention_rows(attention: AttentionWorkload) -> list[tuple[str, str]]:
    return [
        ("dtype", attention.dtype),
        ("heads per rank", f"{attention.local_heads} of {attention.heads}, degree {attention.degree}"),
        ("rows per rank", f"{attention.rows_per_rank:,}"),
        ("remote share of output", f"{attention.output_remote_fraction:.1%}"),
    ]


def _shape(profile: Workload) -> str:
    from xstage_tune.workloads.schema import MoeWorkload

    if isinstance(profile, MoeWorkload):
        experts = f"{profile.experts} experts, top-{profile.top_k}"
        return f"hidden {profile.hidden}, intermediate {profile.intermediate}, {experts}"
    return f"{profile.heads} heads x {profile.head_dim}"


def _tokens(profile: Workload) -> str:
    from xstage_tune.workloads.schema import MoeWorkload

    if isinstance(profile, MoeWorkload):
        return f"{profile.tokens_per_rank:,} per rank"
    return f"{profile.tokens:,}"


def _routing(layer: MoeWorkload) -> str:
    if layer.routing.kind == "zipf":
        return f"zipf, alpha {layer.routing.alpha:g}, seed {layer.routing.seed or 0}"
    return layer.routing.kind
