"""Kernel families: what a fused kernel's workload and config mean for its tiles, times and limits."""
