"""Kernels that a process of the user's measures: one line of JSON in, one out.

A request says which ``config`` to measure, how many ``repeats``, and the ``seed`` of its inputs; the keys of
the space come along as ``keys``. In place of a config it may name a ``yardstick``. The answer is an object:

- ``times``: one for each repeat, in the space's unit; ``correct``: true, or why the output is wrong.
- or ``error``: why there are no times, and, if it likes, ``fault``: ``compile``, ``unusable``, ``incorrect``
  or ``launch``.
- ``counters``: other numbers by name; ``spans``: lists of a name, a lane, a begin and an end in ns. Both may
  be left out, and are kept with the trial.

Whatever else the process does is an outcome of the config that it was asked for, and another process is begun
for the next one.
"""

from __future__ import annotations

import hashlib
import json
import platform as machine
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from math import isfinite
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from xstage_tune.base.errors import (
    ContextError,
    DeviceError,
    DeviceLost,
    Fault,
    FindingError,
    UsageError,
    XStageError,
)
from xstage_tune.base.field_types import Strict
from xstage_tune.base.json_output import json_sha256
from xstage_tune.base.line_process import LineProcess
from xstage_tune.base.parsing import parse_json
from xstage_tune.devices.present_gpu import present_gpu
from xstage_tune.families.binding import family_of
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import KERNELS, OTHER_GPU, KernelLaunch, KernelRun
from xstage_tune.families.kernel_process import KernelProcess
from xstage_tune.families.workload import Workload
from xstage_tune.launches.device import DeviceDescription, LaunchInfo, Outcome
from xstage_tune.launches.in_turn import ratio_of
from xstage_tune.platforms.gpus import compare
from xstage_tune.platforms.identity import GpuIdentity
from xstage_tune.platforms.schema import PlatformProfile

#: Rounds of a config and what it is compared with: before the first look at their ratio, and at most.
_LEAST_ROUNDS, _MOST_ROUNDS = 3, 10
_MOST_VALUES = 400_000
_HASH_DIGITS = 12
#: What an answer may say of a config without the process being the worse for it.
_HARMLESS: tuple[Fault, ...] = ("compile", "unusable", "incorrect", "unstable")

Told = Literal["compile", "unusable", "incorrect", "launch"]


class _Answer(Strict):
    """What the process says of one request."""

    times: Annotated[tuple[float, ...], Field(max_length=100_000)] = ()
    correct: bool | str | None = None
    why: str = ""
    error: str = ""
    fault: Told = "launch"
    counters: Annotated[Mapping[str, float], Field(max_length=1000)] = {}
    spans: Annotated[tuple[tuple[str, int, float, float], ...], Field(max_length=10_000)] = ()


class ToldError(XStageError):
    """A config that has no time, as its process says or as its times show."""

    def __init__(self, message: str, fault: Fault) -> None:
        super().__init__(message)
        self.fault = fault  # type: ignore[misc]  # of this one, not of the class


class ProcessKernels:
    """Runs launches of one kernel by a process of the user's, which stays alive over the sizes of a ladder.

    Args:
        process: how it is begun; each launch's workload says how it is asked.
        other_gpu: how the GPU differs from the platform's, where it was forced on it; else empty.
    """

    kinds = (KERNELS.name,)

    def __init__(self, process: KernelProcess, other_gpu: str = "") -> None:
        self._process = process
        self._gpu = present_gpu()
        self._lines = LineProcess(process.command, process.folder)
        on = self._gpu.name if self._gpu else f"{machine.machine()}, no GPU"
        self._sha256 = _sources_sha256(process)
        forced = f"{OTHER_GPU}{other_gpu}" if other_gpu else ""
        self.identity = f"{process.words} on {on}, kernel {self._sha256[:_HASH_DIGITS]}{forced}"

    def describe(self) -> DeviceDescription:
        """See :class:`~xstage_tune.launches.device.Device`; the GPU is the one that is present."""
        gpu = self._gpu or GpuIdentity(name=machine.machine())
        return DeviceDescription(
            kind="process",
            name=gpu.name,
            uuid="",
            architecture="",
            sm_count=gpu.sm_count or 1,
            l2_bytes=0,
            memory_bytes=gpu.memory_bytes or 0,
            max_sm_clock_mhz=0,
            driver="",
            cuda="",
            nvrtc="",
            paths=(),
            mig=gpu.mig,
        )

    def label_launches(self, run_id: str) -> None:
        """The process names its launches itself."""

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        """See :class:`~xstage_tune.launches.device.Device`.

        Raises:
            ContextError, DeadlineError: the process ended, did not answer, or said what is no answer.
            ToldError: it says why there are no times, or its times are none.
            FindingError: it says that the output is wrong.
            DeviceLost: it cannot be begun.
        """
        for launch in launches:
            yield self._run(launch)

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._lines.close()

    def _run(self, launch: KernelLaunch) -> Outcome[KernelLaunch, KernelRun]:
        began_ns, started_at = time.perf_counter_ns(), datetime.now(UTC).isoformat()
        self._ask_as(launch.workload)
        in_turn = launch.against is not None and self._process.in_turn
        repeats = self._process.repeats if in_turn else max(launch.repeats, self._process.repeats)
        own = self._asked(launch.config, repeats, launch.inputs)
        own_ns: tuple[float, ...] = self._times_ns(own)
        against_ns: tuple[float, ...] = ()
        if in_turn:
            own_ns, against_ns = self._in_turn(launch, own)
        run = KernelRun(
            latency_ns=own_ns, against_ns=against_ns, counters=dict(own.counters), marks=own.spans
        )
        elapsed_ns = time.perf_counter_ns() - began_ns
        info = LaunchInfo(launch.config.label, self._sha256, 0, 0, 0, 0, elapsed_ns, started_at)
        return Outcome(launch, run, info)

    def _ask_as(self, workload: Workload) -> None:
        """Ask with this workload's keys from now on: another size of a ladder has others."""
        process = family_of(workload).process_of(workload)
        if process is None or (process.command, process.folder) != (
            self._process.command,
            self._process.folder,
        ):
            raise DeviceError(f"{self.identity} does not measure {workload.name}")
        self._process = process

    def _in_turn(self, launch: KernelLaunch, first: _Answer) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Medians of rounds: one request of each, whose order changes from round to round."""
        assert launch.against is not None
        both = (launch.config, launch.against)
        samples: tuple[list[float], list[float]] = ([median(self._times_ns(first))], [])
        rounds = min(_MOST_ROUNDS, max(_LEAST_ROUNDS, launch.repeats))
        while len(samples[1]) < rounds:
            # The first round has the config's times already: the other one follows, and begins the next.
            turn = len(samples[1])
            for which in (1,) if turn == 0 else (1, 0) if turn % 2 else (0, 1):
                answer = self._asked(both[which], self._process.repeats, launch.inputs + turn)
                samples[which].append(median(self._times_ns(answer)))
            settled = launch.tolerance is not None and ratio_of(*samples).settles(launch.tolerance)
            if len(samples[1]) == rounds < _MOST_ROUNDS and launch.tolerance is not None and not settled:
                rounds += 1
        return tuple(samples[0]), tuple(samples[1])

    def _asked(self, config: KernelConfig, repeats: int, seed: int) -> _Answer:
        """What the process says of a config.

        One that ends or says what is no answer, and has answered before, may do so because of what it did
        before: an error of the GPU's that shows late, say. Then a new one is asked.
        """
        answered = self._lines.answers
        try:
            return self._asked_once(config, repeats, seed)
        except ContextError:
            if not answered:
                raise
            return self._asked_once(config, repeats, seed)

    def _asked_once(self, config: KernelConfig, repeats: int, seed: int) -> _Answer:
        request = {**self._process.request(config), "repeats": repeats, "seed": seed % 2**32}
        try:
            line = self._lines.ask(json.dumps(request), self._process.deadline_s)
        except DeviceError as error:
            if type(error) is DeviceError:  # not of the config: there is no process
                raise DeviceLost(error.message, error.hint) from None
            raise
        try:
            answer = _answer(line)
            _require_times(answer)
        except XStageError as error:
            if error.fault not in _HARMLESS:  # it may hold what it should not, the GPU's memory say
                self._lines.kill()
            raise
        return answer

    def _times_ns(self, answer: _Answer) -> tuple[float, ...]:
        return tuple(self._process.unit_ns * one for one in answer.times)


def _answer(line: str) -> _Answer:
    """A line as an answer.

    Raises:
        ContextError: it is none.
    """
    try:
        data = parse_json(line, most_values=_MOST_VALUES)
    except ValueError:
        raise ContextError(
            f"its process answered what is no JSON: '{line[:100]}'; what it prints beside answers belongs to "
            "stderr"
        ) from None
    try:
        return _Answer.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ContextError(
            f"its process answered what is no answer: {f'{place}: ' if place else ''}{first['msg'].lower()}"
        ) from None


def _require_times(answer: _Answer) -> None:
    """Refuse an answer without times that count.

    Raises:
        ToldError: it says why, or they are none.
        FindingError: the output is wrong.
        ContextError: it says neither times nor why, or nothing of the output.
    """
    if answer.error:
        raise ToldError(answer.error, answer.fault)
    if isinstance(answer.correct, str) or answer.correct is False:
        told = answer.correct if isinstance(answer.correct, str) else answer.why
        raise FindingError(f"its output is wrong: {told or 'its process does not say why'}")
    if answer.correct is None:
        raise ContextError("its process does not say whether the output is correct: true, or why not")
    if not answer.times:
        raise ContextError("its process answered neither times nor an error")
    for one in answer.times:
        if not (isfinite(one) and one > 0):
            raise ToldError(f"its process answered a time of {one:g}", "unstable")


def open_process_kernels(process: KernelProcess, platform: PlatformProfile, *, force: bool) -> ProcessKernels:
    """The process, with a platform of the GPU that is present.

    Args:
        force: take another GPU's platform, and mark results so.

    Raises:
        UsageError: the platform is of another GPU.
    """
    present = present_gpu()
    found = compare(platform.gpu.identity, present, platform.path) if present else None
    if found is not None and not found.same and not force:
        raise UsageError(
            f"platform '{platform.name}' was calibrated on another GPU: {found.words()}",
            "xstage-tune calibrate; or --force goes on, and marks the result",
        )
    return ProcessKernels(process, "" if found is None or found.same else found.words())


def _sources_sha256(process: KernelProcess) -> str:
    """Of the command and what it names of files: results of other versions of a kernel are not comparable."""
    found: dict[str, Any] = {"command": process.words}
    for file in process.sources:
        if file.is_file():
            found[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return json_sha256(found)
