"""The design test of a workload on a platform: will it stall, and what to do. Closed forms only."""
