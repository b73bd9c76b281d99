"""``import``: spans that another program recorded, into the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xstage_tune.base.text import printable
from xstage_tune.commands._next_steps import after_import
from xstage_tune.commands._options import FormatOption, OutputFormat, StoreOption


def _print_header_dir(wanted: bool) -> None:
    if wanted:
        from xstage_tune.spans.buffer import header_dir

        print(printable(str(header_dir())))
        raise typer.Exit


def import_spans(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files of spans; one run has all.")],
    header_dir: Annotated[  # noqa: ARG001 - its callback ends the command
        bool,
        typer.Option(
            "--header-dir",
            callback=_print_header_dir,
            is_eager=True,
            help="Print the folder of xstage/span.cuh, for a compiler's -I.",
        ),
    ] = False,
    store: StoreOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Take spans of your own kernel into the store, where report and trace show them.

    A buffer that a kernel filled by xstage/span.cuh, saved by xstage_tune.spans.save_buffer; an SQLite export
    of Nsight Systems (nsys export --type sqlite); a Chrome trace (.json, .json.gz), as PyTorch's profiler
    writes it.
    """
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.base.redaction import command_line
    from xstage_tune.report.imported_tables import imported_tables
    from xstage_tune.report.progress import SweepProgress
    from xstage_tune.report.tables import print_tables
    from xstage_tune.spans.importing import import_spans as keep_spans
    from xstage_tune.store.facade import Store

    with Store.open(store) as kept, SweepProgress("importing"):
        imported = keep_spans(files, kept, command_line())
    if output is OutputFormat.JSON:
        emit_json(imported.keys())
        return
    print_tables(*(imported_tables(one.about, one.table) for one in imported.timelines))
    print(f"run {imported.run_id}")
    after_import(imported.run_id, store)
