"""Names of the formats, apart from what writes them, so that the command line starts fast."""

from __future__ import annotations

from enum import StrEnum


class ExportFormat(StrEnum):
    """``json`` and ``toml`` are read back by the lookup; the others are for other programs."""

    JSON = "json"
    TOML = "toml"
    HEADER = "header"
    KERNEL_TUNER = "kernel-tuner"
    T4 = "t4"
