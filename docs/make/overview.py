"""The picture of the README: the same tiles on one SM in two orders, and the stores on their way under each.

Drawn from the Burst-Gap model of a calibrated platform: stores fill the path until Q bytes are outstanding,
and leave it at R.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as Xml

import numpy as np

from xstage_tune.base.number_format import byte_count
from xstage_tune.model import burst_gap
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.queries import capacity_bytes, issue_ns
from xstage_tune.report.svg import add, stylesheet, write

_PLATFORM = "h200-peer"
_BURST_BYTES = 16 * 1024  # of one SM: a tile of 64 x 128 in bf16
_LINEAR1_NS, _LINEAR2_NS = 4000.0, 3000.0
_PAIRS = 4
_NS_PER_S = 1e9

_WIDTH, _LEFT, _RIGHT = 860.0, 86.0, 22.0
_LANE, _QUEUE = 34.0, 78.0  # heights
_HEADING, _PANEL = 42.0, 194.0  # from a panel's top to its lane; from one panel to the next
_TOP = 92.0
_COMPUTE, _STALL, _ISSUE, _QUEUE_INK = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Path:
    """K producers' bursts of V bytes on one path."""

    producers: int
    volume_bytes: float
    free_issue_ns: float  # T0
    bytes_per_ns: float  # R
    capacity_bytes: float  # Q

    @property
    def recovery_gap_ns(self) -> float:
        """G*."""
        return float(
            burst_gap.recovery_gap_ns(
                free_issue_ns=self.free_issue_ns,
                volume_bytes=self.volume_bytes,
                drain_bytes_per_s=self.bytes_per_ns * _NS_PER_S,
            )
        )


@dataclass(frozen=True, slots=True)
class Span:
    """What an SM does from when to when, in ns."""

    what: str  # linear-1, linear-2, issue or stall
    begin_ns: float
    end_ns: float


@dataclass(frozen=True, slots=True)
class Run:
    """Spans of one SM, and the bytes outstanding as a path through (ns, bytes)."""

    spans: tuple[Span, ...]
    outstanding: tuple[tuple[float, float], ...]

    @property
    def end_ns(self) -> float:
        return self.spans[-1].end_ns

    @property
    def stall_ns(self) -> float:
        return sum(span.end_ns - span.begin_ns for span in self.spans if span.what == "stall")


def calibrated_path() -> Path:
    """The path of the picture: all SMs of the platform."""
    platform = load_platform(_PLATFORM)
    producers = platform.gpu.sm_count
    return Path(
        producers=producers,
        volume_bytes=float(producers * _BURST_BYTES),
        free_issue_ns=float(issue_ns(platform, "st.v4", producers, np.array([float(_BURST_BYTES)]))[0]),
        bytes_per_ns=platform.drain.bytes_per_s / _NS_PER_S,
        capacity_bytes=float(capacity_bytes(platform, "st.v4", producers)),
    )


def run(order: Sequence[str], path: Path) -> Run:
    """Tiles in an order; each Linear-2 tile is followed by its burst, which all SMs store at once."""
    now, held = 0.0, 0.0
    spans: list[Span] = []
    outstanding = [(0.0, 0.0)]
    for tile in order:
        length = _LINEAR1_NS if tile == "linear-1" else _LINEAR2_NS
        spans.append(Span(tile, now, now + length))
        now, held = _drained(now, held, length, path, outstanding)
        if tile == "linear-2":
            now, held = _stored(now, held, path, spans, outstanding)
    _drained(now, held, held / path.bytes_per_ns, path, outstanding)
    return Run(tuple(spans), tuple(outstanding))


def _drained(
    now: float, held: float, length: float, path: Path, outstanding: list[tuple[float, float]]
) -> tuple[float, float]:
    empty = held / path.bytes_per_ns
    if empty < length:
        outstanding.append((now + empty, 0.0))
    left = max(0.0, held - path.bytes_per_ns * length)
    outstanding.append((now + length, left))
    return now + length, left


def _stored(
    now: float, held: float, path: Path, spans: list[Span], outstanding: list[tuple[float, float]]
) -> tuple[float, float]:
    """One burst: at its own rate while there is room, then at R."""
    offered = path.volume_bytes / path.free_issue_ns
    full = (path.capacity_bytes - held) / (offered - path.bytes_per_ns)
    spans.append(Span("issue", now, now + path.free_issue_ns))
    if full >= path.free_issue_ns:
        end, held = (
            now + path.free_issue_ns,
            held + path.volume_bytes - path.bytes_per_ns * path.free_issue_ns,
        )
    else:
        end = now + full + (path.volume_bytes - offered * full) / path.bytes_per_ns
        held = path.capacity_bytes
        outstanding.append((now + full, held))
        spans.append(Span("stall", now + path.free_issue_ns, end))
    outstanding.append((end, held))
    return end, held


def draw() -> str:
    """The picture as SVG."""
    path = calibrated_path()
    waves = run(["linear-1"] * _PAIRS + ["linear-2"] * _PAIRS, path)
    mixed = run(["linear-1", "linear-2"] * _PAIRS, path)
    last_ns = 1000.0 * np.ceil(max(one.outstanding[-1][0] for one in (waves, mixed)) / 1000.0)
    height = _TOP + 2 * _PANEL + 4
    root = Xml.Element("svg", {
        "xmlns": "http://www.w3.org/2000/svg", "role": "img", "viewBox": f"0 0 {_WIDTH:g} {height:g}",
        "width": f"{_WIDTH:g}", "height": f"{height:g}",
        "font-family": "Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif",
    })  # fmt: skip
    Xml.SubElement(root, "title").text = "The same tiles in two orders: in one their bursts stall"
    Xml.SubElement(root, "style").text = stylesheet() + _STYLE
    add(root, "rect", "page", x=0, y=0, width=_WIDTH, height=height, rx=6)
    title = "Stores to another GPU take nanoseconds to issue and microseconds to drain"
    write(root, title, 24, 34, "strong", size=18, weight=600)
    write(root, _subtitle(path), 24, 57, "text", size=13)
    gaps = (_LINEAR2_NS, _LINEAR1_NS + _LINEAR2_NS)
    _panel(root, _TOP, waves, path, last_ns,
           f"Gap of {_us(gaps[0])}, shorter than G* = {_us(path.recovery_gap_ns)}: "
           "the path is full, and the SM waits")  # fmt: skip
    _panel(root, _TOP + _PANEL, mixed, path, last_ns,
           f"Gap of {_us(gaps[1])}, longer than G*: "
           "the stores drain behind the next tiles, and cost T0 alone")  # fmt: skip
    _saved(root, waves, mixed, last_ns)
    _time_axis(root, _TOP + 2 * _PANEL - 12, last_ns)
    return Xml.tostring(root, encoding="unicode") + "\n"


_STYLE = (
    ".in{fill:#ffffff}.issue{stroke:none}.q{stroke-dasharray:5 4}.tick{stroke-width:1}"
    ".c0.bar{fill-opacity:0.9}.c0.soft{fill-opacity:0.42}.c5.area{fill-opacity:0.28}"
    "@media (prefers-color-scheme: dark){.in{fill:#0c1014}}"
)


def _subtitle(path: Path) -> str:
    return (
        f"{path.producers} SMs of an H200 store {byte_count(_BURST_BYTES)} each over NVLink: "
        f"T0 = {path.free_issue_ns:.0f} ns to issue, "
        f"V/R = {_us(path.volume_bytes / path.bytes_per_ns)} to drain at R = "
        f"{path.bytes_per_ns:.0f} GB/s"
    )


def _us(ns: float) -> str:
    return f"{ns / 1000:.1f}".removesuffix(".0") + " µs"


def _x(ns: float, last_ns: float) -> float:
    return _LEFT + ns / last_ns * (_WIDTH - _LEFT - _RIGHT)


def _panel(root: Xml.Element, top: float, one: Run, path: Path, last_ns: float, heading: str) -> None:
    group = add(root, "g", None)
    write(group, heading, 24, top + 8, "strong", size=14, weight=600)
    lane = top + _HEADING
    write(group, "one SM", _LEFT - 12, lane + _LANE / 2 + 5, "text", size=13, anchor="end")
    for span in one.spans:
        _block(group, span, lane, last_ns)
    _name_burst_and_gap(group, one, lane - 12, last_ns)
    _queue(group, lane + _LANE + 8, one, path, last_ns)


def _block(group: Xml.Element, span: Span, lane: float, last_ns: float) -> None:
    left, right = _x(span.begin_ns, last_ns), _x(span.end_ns, last_ns)
    css = {
        "linear-1": f"c{_COMPUTE} bar soft",
        "linear-2": f"c{_COMPUTE} bar",
        "issue": f"c{_ISSUE} bar",
        "stall": f"c{_STALL} bar",
    }[span.what]
    # A burst is a few pixels wide: it stands out of the lane to be seen.
    out = 5.0 if span.what == "issue" else 0.0
    add(
        group, "rect", css, x=left + 0.5, y=lane - out, width=right - left - 1, height=_LANE + 2 * out, rx=1.5
    )
    label = {"linear-1": "Linear-1", "linear-2": "Linear-2", "stall": "stall", "issue": ""}[span.what]
    if label:
        css = "strong" if span.what == "linear-1" else "in"
        size = 12.0 if right - left > 34 else 10.5
        write(group, label, (left + right) / 2, lane + _LANE / 2 + 4.5, css, size=size, anchor="middle",
              weight=600 if span.what == "stall" else None)  # fmt: skip


def _name_burst_and_gap(group: Xml.Element, one: Run, y: float, last_ns: float) -> None:
    """Over the lane: the first burst, and the work between it and the second."""
    first, second = [span for span in one.spans if span.what == "issue"][:2]
    begin, end = _x(first.end_ns, last_ns) + 2, _x(second.begin_ns, last_ns) - 1
    write(group, "burst", begin - 6, y + 3, "text", size=12, anchor="end")
    middle, half = (begin + end) / 2, 14.0
    for tip, inner, sign in ((begin, middle - half, 1), (end, middle + half, -1)):
        add(group, "path", "n", d=f"M{inner:.1f} {y:.1f}H{tip:.1f}m{4 * sign} -3l{-4 * sign} 3l{4 * sign} 3",
            fill="none", stroke_width="1.1")  # fmt: skip
    write(group, "gap", middle, y + 4, "text", size=12, anchor="middle")


def _queue(group: Xml.Element, top: float, one: Run, path: Path, last_ns: float) -> None:
    """Bytes outstanding under the lane, with Q as their limit."""
    bottom = top + _QUEUE
    room = 16.0  # above Q, for its label

    def y(held: float) -> float:
        return bottom - held / path.capacity_bytes * (_QUEUE - room)

    right = _WIDTH - _RIGHT
    outline = " ".join(f"{_x(ns, last_ns):.1f},{y(held):.1f}" for ns, held in one.outstanding)
    add(group, "polygon", f"c{_QUEUE_INK} area", points=f"{_LEFT:.1f},{bottom:.1f} {outline}")
    add(group, "polyline", f"c{_QUEUE_INK}", points=outline, fill="none", stroke_width="1.6",
        stroke_linejoin="round")  # fmt: skip
    add(group, "line", "n q", x1=_LEFT, y1=y(path.capacity_bytes), x2=right, y2=y(path.capacity_bytes),
        stroke_width="1.2")  # fmt: skip
    add(group, "line", "axis", x1=_LEFT, y1=bottom, x2=right, y2=bottom)
    write(group, f"Q = {path.capacity_bytes / 2**20:.1f} MiB, the most that may be outstanding", _LEFT + 6,
          y(path.capacity_bytes) - 5, "text", size=12)  # fmt: skip
    peak = max(range(len(one.outstanding)), key=lambda place: one.outstanding[place][1])
    last_peak = [p for p in one.outstanding if p[1] == one.outstanding[peak][1]][-1]
    write(group, "drains at R", _x(last_peak[0] + 2300, last_ns), y(0.72 * last_peak[1]), "text", size=12)
    middle = (top + room + bottom) / 2
    write(group, "stores on", _LEFT - 12, middle - 3, "text", size=13, anchor="end")
    write(group, "their way", _LEFT - 12, middle + 13, "text", size=13, anchor="end")


def _saved(root: Xml.Element, waves: Run, mixed: Run, last_ns: float) -> None:
    """How much earlier the second order has done the same tiles."""
    begin, end = _x(mixed.end_ns, last_ns), _x(waves.end_ns, last_ns)
    lane = _TOP + _PANEL + _HEADING
    saved = f"{_us(waves.end_ns - mixed.end_ns)} earlier"
    y = lane + _LANE / 2
    add(
        root,
        "path",
        "n",
        d=f"M{end:.1f} {y:.1f}H{begin + 5:.1f}m6 -4l-6 4l6 4",
        fill="none",
        stroke_width="1.4",
    )
    add(root, "line", "n q", x1=end, y1=_TOP + _HEADING + _LANE, x2=end, y2=lane + _LANE, stroke_width="1")
    write(root, saved, end + 7, y + 4.5, "strong", size=13, weight=600)


def _time_axis(root: Xml.Element, top: float, last_ns: float) -> None:
    step = 5000.0
    for number in range(int(last_ns // step) + 1):
        at = _x(number * step, last_ns)
        add(root, "line", "axis tick", x1=at, y1=top - 19, x2=at, y2=top - 15)
        label = f"{number * step / 1000:g}" + (" µs" if number == 0 else "")
        write(root, label, at, top, "text", size=12, anchor="middle")
