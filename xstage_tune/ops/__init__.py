"""The fused kernels on torch tensors, for use outside the command line."""

from xstage_tune.ops.attention import attention_a2a, default_attention_config

__all__ = ["attention_a2a", "default_attention_config"]
