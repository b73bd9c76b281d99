"""Files of spans, whoever wrote them, as a run of the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xstage_tune.base.errors import UsageError
from xstage_tune.base.files import require_regular
from xstage_tune.launches.device import DeviceDescription
from xstage_tune.launches.imported import IMPORT, UNKNOWN_GPU, ImportedSpans, Timeline
from xstage_tune.spans.buffer import MAGIC, decode_buffer, read_about
from xstage_tune.spans.chrome_trace import GZIP_MAGIC, MOST_TEXT_BYTES, read_chrome_trace
from xstage_tune.spans.nsight import SQLITE_MAGIC, read_nsight
from xstage_tune.store.facade import Store
from xstage_tune.store.provenance import utc_now

#: Of a file that is read whole.
_MOST_BYTES = 2 * MOST_TEXT_BYTES
#: Of one run, all in memory until it is kept.
MOST_FILES = 64


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """A run of the kind ``import``: a launch for each file, in order."""

    run_id: str
    timelines: tuple[Timeline, ...]

    def keys(self) -> dict[str, Any]:
        """As plain keys for JSON; times in ns."""
        return {
            "run": self.run_id,
            "timelines": [
                {
                    "file": one.about.source,
                    "format": one.about.format,
                    "gpu": one.gpu,
                    "spans": len(one.table.spans),
                    "lanes": len(one.table.lanes),
                    "names": sorted(
                        {one.about.names[kind] for kind in set(one.table.spans["kind"].tolist())}
                    ),
                    "length_ns": one.length_ns,
                    "dropped": one.table.dropped(),
                    "left_out": one.about.left_out,
                }
                for one in self.timelines
            ],
        }


def import_spans(files: Sequence[Path], store: Store, argv: Sequence[str]) -> ImportedRun:
    """Keep what ``files`` hold; all of them, or nothing.

    Raises:
        UsageError: a file is damaged, of another kind, or there are too many.
        StoreError: the database failed.
    """
    if len(files) > MOST_FILES:
        raise UsageError(f"{len(files)} files, more than {MOST_FILES} in one run", "import them in parts")
    timelines = tuple(map(read_spans, files))
    gpu = next((one.gpu for one in timelines if one.gpu), UNKNOWN_GPU)
    parameters = {"files": [asdict(one.about)["source"] for one in timelines]}
    begun = store.begin_run(kind=IMPORT, argv=argv, device=_described(gpu), parameters=parameters)
    with begun as run:
        for number, one in enumerate(timelines):
            run.add_launch(number, one.outcome(utc_now()))
    return ImportedRun(run.id, timelines)


def read_spans(file: Path) -> Timeline:
    """The timeline in a file, which is known by its first bytes.

    Raises:
        UsageError: it cannot be read, is damaged, or is no file of spans.
    """
    try:
        require_regular(file)
        with file.open("rb") as opened:
            head = opened.read(len(SQLITE_MAGIC))
            if head == SQLITE_MAGIC:
                return read_nsight(file, str(file))
            if not head.startswith((MAGIC, GZIP_MAGIC)) and head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (
                b"{",
                b"[",
            ):
                raise _unknown(file)
            data = head + opened.read(_MOST_BYTES)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}", "check the path") from None
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{file}: larger than {_MOST_BYTES >> 20} MiB", "record or export a shorter part")
    if head.startswith(MAGIC):
        return _of_buffer(data, str(file), file.name)
    return read_chrome_trace(data, str(file), file.name)


def _of_buffer(data: bytes, origin: str, source: str) -> Timeline:
    table, size = decode_buffer(data, origin)
    if not len(table.spans):
        raise UsageError(f"{origin}: no spans in it", "call end() of a span, and give the buffer a capacity")
    named, roles, kernel = read_about(data[size:], origin)
    most = int(table.spans["kind"].max())
    names = tuple(named.get(number, f"span {number}") for number in range(most + 1))
    lanes = tuple(_lane(number, roles) for number in range(len(table.lanes)))
    return Timeline(ImportedSpans(source, "xstage", names, lanes, kernel=kernel, tells_sms=True), table)


def _lane(number: int, roles: Sequence[str]) -> str:
    if not roles:
        return f"CTA {number}"
    return f"CTA {number // len(roles)} {roles[number % len(roles)]}"


def _unknown(file: Path) -> UsageError:
    if file.suffix in (".nsys-rep", ".qdrep"):
        return UsageError(f"{file}: a report of Nsight Systems itself", f"nsys export --type sqlite {file}")
    return UsageError(
        f"{file}: no spans: neither a buffer of xstage/span.cuh, an SQLite export of Nsight Systems nor a "
        "Chrome trace",
        "xstage-tune import --help names them",
    )


def _described(gpu: str) -> DeviceDescription:
    return DeviceDescription(
        kind="imported",
        name=gpu,
        uuid="",
        architecture="",
        sm_count=0,
        l2_bytes=0,
        memory_bytes=0,
        max_sm_clock_mhz=0,
        driver="",
        cuda="",
        nvrtc="",
        paths=(),
    )
