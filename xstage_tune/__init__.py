"""xstage-tune: measure how a GPU's remote stores drain, and tune fused kernels by it."""

__version__ = "0.1.0"
