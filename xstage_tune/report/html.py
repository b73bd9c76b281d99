"""A calibration as one self-contained HTML page: no scripts, no network."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from xstage_tune.calibration.result import CalibrationResult
from xstage_tune.report.calibration_tables import platform_tables
from xstage_tune.report.panels import calibration_figure
from xstage_tune.report.svg import render_svg


def render_html(result: CalibrationResult) -> str:
    """The page of ``result``: findings, the four panels, and every table."""
    templates = Environment(
        loader=PackageLoader("xstage_tune.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    figure = calibration_figure(result)
    return templates.get_template("calibration.html").render(
        title=figure.title,
        subtitle=figure.subtitle,
        figure=Markup(render_svg(figure)),  # well-formed by construction; its texts are escaped there
        findings=result.findings,
        tables=platform_tables(result.platform),
    )
