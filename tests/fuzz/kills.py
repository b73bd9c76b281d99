"""Searches that are stopped at any moment, by SIGKILL, SIGTERM or Ctrl-C, and taken up again.

What a process said is kept must be kept, no run or study may count as running, nothing but a line may be
said, and the search taken up again must give the answer of one that nobody disturbed.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from tests.fuzz.harness import BrokenError
from tests.search.cases import TableDevice, request, small_space
from xstage_tune import cli
from xstage_tune.base.errors import ExitCode, UsageError
from xstage_tune.base.json_output import to_json
from xstage_tune.base.progress import NoProgress
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import NoJournal, StoreJournal, begin_study, resume_study, stored_result
from xstage_tune.search.space import Space
from xstage_tune.store.facade import Store
from xstage_tune.store.models import Study

TRIALS = 24
#: Most times that one search is stopped before it may finish.
_MOST_STOPS = 4


@dataclass(frozen=True, slots=True)
class Ended:
    """How a search's process ended, and what it had said to keep by then."""

    code: int
    told: int
    stderr: str
    last_line: str


def kills(random: Random, folder: Path) -> None:
    """One search, stopped again and again, then finished."""
    undisturbed()  # before the first fork
    store = folder / "store.db"
    kept, killed = 0, False
    for _ in range(random.randint(1, _MOST_STOPS)):
        number = random.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
        after = random.choice(("moment", "trial", "trial", "trial"))
        ended = stopped(store, number, random.random(), random.randrange(TRIALS), after)
        require_clean(ended, number)
        kept = max(kept, ended.told)
        killed |= number == signal.SIGKILL  # what it left stays so where the next is stopped before it begins
        require_kept(store, kept, running=killed)
    require_answer(store, Process(store).ended())


def stopped(store: Path, number: signal.Signals, share: float, trials: int, after: str) -> Ended:
    """Run the search and stop it: at a random moment, or just behind a trial."""
    process = Process(store)
    if after == "moment":
        time.sleep(share * 0.5)
    else:
        process.wait_for(trials)
        time.sleep(share * 0.02)
    process.stop(number)
    return process.ended()


class Process:
    """A search, or other work, in a process of its own, forked so that nothing is imported again."""

    def __init__(self, store: Path, work: Callable[[Path], int] | None = None) -> None:
        out, err = os.pipe(), os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.dup2(out[1], 1)
            os.dup2(err[1], 2)
            _work_and_exit(work or _search, store)
        os.close(out[1])
        os.close(err[1])
        self._stdout, self._stderr = out[0], os.fdopen(err[0], encoding="utf-8")
        self._said = b""

    def stop(self, number: signal.Signals) -> None:
        """Send a signal; nothing where the process has ended."""
        os.kill(self._pid, number)

    def told(self) -> int:
        """How much it has said to keep by now."""
        while select.select([self._stdout], [], [], 0)[0] and self._read():
            pass
        return max((int(line) for line in self._lines() if line.isdigit()), default=0)

    def wait_for(self, count: int) -> None:
        """Until it has said that so much is kept, or has ended."""
        while self.told() < count and self._read():
            pass

    def ended(self) -> Ended:
        """Wait for the end."""
        while self._read():
            pass
        with self._stderr:
            stderr = self._stderr.read()
        told, lines = self.told(), self._lines()
        os.close(self._stdout)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return Ended(code, told, stderr, lines[-1] if lines else "")

    def _read(self) -> bool:
        """Wait for more; False where there is none."""
        more = os.read(self._stdout, 1 << 16)
        self._said += more
        return bool(more)

    def _lines(self) -> list[str]:
        """The whole lines said so far."""
        return self._said[: self._said.rfind(b"\n") + 1].decode().splitlines()


def _work_and_exit(work: Callable[[Path], int], store: Path) -> NoReturn:
    """What the process does: the program, but for its command."""
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    atexit._clear()  # those of the parent would remove its folders
    cli._run = lambda: work(store)
    code = 0
    try:
        cli.entry()
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _search(location: Path) -> int:
    """Search, or take the store's study up again; print the trials that are kept, and at last the answer."""
    add = StoreJournal._add

    def told(journal: StoreJournal, *given: Any, **values: Any) -> None:
        add(journal, *given, **values)
        print(journal.next_number, flush=True)

    StoreJournal._add = told  # type: ignore[method-assign]
    space, asked = _space(), request(trials=TRIALS, tolerance=0.0)
    try:
        with Store.open(location) as store:
            study = _study(store)
            if study is not None and study.status == "finished":
                print(answer_line(stored_result(store, study.id).keys()), flush=True)
                return 0
            if study is None:
                journal = begin_study(store, asked, space, "table")
            else:
                journal = resume_study(store, study.id, asked, "table")
            result = run_search(asked, space, table(), journal, NoProgress())
        print(answer_line(result.keys()), flush=True)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    return 0


def _study(store: Store) -> Study | None:
    try:
        return store.studies.to_resume("latest")
    except UsageError:
        return None


def require_clean(ended: Ended, number: signal.Signals) -> None:
    """A stop is no error: no traceback, and the signal's exit code unless all was done before."""
    if number == signal.SIGKILL:
        return
    if "Traceback" in ended.stderr or "Exception ignored" in ended.stderr:
        raise BrokenError(f"a traceback at a stop by {number.name}: {ended.stderr}")
    if ended.code not in (0, 128 + number, -number):  # the last: before the program listens
        raise BrokenError(f"exit {ended.code} at a stop by {number.name}: {ended.stderr}")


def require_kept(store: Path, told: int, *, running: bool) -> None:
    """All trials that were told of are there, in a whole store; only a kill leaves something running."""
    if not store.exists():
        if told:
            raise BrokenError(f"the store is gone with {told} trials")
        return
    with Store.open(store) as opened:
        if problems := opened.check().problems:
            raise BrokenError(f"the store is damaged: {problems[0]}")
        studies = opened.studies.all()
        kept = max((len(opened.studies.trials(study.id)) for study in studies), default=0)
        if kept < told:
            raise BrokenError(f"{kept} trials of {told} are kept")
        entries = [entry.state for entry in opened.entries()]
        if "running" in entries or ("stale" in entries and not running):
            raise BrokenError(f"nothing runs, and the store says: {entries}")


def require_answer(store: Path, ended: Ended) -> None:
    """The answer is that of an undisturbed search, and no temporary file is left."""
    if ended.code or ended.last_line != undisturbed():
        raise BrokenError(
            f"exit {ended.code}, another answer than undisturbed: {ended.stderr}{ended.last_line}"
        )
    left = [path.name for path in store.parent.iterdir() if path.name.endswith(".tmp")]
    if left:
        raise BrokenError(f"temporary files are left: {left}")


@cache
def undisturbed() -> str:
    """The answer of the same search that nobody stops."""
    asked = request(trials=TRIALS, tolerance=0.0)
    result = run_search(asked, _space(), table(), NoJournal(), NoProgress())
    return answer_line(result.keys())


@cache
def _space() -> Space:
    return small_space()


def table() -> TableDevice:
    """A device without noise, whose times differ by config."""
    return TableDevice(lambda config: 1e9 + 1e3 * (hash_of(config.label) % 1000))


def hash_of(label: str) -> int:
    """The same in every process."""
    return sum((i + 1) * ord(character) for i, character in enumerate(label))


def answer_line(keys: dict[str, object]) -> str:
    """What of a result must not depend on how often it was stopped."""
    same = ("best", "default", "heuristics", "bound_ns", "evaluations", "cuts")
    return json.dumps(json.loads(to_json({key: keys[key] for key in same})), sort_keys=True)
