"""``store path|info|check|salvage|list|show|rm``: where results are, what is there, whether it is whole."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from xstage_tune.base.errors import StoreError, UsageError
from xstage_tune.base.limits import ROWS
from xstage_tune.commands._completion import kept_ids
from xstage_tune.commands._options import FormatOption, OutputFormat, StoreOption, number

app = typer.Typer(
    help="The store of runs: where it is, what it holds, whether it is whole.", no_args_is_help=True
)


class KindChoice(StrEnum):
    """``--kind``."""

    STUDY = "study"
    RUN = "run"
    CALIBRATE = "calibrate"
    EMULATE = "emulate"
    PROFILE = "profile"
    IMPORT = "import"
    EMULATE_SPANS = "emulate-spans"


class StateChoice(StrEnum):
    """``--state``."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    STALE = "stale"


@app.command("path")
def path_command(store: StoreOption = None, output: FormatOption = OutputFormat.TABLE) -> None:
    """Print the file or URL of the store, without opening it."""
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.store.location import resolve_location

    location = str(resolve_location(store))
    if output is OutputFormat.JSON:
        emit_json({"location": location})
    else:
        print(location)


@app.command("info")
def info_command(store: StoreOption = None, output: FormatOption = OutputFormat.TABLE) -> None:
    """Count what the store holds."""
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.base.number_format import byte_count
    from xstage_tune.store.facade import Store

    with Store.open(store, create=False) as opened:
        summary = opened.summary()
    if output is OutputFormat.JSON:
        emit_json(summary)
        return
    runs = ", ".join(f"{count} {status}" for status, count in summary.runs.items())
    _print_table(
        summary.location,
        ("schema revision", summary.revision),
        ("size", byte_count(summary.size_bytes)),
        ("runs", runs or "none"),
        ("latest run", summary.latest_run or "none"),
        ("launches", f"{summary.launches:,}"),
        ("spans", f"{summary.spans:,}"),
        ("studies", f"{summary.studies:,}"),
    )


@app.command("check")
def check_command(store: StoreOption = None, output: FormatOption = OutputFormat.TABLE) -> None:
    """Check the database, verify every row and decode every chunk; exit 4 naming what is damaged."""
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.store.facade import Store

    with Store.open(store, create=False) as opened:
        report = opened.check()
    if output is OutputFormat.JSON:
        emit_json(report)
    else:
        _print_table(
            report.location,
            ("launches", f"{report.launches:,}"),
            ("chunks decoded", f"{report.chunks:,}"),
            *(("damaged", problem) for problem in report.problems),
        )
    if report.problems:
        more = f" and {len(report.problems) - 1} more" if len(report.problems) > 1 else ""
        raise StoreError(
            f"store {report.location} is damaged: {report.problems[0]}{more}", "measure the named runs again"
        )


@app.command("salvage")
def salvage_command(
    target: Annotated[Path, typer.Argument(metavar="TO.db", help="New store to copy to.")],
    store: StoreOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Copy what is whole of a damaged store to a new one, and name what is not."""
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.store.location import resolve_location
    from xstage_tune.store.salvage import salvage

    made = salvage(resolve_location(store), target)
    if output is OutputFormat.JSON:
        emit_json(made)
        return
    _print_table(
        made.location,
        *((f"{table} rows", f"{count:,}") for table, count in made.copied.items()),
        *(("not copied", what) for what in made.lost),
    )


@app.command("list")
def list_command(
    kind: Annotated[
        KindChoice | None, typer.Option(help="Only studies, only runs, or only runs of one command.")
    ] = None,
    state: Annotated[
        StateChoice | None, typer.Option(help="Only those; stale: the process died.", show_default="all")
    ] = None,
    workload: Annotated[
        str, typer.Option("--workload", "-w", metavar="TEXT", help="Part of the workload's name.")
    ] = "",
    platform: Annotated[
        str, typer.Option("--platform", "-p", metavar="TEXT", help="Part of the platform's name.")
    ] = "",
    suite: Annotated[
        str | None, typer.Option(metavar="ID", help="The studies of one suite.", show_default="all")
    ] = None,
    limit: Annotated[int | None, number(ROWS, "Only so many of the newest.", "all")] = None,
    store: StoreOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """List runs and studies, newest first."""
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.report.store_tables import entries_table
    from xstage_tune.report.tables import print_tables
    from xstage_tune.store.catalogue import Wanted
    from xstage_tune.store.facade import Store

    wanted = Wanted(kind and kind.value, state and state.value, workload, platform, suite)
    with Store.open(store, create=False) as opened:
        found = opened.entries(wanted)[:limit]
        location = opened.location
    if output is OutputFormat.JSON:
        emit_json({"location": location, "entries": found})
    else:
        print_tables(entries_table(location, found))


@app.command("show")
def show_command(
    entry_id: Annotated[
        str,
        typer.Argument(
            metavar="ID|latest",
            autocompletion=kept_ids,
            help="Run or study; latest: the last one finished of either, latest-any: the last one begun.",
        ),
    ],
    store: StoreOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show all that is known of one run or study."""
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.report.store_tables import details_table
    from xstage_tune.report.tables import print_tables
    from xstage_tune.store.facade import Store

    with Store.open(store, create=False) as opened:
        details = opened.details(entry_id)
    if output is OutputFormat.JSON:
        emit_json(details)
    else:
        print_tables(details_table(details))


@app.command("rm")
def rm_command(
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID", autocompletion=kept_ids, help="Runs and studies: xstage-tune store list."
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: StoreOption = None,
) -> None:
    """Remove runs and studies with all that is kept of them; exported files stay.

    Asks first. All of them are removed, or none: nothing that a living process writes is.
    """
    from xstage_tune.report.store_tables import entry_line
    from xstage_tune.store.facade import Store
    from xstage_tune.store.studies import LATEST, LATEST_ANY

    if named := {LATEST, LATEST_ANY}.intersection(ids):
        raise UsageError(
            f"store rm takes ids, not '{named.pop()}'", "xstage-tune store show latest has the id"
        )

    with Store.open(store, create=False) as opened:
        found = [opened.details(entry_id).entry for entry_id in dict.fromkeys(ids)]
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError("store rm asks, and there is no terminal to answer on", "add --yes")
            print(f"to be removed from {opened.location}:", file=sys.stderr)
            for entry in found:
                print(f"  {entry_line(entry)}", file=sys.stderr)
            if not typer.confirm("Remove them?", err=True):
                print("xstage-tune: nothing was removed", file=sys.stderr)
                return
        opened.remove(ids)
    for entry in found:
        print(f"removed {entry.kind} {entry.id}")


def _print_table(title: str, *rows: tuple[str, str]) -> None:
    from xstage_tune.report.tables import pairs, print_tables

    print_tables(pairs(title, rows))
