"""What a server of processes loads for those that it forks: what a command needs, machine code included."""

from tests.simulator.compile import compile_loops
from xstage_tune.commands import _app, emulate, search  # noqa: F401
from xstage_tune.search import driver  # noqa: F401

compile_loops()
