"""Whatever a launch does to its process, it is that launch's outcome, and the next one runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.devices.fault_device import COMES_UNDER, FAULTS, open_planted
from tests.search.cases import drained, small_space
from xstage_tune.base.errors import DeviceError, DeviceLost, XStageError
from xstage_tune.devices.isolated import IsolatedDevice
from xstage_tune.families.kernel_launch import KernelLaunch
from xstage_tune.search.evaluation import Evaluation, Failure, evaluate

pytestmark = pytest.mark.usefixtures("warm_workers")

CONFIGS = small_space().configs
DEADLINE_S = 2.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "faults").write_text("")
    return tmp_path


@pytest.fixture
def device(folder: Path) -> Iterator[IsolatedDevice]:
    opened = IsolatedDevice(partial(open_planted, str(folder)), DEADLINE_S)
    yield opened
    opened.close()


def launch(number: int) -> KernelLaunch:
    return KernelLaunch(drained(), CONFIGS[number], "host")


def workers(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "workers").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ends(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_running(pid)


def test_every_fault_is_an_outcome_and_the_next_launch_runs(device: IsolatedDevice, folder: Path) -> None:
    """One process after the other: what may have harmed one is not run in again."""
    names = list(FAULTS)
    planted = "".join(f"{CONFIGS[number].label}\t{name}\n" for number, name in enumerate(names))
    (folder / "faults").write_text(planted)
    found = {}
    for number, name in enumerate(names):
        failure = evaluate(device, launch(number))
        assert isinstance(failure, Failure), name
        assert failure.reason
        found[name] = failure.fault
        assert isinstance(evaluate(device, launch(len(names))), Evaluation), name
    assert found == COMES_UNDER
    harmless = {"compile", "unusable", "incorrect", "unstable"}
    replaced = [name for name in names if COMES_UNDER[name] not in harmless]
    assert device.replaced == len(replaced)
    assert len(workers(folder)) == len(replaced) + 1
    assert all(ends(pid) for pid in workers(folder)[:-1])


def test_a_device_that_cannot_be_opened_says_why(folder: Path) -> None:
    (folder / "lost").touch()
    with pytest.raises(DeviceError, match="no GPU 0") as refusal:
        IsolatedDevice(partial(open_planted, str(folder)))
    assert not isinstance(refusal.value, DeviceLost)


def test_a_device_that_is_gone_is_asked_once_more_and_then_lost(device: IsolatedDevice, folder: Path) -> None:
    (folder / "faults").write_text(f"{CONFIGS[0].label}\tcrash\n")
    assert isinstance(evaluate(device, launch(0)), Failure)
    (folder / "lost").touch()
    with pytest.raises(DeviceLost, match="no GPU 0"):
        evaluate(device, launch(1))
    (folder / "lost").unlink()
    assert isinstance(evaluate(device, launch(1)), Evaluation)


def test_the_worker_ends_with_the_device(folder: Path) -> None:
    device = IsolatedDevice(partial(open_planted, str(folder)))
    (pid,) = workers(folder)
    assert is_running(pid)
    device.close()
    device.close()
    assert ends(pid)


def test_a_worker_outlives_no_parent_that_is_killed(folder: Path) -> None:
    """It would keep the GPU and its memory."""
    program = (
        "import sys, time\n"
        "from functools import partial\n"
        "from tests.devices.fault_device import open_planted\n"
        "from xstage_tune.devices.isolated import IsolatedDevice\n"
        "if __name__ == '__main__':\n"
        "    device = IsolatedDevice(partial(open_planted, sys.argv[1]))\n"
        "    print('open', flush=True)\n"
        "    time.sleep(600)\n"
    )
    script = folder / "parent.py"
    script.write_text(program)
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root},
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        assert parent.stdout.readline() == "open\n"
        (pid,) = workers(folder)
        parent.kill()
    assert ends(pid)


def test_errors_of_ours_keep_their_words(device: IsolatedDevice, folder: Path) -> None:
    (folder / "faults").write_text(f"{CONFIGS[0].label}\tincorrect\n")
    with pytest.raises(XStageError, match="4,096 bytes are wrong"):
        list(device.run([launch(0)]))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_of_a_job_leaves_the_worker_to_its_parent(
    device: IsolatedDevice, folder: Path, number: signal.Signals
) -> None:
    os.kill(workers(folder)[0], number)
    assert isinstance(evaluate(device, launch(0)), Evaluation)
    assert device.replaced == 0
