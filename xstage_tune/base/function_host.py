"""``python -m xstage_tune.base.function_host MODULE:FUNCTION``: a function as a process that answers lines.

Each line is a JSON value for the function, or a list of such; what it returns is the answer's line. What it
prints goes to stderr: standard output is for answers alone. What it raises is an answer with the key
``error``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from xstage_tune.base.errors import described


def main(name: str) -> None:
    """Answer lines of standard input until it ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        module, _, attribute = name.partition(":")
        sys.path.insert(0, str(Path.cwd()))
        function = getattr(import_module(module), attribute)
        for line in sys.stdin:
            asked = json.loads(line)
            many = isinstance(asked, list)
            found = [_answer(function, one) for one in asked] if many else _answer(function, asked)
            answers.write(f"{_text(found)}\n")
            answers.flush()


def _answer(function: Callable[[Any], Any], asked: Any) -> Any:
    try:
        return function(asked)
    except Exception as error:
        return {"error": described(error)}


def _text(found: Any) -> str:
    try:
        return json.dumps(found, default=_number)
    except (TypeError, ValueError) as error:
        return json.dumps({"error": f"what it returned is no JSON: {error}"})


def _number(value: Any) -> Any:
    """NumPy's and torch's scalars and arrays, by what both can do."""
    return value.tolist()


if __name__ == "__main__":
    main(sys.argv[1])
