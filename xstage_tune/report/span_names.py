"""What a trace calls spans: by their kind, and where the tiles are known by what these are and store."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.spans import SpanKind
from xstage_tune.report.figure import Ints

_PLAIN = {
    SpanKind.ISSUE: "issue",
    SpanKind.MAINLOOP: "mainloop",
    SpanKind.STAGING_STALL: "staging stall",
    SpanKind.DEPENDENCY_WAIT: "dependency wait",
}
_LAYERS = ("Linear-1 ", "Linear-2 ")
_STORES = ("local", "remote")
_ISSUES = tuple(f"{layer}issue, {stores} stores" for layer in ("", *_LAYERS) for stores in _STORES)
_MAINLOOPS = ("Q-loop", *(f"{layer}mainloop" for layer in _LAYERS))
#: A span's number in :func:`name_numbers` is the place of its name.
NAMES = ("", *(_PLAIN[kind] for kind in sorted(_PLAIN)), *_MAINLOOPS, *_ISSUES)
_FIRST_MAINLOOP, _FIRST_ISSUE = NAMES.index(_MAINLOOPS[0]), NAMES.index(_ISSUES[0])


@dataclass(frozen=True, slots=True)
class TileKinds:
    """The tiles of a launch, whose spans' ``index`` is a tile's place on its lane.

    Args:
        first: ``[lanes + 1]`` where each lane's tiles begin.
        remote: ``[n]`` whether a tile stores to another GPU.
        linear2: ``[n]`` whether a tile is of Linear-2; None for attention.
    """

    first: Ints
    remote: NDArray[np.bool_]
    linear2: NDArray[np.bool_] | None


def name_numbers(spans: NDArray[np.void], tiles: TileKinds | None) -> NDArray[np.uint8]:
    """Which of :data:`NAMES` each span has; ``[n]`` as ``spans`` (of :data:`SPAN_DTYPE`)."""
    numbers: NDArray[np.uint8] = spans["kind"].astype(np.uint8)
    if tiles is None:
        return numbers
    tile = tiles.first[spans["lane"]] + spans["index"]
    layer = np.zeros(len(spans), np.uint8) if tiles.linear2 is None else 1 + tiles.linear2[tile]
    numbers = np.where(spans["kind"] == SpanKind.MAINLOOP, _FIRST_MAINLOOP + layer, numbers)
    issues = _FIRST_ISSUE + len(_STORES) * layer + tiles.remote[tile]
    return np.where(spans["kind"] == SpanKind.ISSUE, issues, numbers).astype(np.uint8)
