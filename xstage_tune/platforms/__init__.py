"""Calibrated platforms and GPUs: schema, files, and queries of T0, R, Q and what else they know."""
