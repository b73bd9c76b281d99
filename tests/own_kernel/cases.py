"""Spaces of the tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import tomli_w

HERE = Path(__file__).parent
#: What ``faulty.py`` may be told to do, and what that comes under.
FAULTS = {
    "abort": "fault", "exit": "fault", "hang": "timeout", "garbage": "fault", "no-answer": "fault",
    "unknown-key": "fault", "no-word": "fault", "nan": "unstable", "endless": "fault", "children": "fault",
    "wrong": "incorrect", "told": "unusable",
}  # fmt: skip


def space_file(place: Path, **keys: Any) -> Path:
    """A space that ``faulty.py`` measures: of configs that do nothing, unless ``keys`` say more."""
    data = {
        "kind": "own",
        "name": "own/test",
        "command": [sys.executable, "-S", str(HERE / "faulty.py")],
        "deadline_s": 20.0,
        "repeats": 2,
        "axes": {"size": [1, 2, 3, 4]},
        "default": {"size": 3},
    } | keys
    file = place / "space.toml"
    file.write_text(tomli_w.dumps(data))
    return file
