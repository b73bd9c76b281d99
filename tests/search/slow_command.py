"""A command whose simulated launches take their time: ``python -m ... SECONDS ARGUMENT...``."""

from __future__ import annotations

import sys
import time

from tests.search.cases import CountingSimulator
from xstage_tune import cli
from xstage_tune.devices import opener
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import KernelRun
from xstage_tune.families.workload import Workload


class SlowSimulator(CountingSimulator):
    """The simulator, so many seconds later."""

    seconds = 0.0

    def run_kernel(self, workload: Workload, config: KernelConfig, repeats: int) -> KernelRun:
        time.sleep(self.seconds)
        return super().run_kernel(workload, config, repeats)


def main() -> None:
    SlowSimulator.seconds = float(sys.argv[1])
    opener.open_simulator = lambda _: SlowSimulator()
    sys.argv = ["xstage-tune", *sys.argv[2:]]
    cli.entry()


if __name__ == "__main__":
    main()
