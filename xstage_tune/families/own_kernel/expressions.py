"""Constraints of a space: expressions of its axes, which must hold of a config.

They are evaluated by simpleeval, which walks the parsed expression and knows arithmetic, comparisons and the
functions below: no attribute, no import and no other call.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping
from typing import Any

from xstage_tune.base.errors import UsageError

_FUNCTIONS = {"min": min, "max": max, "abs": abs, "ceil": math.ceil, "floor": math.floor, "log2": math.log2}


class Constraint:
    """One expression.

    Args:
        text: as the file has it.
        known: names that it may use.

    Raises:
        UsageError: it is no expression, or uses a name that is unknown.
    """

    def __init__(self, text: str, known: Iterable[str]) -> None:
        from simpleeval import SimpleEval  # not at the top: a lookup checks no constraint

        self.text = text = " ".join(text.split())  # it may stand on several lines
        self._evaluator = SimpleEval(functions=_FUNCTIONS)
        try:
            self._parsed = SimpleEval.parse(text)
        except Exception as error:  # the parser's own, and simpleeval's
            raise UsageError(f"constraint '{text}': {_reason(error)}") from None
        used = {node.id for node in ast.walk(self._parsed) if isinstance(node, ast.Name)} - set(_FUNCTIONS)
        if unknown := sorted(used - set(known)):
            raise UsageError(
                f"constraint '{text}': '{unknown[0]}' is neither an axis nor a key",
                f"there are {', '.join(sorted(known))}; and {', '.join(_FUNCTIONS)}",
            )
        #: The names that it depends on, sorted.
        self.names = tuple(sorted(used))
        self._known: dict[tuple[Any, ...], bool] = {}

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it holds of a config; each combination of the values that it uses is evaluated once.

        Raises:
            UsageError: it cannot be evaluated; says for which values.
        """
        key = tuple(values[name] for name in self.names)
        if key not in self._known:
            self._evaluator.names = dict(zip(self.names, key, strict=True))
            try:
                self._known[key] = bool(self._evaluator.eval(self.text, previously_parsed=self._parsed))
            except Exception as error:
                at = ", ".join(f"{name} = {value}" for name, value in self._evaluator.names.items())
                raise UsageError(f"constraint '{self.text}' at {at}: {_reason(error)}") from None
        return self._known[key]


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
