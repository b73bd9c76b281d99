"""Runs that compare: a schedule emulated, a fused kernel timed beside its baselines."""
