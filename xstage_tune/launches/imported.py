"""Timelines that another program recorded, as launches of a run: spans by names of the user's."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from xstage_tune.base.spans import SpanTable
from xstage_tune.launches.device import LaunchInfo, LaunchKind, Outcome

#: What a file of spans is: a buffer of ``xstage/span.cuh``, or what other tools export.
SpanFormat = Literal["xstage", "nsight-systems", "chrome-trace"]
#: The kind of such a run in the store.
IMPORT = "import"
#: In place of a GPU's name, where no file says it.
UNKNOWN_GPU = "not told"


@dataclass(frozen=True, slots=True)
class ImportedSpans:
    """One timeline; also what the store keeps of it beside its spans.

    Args:
        source: name of the file.
        names: of spans, by their ``kind``, which has no other meaning here.
        lanes: what each lane is, in order.
        left_out: spans of the file that have no place in time, or no end.
        kernel: whose spans they are; empty where the file does not say.
        tells_sms: whether the lanes of the table name their SMs.
    """

    source: str
    format: SpanFormat
    names: tuple[str, ...]
    lanes: tuple[str, ...]
    left_out: int = 0
    kernel: str = ""
    tells_sms: bool = False
    mode: Literal["imported"] = "imported"
    path: str = ""
    flavour: str = ""
    burst_bytes: int = 0
    gap_ns: int = 0

    @property
    def kind(self) -> LaunchKind[ImportedSpans, None, ImportedSpans]:
        """See :class:`~xstage_tune.launches.device.Launch`."""
        return IMPORTED


@dataclass(frozen=True, slots=True)
class Timeline:
    """What a file holds.

    Args:
        table: its spans; zero of its axis is the earliest begin of a lane.
        gpu: name of the GPU; empty where the file does not say.
    """

    about: ImportedSpans
    table: SpanTable
    gpu: str = ""

    @property
    def length_ns(self) -> float:
        """From the earliest begin to the last end."""
        return float(self.table.end_ns().max() - self.table.begin_ns().min())

    def outcome(self, started_at: str) -> Outcome[ImportedSpans, None]:
        """As a launch that ran: nothing but its spans is known of it."""
        info = LaunchInfo(
            kernel=self.about.kernel,
            kernel_sha256="",
            registers=0,
            spill_bytes=0,
            shared_bytes=0,
            timer_tick_ns=0,
            elapsed_ns=round(self.length_ns),
            started_at=started_at,
        )
        return Outcome(self.about, None, info, table=self.table)


class _Imported(LaunchKind[ImportedSpans, None, ImportedSpans]):
    name = "imported spans"
    figures = TypeAdapter(None)
    modes = ("imported",)
    points = TypeAdapter(ImportedSpans)

    def keys(self, launch: ImportedSpans) -> dict[str, Any]:
        """All of the point."""
        return asdict(launch)

    def words(self, launch: ImportedSpans) -> str:
        return launch.source

    def point(self, outcome: Outcome[ImportedSpans, None]) -> ImportedSpans:
        return outcome.launch


IMPORTED = _Imported()
