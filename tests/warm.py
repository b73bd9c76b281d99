"""What a server of processes loads for those that it forks: what a command needs, machine code included."""

import typer.main

from tests.calibration import fluid  # noqa: F401
from tests.devices import fault_device  # noqa: F401
from tests.once import build_commands_once
from tests.simulator.compile import compile_loops
from xstage_tune.calibration import procedure  # noqa: F401
from xstage_tune.commands import _app, calibrate, emulate, search  # noqa: F401
from xstage_tune.search import driver  # noqa: F401

build_commands_once()
typer.main.get_command(_app.app)
compile_loops()
