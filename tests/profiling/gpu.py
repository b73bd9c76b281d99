"""A device that looks like a GPU to everything above the seam, with times from a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
import pytest

from tests.h200 import H200
from xstage_tune.base.errors import DeviceError
from xstage_tune.base.spans import LANE_DTYPE, SPAN_DTYPE, SpanKind, SpanTable
from xstage_tune.devices import opener
from xstage_tune.families.attention_a2a.budget import finishing_warpgroups
from xstage_tune.families.attention_a2a.spans import span_figures
from xstage_tune.families.attention_a2a.timing import (
    ATTENTIONS,
    AttentionLaunch,
    AttentionOutcome,
    Implementation,
    ProfileCase,
)
from xstage_tune.families.profiled import CheckFigures, ProfiledLaunch, ReplayFigures
from xstage_tune.launches.device import DeviceDescription, GpuState, LaunchInfo, Outcome, Verification

#: 1,024 tokens of 4 local heads: 32 tiles of 128 rows.
SMALL = ("--workload", "fa-a2a/paper", "--set", "tokens=1024")
#: What an implementation of T_FA = 100 us takes.
TIMES_US: dict[Implementation, float] = {
    "attention": 100.0,
    "all-to-all": 20.0,
    "serial-direct": 120.0,
    "serial-copy": 125.0,
    "serial-permute": 150.0,
    "fused": 105.0,
    "fused-received": 107.0,
    "attention-recording": 101.0,
    "fused-recording": 109.2,
}
Q_LOOP_NS, WAIT_NS, LOCAL_ISSUE_NS, REMOTE_ISSUE_NS = 9000, 100, 600, 1500


def lanes(count: int, ticks: int) -> np.ndarray:
    """Lanes whose clocks tick at 1 GHz: a tick is a nanosecond."""
    rows = np.zeros(count, LANE_DTYPE)
    rows["timer_begin_ns"], rows["timer_end_ns"] = 1000, 1000 + ticks
    rows["tick_end"] = ticks
    rows["lane"] = np.arange(count)
    return rows


def spans_of(case: ProfileCase, *, remote: bool, ctas: int = 132) -> SpanTable:
    """Every tile of a case with the same spans; the second warpgroup runs 50 ns behind the first."""
    tiles, splits = case.heads * -(-case.tokens // case.config.block_m), case.config.kv_splits
    teams = min(ctas // splits, tiles)
    ctas, groups = teams * splits, finishing_warpgroups(case.config)
    issue_ns = REMOTE_ISSUE_NS if remote else LOCAL_ISSUE_NS
    rows = []
    for lane in range(ctas * groups):
        begin = 50 * (lane % groups)
        for index in range(len(range(lane // groups // splits, tiles, teams))):
            for kind, length in (
                (SpanKind.MAINLOOP, Q_LOOP_NS),
                (SpanKind.STAGING_STALL, WAIT_NS),
                (SpanKind.ISSUE, issue_ns),
            ):
                rows.append((begin, length, index, lane, kind, lane % groups))
                begin += length
    spans = np.array(rows, SPAN_DTYPE)
    table = lanes(ctas * groups, int((spans["begin_ticks"] + spans["duration_ticks"]).max()))
    table["recorded"] = np.bincount(spans["lane"], minlength=ctas * groups)
    return SpanTable(spans, table)


class ScriptedProfiles:
    """An H200 whose implementations take :data:`TIMES_US`.

    Args:
        after, happening: what happens before which launch.
        wrong: the implementation whose output is wrong.
        refuses: what a first launch of a case raises.
        throttled: whether clocks are held down.
        seconds: that each launch takes of wall time.
        description: of the GPU.
    """

    identity = "NVIDIA H200, kernels 0123456789ab"
    kinds = (ATTENTIONS.name,)

    def __init__(
        self,
        *,
        after: int = -1,
        happening: Callable[[], None] = lambda: None,
        wrong: str | None = None,
        refuses: DeviceError | None = None,
        throttled: bool = False,
        seconds: float = 0.0,
        description: DeviceDescription = H200,
    ) -> None:
        self.left, self.happening = after, happening
        self.wrong, self.refuses, self.throttled, self.seconds = wrong, refuses, throttled, seconds
        self._description = description
        self.asked: list[tuple[str, str, str]] = []
        self.in_turn: list[tuple[str, ...]] = []
        self.labels: list[str] = []
        self.closed = False
        self._replays = 0

    def describe(self) -> DeviceDescription:
        return self._description

    def label_launches(self, run_id: str) -> None:
        self.labels.append(run_id)

    def run(self, launches: Iterable[Any]) -> Iterator[Any]:
        for launch in launches:
            if self.refuses is not None:
                raise self.refuses
            if self.left == 0:
                self.happening()
            self.left -= 1
            self.asked.append((launch.case.label, launch.implementation, launch.what))
            time.sleep(self.seconds)
            yield {"check": self._check, "replay": self._replay, "spans": self._record}[launch.what](launch)

    def close(self) -> None:
        self.closed = True

    def _check(self, launch: AttentionLaunch) -> AttentionOutcome:
        wrong = launch.implementation == self.wrong
        error = (nan if wrong else 0.002) if launch.implementation == "attention" else None
        figures = CheckFigures(error, "token 7 of rank 0, head 2: not written" if wrong else "")
        return Outcome(launch, figures, self._info(launch), Verification(4096, 256 if wrong else 0))

    def _replay(self, launch: AttentionLaunch) -> AttentionOutcome:
        if launch.place == 0:
            self.in_turn.append(launch.in_turn)
        self._replays += 1
        time_ns = 1e3 * TIMES_US[launch.implementation] + self._replays % 7
        return Outcome(launch, ReplayFigures(launches=40, time_ns=time_ns), self._info(launch))

    def _record(self, launch: AttentionLaunch) -> AttentionOutcome:
        remote = launch.implementation == "fused"
        table = spans_of(launch.case, remote=remote)
        return Outcome(
            launch, span_figures(table, launch.case, remote=remote), self._info(launch), table=table
        )

    def _info(self, launch: ProfiledLaunch[Any, Any]) -> LaunchInfo:
        reasons = ("sw_power_cap",) if self.throttled else ()
        state = GpuState(1980, 3201, 500.0, 50, reasons)
        return LaunchInfo(
            kernel=launch.implementation,
            kernel_sha256="00",
            registers=168,
            spill_bytes=0,
            shared_bytes=200_000,
            timer_tick_ns=32,
            elapsed_ns=1,
            started_at="2026-11-29T12:00:00.000000+00:00",
            before=state,
            after=replace(state, temperature_c=51),
            producers=132,
        )


def use(monkeypatch: pytest.MonkeyPatch, device: ScriptedProfiles) -> ScriptedProfiles:
    """Let ``--device cuda`` open ``device``."""
    monkeypatch.setattr(opener, "open_cuda", lambda *_: device)
    return device
