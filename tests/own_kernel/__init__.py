"""Kernels of the user's own."""
