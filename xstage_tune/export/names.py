"""Names of the formats, apart from what writes them, so that the command line starts fast."""

from __future__ import annotations

from enum import StrEnum


class ExportFormat(StrEnum):
    """``json`` and ``toml`` are read back by the lookup; the others are for other programs.

    The last three, :data:`FRAMEWORKS`, need a template.
    """

    JSON = "json"
    TOML = "toml"
    HEADER = "header"
    KERNEL_TUNER = "kernel-tuner"
    T4 = "t4"
    VLLM_FUSED_MOE = "vllm-fused-moe"
    SGLANG_FUSED_MOE = "sglang-fused-moe"
    SGLANG_DEEPEP = "sglang-deepep"


FRAMEWORKS = frozenset(
    (ExportFormat.VLLM_FUSED_MOE, ExportFormat.SGLANG_FUSED_MOE, ExportFormat.SGLANG_DEEPEP)
)
