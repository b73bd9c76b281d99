"""Spans of an attention launch by output tile: Q-loop, wait for a staging slot, and T_RS.

Where CTAs share a tile, that is by each CTA's part of it, which one of its warpgroups finishes and stores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.spans import SpanKind, SpanTable
from xstage_tune.families.attention_a2a.budget import finishing_warpgroups
from xstage_tune.families.attention_a2a.order import AttentionGrid, attention_order
from xstage_tune.families.attention_a2a.timing import ProfileCase, SpanFigures
from xstage_tune.families.profiled import distribution

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TileSpans:
    """``[tiles, lanes of a CTA]`` each, in ns, of the tiles whose spans were all kept.

    Args:
        remote: ``[tiles]`` whether a tile has rows whose owner's buffer is on the path.
        issue_begin_ns, issue_end_ns: on the launch's common axis.
    """

    remote: NDArray[np.bool_]
    q_loop_ns: Floats
    staging_wait_ns: Floats
    issue_begin_ns: Floats
    issue_end_ns: Floats

    @property
    def issue_ns(self) -> Floats:
        """T_RS of whole tiles, ``[tiles]``."""
        whole: Floats = self.issue_end_ns.max(axis=1) - self.issue_begin_ns.min(axis=1)
        return whole


def tile_spans(table: SpanTable, case: ProfileCase, *, remote: bool) -> TileSpans:
    """The spans of a launch, tile by tile.

    Args:
        table: lane ``cta * lanes of a CTA + warpgroup``; ``index`` is the tile's number on its CTA.
        remote: False for a launch that stores nothing remotely.
    """
    groups = finishing_warpgroups(case.config)
    lanes, spans = len(table.lanes), table.spans
    ctas = lanes // groups
    per_cta = 1 + int(spans["index"].max(initial=0))
    begin_ns, end_ns = table.begin_ns(), table.end_ns()

    def grid_of(kind: SpanKind, values: Floats) -> Floats:
        grid = np.full((lanes, per_cta), np.nan)
        chosen = spans["kind"] == kind
        grid[spans["lane"][chosen], spans["index"][chosen]] = values[chosen]
        by_tile: Floats = grid.reshape(ctas, groups, per_cta).transpose(0, 2, 1).reshape(-1, groups)
        return by_tile

    q_loop_ns = grid_of(SpanKind.MAINLOOP, end_ns - begin_ns)
    wait_ns = grid_of(SpanKind.STAGING_STALL, end_ns - begin_ns)
    issue_begin, issue_end = grid_of(SpanKind.ISSUE, begin_ns), grid_of(SpanKind.ISSUE, end_ns)
    whole = np.isfinite(q_loop_ns + wait_ns + issue_end).all(axis=1)
    remote_tile = remote_tiles(case, ctas, per_cta) if remote else np.zeros(whole.size, np.bool_)
    return TileSpans(
        remote_tile[whole], q_loop_ns[whole], wait_ns[whole], issue_begin[whole], issue_end[whole]
    )


def remote_tiles(case: ProfileCase, ctas: int, per_cta: int) -> NDArray[np.bool_]:
    """Whether what each CTA stores of its i-th tile has rows of a remote rank, ``[ctas * per_cta]``."""
    grid = AttentionGrid(
        case.heads,
        case.tokens,
        case.config.block_m,
        ctas,
        case.ranks,
        local_ranks=case.local_ranks,
        kv_splits=case.config.kv_splits,
    )
    order = attention_order(grid, case.config.tile_order)
    remote = np.zeros((ctas, per_cta), np.bool_)
    for cta in range(ctas):
        of_cta = order.remote_rows[order.first[cta] : order.first[cta + 1]] > 0
        remote[cta, : min(per_cta, of_cta.size)] = of_cta[:per_cta]
    return remote.ravel()


def span_figures(table: SpanTable, case: ProfileCase, *, remote: bool) -> SpanFigures:
    """Distributions of a launch's spans; see :func:`tile_spans`."""
    tiles = tile_spans(table, case, remote=remote)
    stores = tiles.remote if remote and case.remote_ranks else np.ones(tiles.remote.size, np.bool_)
    warpgroup_issue = (tiles.issue_end_ns - tiles.issue_begin_ns)[stores].ravel()
    first_ns, last_ns = table.lanes["timer_begin_ns"].min(), table.lanes["timer_end_ns"].max()
    return SpanFigures(
        launch_ns=float(last_ns - first_ns),
        tiles=tiles.remote.size,
        dropped=table.dropped(),
        q_loop=distribution(tiles.q_loop_ns.mean(axis=1)),
        staging_wait=distribution(tiles.staging_wait_ns.max(axis=1)),
        issue=distribution(tiles.issue_ns[stores]),
        warpgroup_issue=distribution(warpgroup_issue),
    )
