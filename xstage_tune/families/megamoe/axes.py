"""Axes of a MegaMoE search that are not keys of its config."""

from __future__ import annotations

SCHEDULE = "schedule"
#: Axes that only exist under one schedule.
CONDITIONAL = {"experts_per_wave": "wave", "lead_rows": "interleaved"}
#: Of a schedule; no axis of its own, and left out of a config's values where it is "even".
PLACEMENT = "placement"
