"""The X-Stage paper's seven MoE models, as far as their shapes are public."""

from __future__ import annotations

#: Name in the paper's tables to workload profile. The shape of the paper's DiT-MoE is not published:
#: the public DiT-MoE-G/2 stands in for it, and its tile times must not be compared with Table 2.
PAPER_MOE_MODELS: dict[str, str] = {
    "DiT-MoE": "megamoe/dit-moe-g-2",
    "Qwen3.5": "megamoe/qwen3.5-397b-a17b",
    "Hy3": "megamoe/hy3-preview",
    "MiMo-V2.5": "megamoe/mimo-v2.5",
    "GLM-5.2": "megamoe/glm-5.2",
    "DSv4-Flash": "megamoe/deepseek-v4-flash",
    "DSv4-Pro": "megamoe/deepseek-v4-pro",
}

#: Tokens of each of the 8 ranks in Table 2: 55,808 in all.
PAPER_TOKENS_PER_RANK = 6976
