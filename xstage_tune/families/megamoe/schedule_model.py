"""What an export says of a MoE layer, so that its schedule is chosen for the routing at hand."""

from __future__ import annotations

from xstage_tune.base.field_types import Count, Finite, Positive, Strict


class ScheduleModel(Strict):
    """Closed-form terms with which a MoE layer's schedule is chosen for the routing at hand.

    Times and bytes are of a full tile of the tuned config; see :mod:`xstage_tune.export.schedule_choice`.
    """

    sms: Count
    l1_tiles: Count  # N-tiles of a row
    l2_tiles: Count
    l1_mainloop_ns: Positive
    l2_mainloop_ns: Positive
    l1_handover_ns: Positive  # from the end of a Linear-1 mainloop until other SMs may read its output
    tile_bytes: Finite  # remote bytes of a Linear-2 tile, mean over a row's
    drain_bytes_per_s: Positive
    capacity_bytes: Positive
    l1_weight_tile_bytes: Positive
    l2_weight_tile_bytes: Positive
    row_output_bytes: Positive  # Linear-1 output of a row
    cache_bytes: Positive
    memory_bytes_per_s: Positive
    lead_rows: Count  # D to run with
    experts_per_wave: Count
