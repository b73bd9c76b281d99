"""The fused MoE layer: dispatch, Linear-1, SwiGLU, Linear-2, Combine as remote stores."""
