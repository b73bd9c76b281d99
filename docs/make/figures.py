"""Figures of the concept pages: the model's laws, and what runs on an H200 that come with the tool showed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from xstage_tune.base.number_format import byte_count, duration
from xstage_tune.model import burst_gap
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.queries import capacity_bytes, issue_ns
from xstage_tune.report.figure import Axis, Drawing, Figure, Floats, Panel
from xstage_tune.report.svg import render_svg

_PLATFORM = "h200-peer"
_BURSTS = (8 * 1024, 16 * 1024, 32 * 1024)


def draw() -> Iterator[tuple[str, str]]:
    """(name, SVG) of each figure."""
    yield "laws", render_svg(_laws())


def _laws() -> Figure:
    """Equations 3 and 7 of one calibrated platform, all SMs storing."""
    platform = load_platform(_PLATFORM)
    return Figure(
        title="When a burst waits",
        subtitle=f"all {platform.gpu.sm_count} SMs of {platform.gpu.name} over NVLink, platform {_PLATFORM}",
        panels=(_gap_panel(), _isolated_panel()),
    )


def _gap_panel() -> Panel:
    drawing = Drawing(Axis("gap G", "duration_ns", "linear"), Axis("issue time T_iss", "duration_ns", "log"))
    gap_ns = np.linspace(0.0, 14000.0, 561)
    for colour, burst in enumerate(_BURSTS):
        law = _law(burst)
        recovery = burst_gap.recovery_gap_ns(**law)
        label = f"B = {byte_count(burst)}: G* = {duration(float(recovery))}"
        drawing.add_explained(label, "line", colour, gap_ns, burst_gap.issue_ns(gap_ns=gap_ns, **law))
        drawing.add("G*", "corner", colour, np.array([float(recovery)]), np.array([law["free_issue_ns"]]))
    drawing.explain_marks(line="", corner="G*")
    return drawing.panel("a", "Periodic bursts: max(T0, V/R - G), equation 3")


def _isolated_panel() -> Panel:
    platform = load_platform(_PLATFORM)
    drawing = Drawing(
        Axis("burst volume V", "bytes", "log"), Axis("isolated issue time T_iss", "duration_ns", "log")
    )
    for colour, producers in enumerate((33, 66, platform.gpu.sm_count)):
        capacity = float(capacity_bytes(platform, "st.v4", producers))
        burst = np.geomspace(2048.0, 196608.0, 300)
        free = _free_issue_ns(producers, burst)
        issue = burst_gap.isolated_issue_ns(
            free_issue_ns=free,
            volume_bytes=producers * burst,
            drain_bytes_per_s=platform.drain.bytes_per_s,
            capacity_bytes=capacity,
        )
        label = f"K = {producers}: Q = {byte_count(capacity)}"
        drawing.add_explained(label, "line", colour, producers * burst, issue)
        knee = int(np.argmax(issue > free))
        drawing.add("knee", "corner", colour, producers * burst[knee : knee + 1], issue[knee : knee + 1])
    drawing.explain_marks(line="", corner="knee: from here on the burst waits")
    return drawing.panel("b", "One burst alone: max(T0, (V - Q)/R), equation 7")


def _law(burst_bytes: int) -> dict[str, float]:
    platform = load_platform(_PLATFORM)
    producers = platform.gpu.sm_count
    return {
        "free_issue_ns": float(_free_issue_ns(producers, np.array([float(burst_bytes)]))[0]),
        "volume_bytes": float(producers * burst_bytes),
        "drain_bytes_per_s": platform.drain.bytes_per_s,
    }


def _free_issue_ns(producers: int, burst_bytes: Floats) -> Floats:
    return issue_ns(load_platform(_PLATFORM), "st.v4", producers, burst_bytes)
