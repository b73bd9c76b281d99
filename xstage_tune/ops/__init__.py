"""The fused kernels on torch tensors, for use outside the command line."""

from xstage_tune.families.attention_a2a.defaults import default_attention_config
from xstage_tune.ops.attention import attention_a2a
from xstage_tune.ops.group import check_group, close_group
from xstage_tune.ops.moe import mega_moe

__all__ = ["attention_a2a", "check_group", "close_group", "default_attention_config", "mega_moe"]
