"""A process that emulates slowly: ``python -m tests.emulation.scripted STORE SECONDS``, to be killed."""

from __future__ import annotations

import sys

from tests.emulation.gpu import SMALL, ScriptedGpu
from xstage_tune import cli
from xstage_tune.devices import opener


def main() -> None:
    store, seconds = sys.argv[1], float(sys.argv[2])
    opener.open_cuda = lambda *_: ScriptedGpu(seconds=seconds)
    sys.argv = ["xstage-tune", "emulate", *SMALL, "--device", "cuda", "--repeats", "200", "--store", store]
    cli.entry()


if __name__ == "__main__":
    main()
