"""A calibration as one self-contained HTML page: no scripts, no network."""

from __future__ import annotations

from xstage_tune.calibration.result import CalibrationResult
from xstage_tune.report.calibration_tables import platform_tables
from xstage_tune.report.page import Block, render_page
from xstage_tune.report.panels import calibration_figure


def render_html(result: CalibrationResult) -> str:
    """The page of ``result``: the four panels, findings, and every table."""
    figure = calibration_figure(result)
    return render_page(figure.title, calibration_blocks(result))


def calibration_blocks(result: CalibrationResult) -> tuple[Block, ...]:
    """The parts of that page."""
    return (
        Block(figure=calibration_figure(result)),
        Block(findings=result.findings, tables=platform_tables(result.platform)),
    )
