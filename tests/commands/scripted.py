"""A process that calibrates a fluid device slowly: ``python -m tests.commands.scripted STORE [SECONDS]``.

For what cannot be done to the test's own process: killing it, filling its disk, running two at once.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tests.calibration.fluid import Fluid, FluidDevice
from xstage_tune import cli
from xstage_tune.base.interrupts import held_back
from xstage_tune.devices import opener
from xstage_tune.launches.device import Outcome


class SlowDevice(FluidDevice):
    """A fluid device that takes its time between runs."""

    def __init__(self, seconds: float) -> None:
        super().__init__(Fluid())
        self._seconds = seconds

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        runs = super().run(launches)
        while True:
            with held_back():  # inside, numba makes a SystemError of it, or crashes
                run = next(runs, None)
            if run is None:
                return
            time.sleep(self._seconds)
            yield run


def main() -> None:
    """Run ``calibrate``; a file-size limit may come through the environment."""
    store, seconds = sys.argv[1], float(sys.argv[2])
    limit = int(os.environ.get("FILE_SIZE_LIMIT", "0"))
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    opener.open_cuda = lambda *_: SlowDevice(seconds)
    options = ["--budget", "quick", "--store-flavour", "st.v4", "--format", "json"]
    sys.argv = [
        "xstage-tune",
        "calibrate",
        *options,
        "--store",
        store,
        "--out",
        f"{store}.{os.getpid()}.toml",
    ]
    cli.entry()


if __name__ == "__main__":
    main()
