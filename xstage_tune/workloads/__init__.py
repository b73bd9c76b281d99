"""Workload profiles: shapes, routing and the loader."""
