"""Write what of the documents is made from the code: ``python docs/make [FOLDER]``, by default in place.

Reference pages come from the schemas and from the command line's own help; figures from the model and from
the recordings that come with the tool.
"""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path

import figures
import overview
import pages
import recorded

DOCS = Path(__file__).parents[1]


def main(folder: Path) -> None:
    """Write everything below ``folder``."""
    drawn = dict(chain(figures.draw(), recorded.draw()), overview=overview.draw())
    made = dict(pages.pages()) | {f"figures/{name}.svg": svg for name, svg in drawn.items()}
    for name, text in made.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS)
