"""``workloads list|show|new|path``: the layers that can be audited and tuned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.base.errors import UsageError
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

if TYPE_CHECKING:
    from xstage_tune.families.workload import Workload
    from xstage_tune.report.tables import Columns, TableData

app = typer.Typer(
    cls=GroupOfOwnFiles, help="Workload profiles: MoE layers and Ulysses attentions.", no_args_is_help=True
)


@app.command("list")
def list_command(output: FormatOption = OutputFormat.TABLE) -> None:
    """List the shipped workloads and your own; a broken file is named on stderr and left out."""
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.families.workload_files import list_workloads, load_workload
    from xstage_tune.report.tables import print_tables

    found: dict[str, Workload] = {}
    for name in list_workloads():
        try:
            found[name] = load_workload(name)
        except UsageError as error:
            warn(error.message)
    if output is OutputFormat.JSON:
        emit_json({"workloads": [{**profile.model_dump(), "name": name} for name, profile in found.items()]})
    else:
        print_tables(_list_table(found))


@app.command()
def show(
    workload: Annotated[
        str, typer.Argument(metavar="NAME|FILE.toml", autocompletion=workload_names, help="Workload to show.")
    ],
    overrides: SetOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show one workload, with its overrides applied and its tokens per expert and rank."""
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.families.binding import family_of
    from xstage_tune.families.workload_files import load_workload
    from xstage_tune.report.tables import print_tables

    profile = load_workload(workload, overrides or ())
    if output is OutputFormat.JSON:
        emit_json(
            {
                "workload": profile.model_dump(exclude_none=True),
                "derived": family_of(profile).derived(profile),
            }
        )
    else:
        print_tables(_show_table(profile))


@app.command()
def new(
    name: NameArgument,
    kind: Annotated[
        str, typer.Option(help="Kind of layer: moe, attention, or that of an installed family.")
    ] = "moe",
    output: NewFileOption = None,
    force: ForceOption = False,
) -> None:
    """Write a commented template of a workload of your own, which loads as it is."""
    from xstage_tune.base.files import write_text
    from xstage_tune.families.registry import family_of_workload_kind
    from xstage_tune.families.workload_files import list_workloads, user_workloads_dir
    from xstage_tune.families.workload_template import workload_template

    family = family_of_workload_kind(kind)
    if family is not None and family.template_companions():
        raise UsageError(
            f"a workload of kind '{kind}' needs more files than one", "xstage-tune init-space FOLDER"
        )
    text = workload_template(found_by(name), kind)
    path = target_of(name, output, user_workloads_dir(), list_workloads(), force)
    write_text(path, text, force=force)
    show_written(path, f"xstage-tune workloads show {as_argument(name, output)}")


@app.command("path")
def path_command() -> None:
    """Print the folder of your own workloads: what is in it is found by name."""
    from xstage_tune.families.workload_files import user_workloads_dir

    print(user_workloads_dir())


def _list_table(found: dict[str, Workload]) -> TableData:
    from xstage_tune.families.binding import family_of
    from xstage_tune.families.workload_files import user_workloads_dir
    from xstage_tune.report.tables import Column, table

    columns: Columns[tuple[str, Workload]] = (
        Column("name", lambda named: named[0]),
        Column("shape", lambda named: family_of(named[1]).shape_words(named[1])),
        Column("tokens", lambda named: family_of(named[1]).tokens_words(named[1])),
        Column("description", lambda named: named[1].description),
    )
    notes = (f"yours: {user_workloads_dir()} (xstage-tune workloads new NAME)",)
    return table("Workloads", columns, found.items(), notes=notes)


def _show_table(profile: Workload) -> TableData:
    from xstage_tune.families.binding import family_of
    from xstage_tune.report.tables import pairs

    family = family_of(profile)
    rows = [
        ("shape", family.shape_words(profile)),
        ("tokens", family.tokens_words(profile)),
        *family.facts(profile),
        ("source", profile.source or "not stated"),
    ]
    title = f"{profile.name}: {profile.description}" if profile.description else profile.name
    return pairs(title, rows, ("quantity", "value"))
