"""The program: ``xstage-tune``, and ``python -m xstage_tune``."""

import signal

# Until the program listens, Ctrl-C just ends it: Python's own handler would print a traceback of imports.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from xstage_tune.cli import entry

if __name__ == "__main__":
    entry()
