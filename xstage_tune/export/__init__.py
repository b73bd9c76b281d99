"""Tuned configs as files, and their lookup when a kernel is launched."""
