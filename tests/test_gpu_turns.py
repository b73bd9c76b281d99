"""A test that has the GPU alone has it alone, and is not passed by those that came later."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tests.gpu_turns import gpu_turn


def test_who_wants_the_gpu_alone_waits_for_those_before_and_holds_up_those_behind(tmp_path: Path) -> None:
    order: list[str] = []

    def take(name: str, *, alone: bool) -> None:
        with gpu_turn(tmp_path, alone=alone):
            order.append(name)

    alone = threading.Thread(target=take, args=("alone",), kwargs={"alone": True})
    behind = threading.Thread(target=take, args=("behind",), kwargs={"alone": False})
    with gpu_turn(tmp_path, alone=False):
        with gpu_turn(tmp_path, alone=False):
            order.append("beside")
        alone.start()
        while not _held(tmp_path / "gate"):
            time.sleep(0.001)
        behind.start()
        time.sleep(0.02)
        order.append("done")
    alone.join(5)
    behind.join(5)
    assert order == ["beside", "done", "alone", "behind"]


def _held(lock: Path) -> bool:
    import fcntl

    with lock.open("w") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
