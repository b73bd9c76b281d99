"""An export as text in each of its formats."""

from __future__ import annotations

import json
from collections.abc import Callable

import tomli_w

from xstage_tune.base.json_output import to_json
from xstage_tune.export.header import to_header
from xstage_tune.export.history import History, to_kernel_tuner, to_t4
from xstage_tune.export.names import ExportFormat
from xstage_tune.export.record import sealed

_RENDERERS: dict[ExportFormat, Callable[[History], str]] = {
    ExportFormat.JSON: lambda history: to_json(sealed(history.tuned.keys())),
    ExportFormat.TOML: lambda history: tomli_w.dumps(sealed(history.tuned.keys())),
    ExportFormat.HEADER: lambda history: to_header(history.tuned),
    # Kernel Tuner appends to the file at its end, so there the order of keys matters.
    ExportFormat.KERNEL_TUNER: lambda history: json.dumps(to_kernel_tuner(history), indent=2) + "\n",
    ExportFormat.T4: lambda history: to_json(to_t4(history)),
}


def render(history: History, to: ExportFormat) -> str:
    """A study as text in one of the formats; the same study gives the same text."""
    return _RENDERERS[to](history)
