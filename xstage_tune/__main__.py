"""``python -m xstage_tune``."""

from xstage_tune.cli import entry

if __name__ == "__main__":
    entry()
