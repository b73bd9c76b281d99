"""``python -m xstage_tune``."""

from xstage_tune.cli import main

if __name__ == "__main__":
    main()
