"""Self-contained HTML pages: text, figures with captions, tables; no scripts, no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from xstage_tune.base.text import printable
from xstage_tune.calibration.result import Finding
from xstage_tune.report.figure import Figure, Plate
from xstage_tune.report.svg import render_svg
from xstage_tune.report.tables import TableData, split_columns
from xstage_tune.report.typeset import typeset

#: Characters of a table that the page's width has room for, in any of its fonts.
_PAGE_COLUMNS = 136


@dataclass(frozen=True, slots=True)
class Block:
    """One part of a page, in this order: heading, paragraphs, findings, figure with its caption, tables.

    What is empty is left out. A caption is numbered as the page's next figure.
    """

    heading: str = ""
    paragraphs: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    figure: Figure | Plate | None = None
    caption: str = ""
    tables: tuple[TableData, ...] = ()


def render_page(title: str, blocks: Sequence[Block], lead: Sequence[str] = ()) -> str:
    """A page of ``blocks``; with a ``lead``, under a heading of its own."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # where only figures are wanted, no need

    templates = Environment(
        loader=PackageLoader("xstage_tune.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Figures are well-formed by construction; their texts are escaped there.
    templates.filters |= {
        "svg": lambda figure: Markup(render_svg(figure)),
        "typeset": _typeset,
        "fitted": lambda table: split_columns(table, _PAGE_COLUMNS),
    }
    templates.filters["printable"] = printable
    return templates.get_template("page.html").render(title=title, lead=lead, blocks=blocks)


def _typeset(text: str) -> Markup:
    """Text with the paper's symbols as HTML."""
    pieces = ((escape(piece), lowered) for piece, lowered in typeset(text))
    return Markup("").join(
        Markup("<sub>{}</sub>").format(piece) if lowered else piece for piece, lowered in pieces
    )
