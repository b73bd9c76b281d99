"""SQLite stores that were damaged: what is read is what was written, or an error says that it is not."""

from __future__ import annotations

import gzip
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.harness import BrokenError, command
from tests.fuzz.mutations import mutated_bytes
from tests.h200 import H200
from tests.search.cases import TableDevice, request, small_space
from tests.store.bursts import make_burst
from tests.store.golden import make as golden
from xstage_tune.base.errors import XStageError
from xstage_tune.base.json_output import to_json
from xstage_tune.base.progress import NoProgress
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import begin_study, stored_result
from xstage_tune.store.facade import Store
from xstage_tune.store.location import resolve_location
from xstage_tune.store.salvage import salvage

_TRIALS = 60


def stores(random: Random, folder: Path) -> None:
    """A damaged store: read, checked, exported from, salvaged."""
    file = folder / "store.db"
    if random.random() < 0.1:
        older = random.choice(sorted(golden.FOLDER.glob("schema_*.db.gz")))
        file.write_bytes(_damaged(random, gzip.decompress(older.read_bytes())))
        _say_all(file, random)
        return
    whole, answer, content = _store()
    file.write_bytes(_damaged(random, whole))
    refused = _answers(file, answer)
    clean, read = _looked_at(file)
    if clean and read != content:
        raise BrokenError(f"store check finds nothing wrong, and what is read is other: {read[:500]}")
    if random.random() < 0.2:
        _salvaged(file, folder / "whole.db", answer, content)
    if random.random() < 0.1:
        _say_all(file, random)
    if refused is not None:
        raise refused


def _answers(file: Path, answer: str) -> XStageError | None:
    """Ask for the study's result as an export does, which must be the one that was found, or refused."""
    try:
        with Store.open(file, create=False) as store:
            found = to_json(stored_result(store).keys())
    except XStageError as refused:
        return refused
    if found != answer:
        raise BrokenError(f"another answer than was found: {found[:500]}")
    return None


def _looked_at(file: Path) -> tuple[bool, str]:
    """Whether a check finds nothing, and all that is read; empty where that is refused."""
    try:
        with Store.open(file, create=False) as store:
            clean = not store.check().problems
            return clean, _content(store)
    except XStageError as refused:
        return False, refused.message


def _salvaged(file: Path, target: Path, answer: str, content: str) -> None:
    """Copy what is whole, which is then whole, and a part of what was written."""
    try:
        made = salvage(resolve_location(file), target)
    except XStageError:
        return
    with Store.open(target) as store:
        if problems := store.check().problems:
            raise BrokenError(f"a salvaged store is damaged: {problems[0]}")
        copy = _content(store)
        finished = [study for study in store.studies.all() if study.status == "finished"]
        if finished and to_json(stored_result(store).keys()) != answer:
            raise BrokenError("a salvaged store has another answer")
    if not made.lost and copy != content:
        raise BrokenError("a salvaged store lacks what is not told to be lost")


def _say_all(file: Path, random: Random) -> None:
    """The commands that read stores, which must say it in lines."""
    for arguments in random.sample(_COMMANDS, 2):
        command(*arguments, "--store", str(file))


_COMMANDS = (
    ("store", "info"),
    ("store", "check"),
    ("store", "list"),
    ("store", "show", "latest"),
    ("store", "salvage", "salvaged.db"),
    ("export", "-o", "config.json"),
    ("report", "--run", "latest", "-o", "run.html"),
)


def _content(store: Store) -> str:
    """All that is kept, as text."""
    told: list[Any] = []
    for run in store.runs():
        told.append(
            [run.id, run.kind, run.status, run.argv, run.parameters, run.error, run.environment.device]
        )
        told += [[fit.kind, fit.payload] for fit in store.fits(run.id)]
        for launch in store.launches(run.id):
            spans = launch.table().spans.tobytes().hex()
            told.append([launch.sequence, launch.point, launch.measured, launch.info, spans])
    for study in store.studies.all():
        told.append([study.id, study.status, study.space, study.workload_sha256])
        told += [
            [t.number, t.state, t.params, t.objective_ns, t.latency_ns, t.reason, t.verification]
            for t in store.studies.trials(study.id)
        ]
    return to_json(told)


@cache
def _store() -> tuple[bytes, str, str]:
    """A store of a run and a finished study: its file, the study's answer, and all its content."""
    space = small_space()
    device = TableDevice(lambda config: 1e9 + len(config.label))
    asked = request(trials=_TRIALS, tolerance=0.0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "store.db"
        with Store.open(file) as store:
            with store.begin_run(kind="calibrate", argv=["calibrate"], device=H200) as run:
                for sequence in range(6):
                    run.add_launch(sequence, make_burst(sequence))
                run.add_fit("platform", {"rate": 1.5, "knee": float("inf")})
            journal = begin_study(store, asked, space, "table")
            run_search(asked, space, device, journal, NoProgress())
            answer, content = to_json(stored_result(store).keys()), _content(store)
        return file.read_bytes(), answer, content


def _damaged(random: Random, whole: bytes) -> bytes:
    """A copy with flipped bits, lost or mixed up pages, a part missing, or other bytes anywhere."""
    page_bytes = int.from_bytes(whole[16:18], "big")
    pages = [whole[at : at + page_bytes] for at in range(0, len(whole), page_bytes)]
    at = random.randrange(len(pages))
    match random.randrange(8):
        case 0 | 1 | 2:
            changed = bytearray(whole)
            for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
                changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
            return bytes(changed)
        case 3:
            pages[at] = random.choice((bytes(page_bytes), b"\xff" * page_bytes, random.randbytes(page_bytes)))
        case 4:
            pages[at] = random.choice(pages)
        case 5:  # the heads of pages, which say what is in them
            head = bytearray(pages[at])
            for _ in range(random.choice((1, 2))):
                head[random.randrange(40)] = random.randrange(256)
            pages[at] = bytes(head)
        case 6:
            return whole[: random.choice((at * page_bytes, random.randrange(len(whole))))]
        case _:
            return mutated_bytes(random, whole)
    return b"".join(pages)
