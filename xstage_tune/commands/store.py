"""``store path|info|check``: where results are kept, what is there, and whether it is whole."""

from __future__ import annotations

import typer

from xstage_tune.commands._options import FormatOption, OutputFormat, StoreOption
from xstage_tune.errors import StoreError

app = typer.Typer(
    help="The store of runs: where it is, what it holds, whether it is whole.", no_args_is_help=True
)


@app.command("path")
def path_command(store: StoreOption = None, output: FormatOption = OutputFormat.TABLE) -> None:
    """Print the file or URL of the store, without opening it."""
    from xstage_tune.report.emit import emit_json
    from xstage_tune.store.location import resolve_location

    location = str(resolve_location(store))
    if output is OutputFormat.JSON:
        emit_json({"location": location})
    else:
        print(location)


@app.command("info")
def info_command(store: StoreOption = None, output: FormatOption = OutputFormat.TABLE) -> None:
    """Count what the store holds."""
    from xstage_tune.report.emit import emit_json
    from xstage_tune.report.format import byte_count
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
    """Check the database and decode every chunk; exit 4 naming what is damaged."""
    from xstage_tune.report.emit import emit_json
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


def _print_table(title: str, *rows: tuple[str, str]) -> None:
    from xstage_tune.report.tables import Column, TableData, render_table, result_console

    result_console().print(render_table(TableData(title, (Column("what"), Column("value")), rows)))
