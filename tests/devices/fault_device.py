"""A device that is opened in a worker process, and does there what a launch's workload is told to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.search.cases import RunsKernels
from xstage_tune.base.errors import ContextError, DeadlineError, DeviceError, FindingError
from xstage_tune.cuda.compiler import KernelCompileError, UnusableKernelError
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import KernelRun
from xstage_tune.families.workload import Workload
from xstage_tune.launches.device import DeviceDescription


class CannotBePickledError(Exception):
    """As exceptions of libraries are."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)
        self.second = second


def _raise(error: BaseException) -> None:
    raise error


#: What a launch does, by name; those that return take no time that can be used.
FAULTS: dict[str, Callable[[], object]] = {
    "compile": lambda: _raise(KernelCompileError("attention.cu:12: expected a ';'")),
    "unusable": lambda: _raise(UnusableKernelError("it spills 64 bytes a thread")),
    "launch": lambda: _raise(DeviceError("cannot launch a kernel: CUDA_ERROR_INVALID_VALUE")),
    "illegal access": lambda: _raise(ContextError("CUDA_ERROR_ILLEGAL_ADDRESS")),
    "hang": lambda: time.sleep(600),
    "gives up": lambda: _raise(DeadlineError("the replays did not end within 10 s")),
    "incorrect": lambda: _raise(FindingError("4,096 bytes are wrong")),
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exit": lambda: os._exit(3),
    "exception": lambda: _raise(RuntimeError("PassManager::run failed")),
    "odd exception": lambda: _raise(CannotBePickledError("one", "two")),
    "memory": lambda: _raise(MemoryError()),
    "leaves": lambda: _raise(SystemExit(3)),
    "nan": lambda: float("nan"),
    "infinite": lambda: float("inf"),
    "zero": lambda: 0.0,
    "negative": lambda: -1.0,
}
#: Under what each comes.
COMES_UNDER = {
    "compile": "compile",
    "unusable": "unusable",
    "launch": "launch",
    "illegal access": "fault",
    "hang": "timeout",
    "gives up": "timeout",
    "incorrect": "incorrect",
    "crash": "fault",
    "exit": "fault",
    "exception": "fault",
    "odd exception": "fault",
    "memory": "fault",
    "leaves": "fault",
    "nan": "unstable",
    "infinite": "unstable",
    "zero": "unstable",
    "negative": "unstable",
}


class PlantedDevice(RunsKernels):
    """Notes every worker that opens it in a folder, and has the faults that a file there names by label.

    Times are known: 1 s, and 1 us for each letter of the config's label.
    """

    identity = "planted"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if (folder / "lost").exists():
            raise DeviceError("no GPU 0: this process sees 0")
        with (folder / "workers").open("a") as workers:
            workers.write(f"{os.getpid()}\n")

    def describe(self) -> DeviceDescription:
        return DeviceDescription(
            kind="cuda", name="planted", uuid="", architecture="sm_90a", sm_count=132, l2_bytes=0,
            memory_bytes=0, max_sm_clock_mhz=0, driver="", cuda="", nvrtc="", paths=("host",),
        )  # fmt: skip

    def run_kernel(self, workload: Workload, config: KernelConfig, repeats: int) -> KernelRun:
        del workload
        time_ns: object = 1e9 + 1e3 * len(config.label)
        file = self._folder / "faults"
        faults = dict(line.split("\t") for line in file.read_text().splitlines()) if file.exists() else {}
        if fault := faults.get(config.label):
            time_ns = FAULTS[fault]()
        if (self._folder / "slow").exists():
            time.sleep(0.02)
        with (self._folder / "ran").open("a") as ran:
            ran.write(f"{config.label}\n")
        assert isinstance(time_ns, float)
        return KernelRun((time_ns,) * repeats, (time_ns,) * repeats)


def open_planted(folder: str) -> PlantedDevice:
    """For a worker."""
    return PlantedDevice(Path(folder))
