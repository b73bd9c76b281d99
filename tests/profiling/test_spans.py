"""Spans of warpgroups become Q-loops, waits and T_RS of tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.configs.cases import attention_config
from tests.profiling.gpu import LOCAL_ISSUE_NS, Q_LOOP_NS, REMOTE_ISSUE_NS, WAIT_NS, spans_of
from xstage_tune.base.spans import SpanKind, SpanTable
from xstage_tune.families.attention_a2a.budget import finishing_warpgroups
from xstage_tune.families.attention_a2a.spans import span_figures, tile_spans
from xstage_tune.families.attention_a2a.timing import ProfileCase
from xstage_tune.families.profiled import distribution, sampled_ctas

#: 3 heads of 8 tiles; ranks own one tile each.
CASE = ProfileCase("", 1024, 3, 128, 8, 7, attention_config(tile_order="rotated"), "host")


def test_a_tile_s_span_reaches_from_its_first_warpgroup_to_its_last() -> None:
    figures = span_figures(spans_of(CASE, remote=True), CASE, remote=True)
    assert figures.tiles == 24
    assert figures.q_loop is not None
    assert figures.q_loop.p50_ns == pytest.approx(Q_LOOP_NS)
    assert figures.staging_wait is not None
    assert figures.staging_wait.max_ns == pytest.approx(WAIT_NS)
    assert figures.issue is not None
    assert figures.issue.mean_ns == pytest.approx(REMOTE_ISSUE_NS + 50)  # the second begins 50 ns later
    assert figures.warpgroup_issue is not None
    assert figures.warpgroup_issue.mean_ns == pytest.approx(REMOTE_ISSUE_NS)


def test_remote_spans_are_of_tiles_with_remote_rows() -> None:
    """Rank 0's own tile is local: 7 of 8 tiles of each head are remote, and two warpgroups store each."""
    figures = span_figures(spans_of(CASE, remote=True), CASE, remote=True)
    assert figures.issue is not None
    assert figures.issue.count == 21
    assert figures.warpgroup_issue is not None
    assert figures.warpgroup_issue.count == 42
    tiles = tile_spans(spans_of(CASE, remote=True, ctas=24), CASE, remote=True)
    # In rotated order a head begins at the tokens of rank 1, and its own come last.
    assert tiles.remote.reshape(3, 8).all(axis=0).tolist() == [True] * 7 + [False]


def test_a_tile_that_straddles_a_local_and_a_remote_rank_is_remote() -> None:
    case = replace(CASE, tokens=1000, config=attention_config())  # 125 tokens a rank
    tiles = tile_spans(spans_of(case, remote=True, ctas=24), case, remote=True)
    assert tiles.remote.all()


def test_the_attention_alone_is_the_local_control_of_every_tile() -> None:
    figures = span_figures(spans_of(CASE, remote=False), CASE, remote=False)
    assert figures.issue is not None
    assert figures.issue.count == 24
    assert figures.issue.mean_ns == pytest.approx(LOCAL_ISSUE_NS + 50)


def test_tiles_with_dropped_spans_are_left_out() -> None:
    table = spans_of(CASE, remote=True, ctas=6)  # four tiles a CTA
    lost = (table.spans["lane"] == 3) & (table.spans["index"] == 3) & (table.spans["kind"] == SpanKind.ISSUE)
    lanes = table.lanes.copy()
    lanes["dropped"][3] = 1
    figures = span_figures(SpanTable(table.spans[~lost], lanes), CASE, remote=True)
    assert (figures.tiles, figures.dropped) == (23, 1)


def test_three_warpgroups_of_a_taller_tile() -> None:
    case = replace(CASE, config=attention_config(block_m=192, block_n=80, output_staging="alias-q"))
    figures = span_figures(spans_of(case, remote=True), case, remote=True)
    assert figures.tiles == 18
    assert figures.issue is not None
    assert figures.issue.mean_ns == pytest.approx(REMOTE_ISSUE_NS + 100)


def shared_tiles(**changes: Any) -> ProfileCase:
    """Two CTAs make each tile together."""
    config = attention_config(output_staging="dedicated-x1", kv_splits=2)
    return replace(CASE, **{"config": config} | changes)


def test_each_cta_of_a_split_tile_has_one_lane_with_its_part_of_it() -> None:
    case = shared_tiles()
    table = spans_of(case, remote=True)
    assert (finishing_warpgroups(CASE.config), finishing_warpgroups(case.config)) == (2, 1)
    assert len(table.lanes) == 48
    figures = span_figures(table, case, remote=True)
    assert figures.tiles == 48  # each a CTA's part
    assert figures.issue is not None
    assert figures.issue.count == 42
    assert figures.issue.mean_ns == pytest.approx(REMOTE_ISSUE_NS)
    assert figures.warpgroup_issue == figures.issue


def test_a_part_of_a_split_tile_is_remote_by_its_own_rows() -> None:
    """125 tokens a rank: of the first tile of a head only the second half has rows of rank 1."""
    case = shared_tiles(tokens=1000)
    tiles = tile_spans(spans_of(case, remote=True, ctas=48), case, remote=True)
    assert tiles.remote.reshape(3, 16).tolist() == [[False] + [True] * 15] * 3


def test_a_launch_without_kept_spans_has_no_distributions() -> None:
    table = spans_of(CASE, remote=True)
    figures = span_figures(SpanTable(table.spans[:0], table.lanes), CASE, remote=True)
    assert (figures.tiles, figures.q_loop, figures.issue) == (0, None, None)


def test_a_sample_keeps_whole_ctas() -> None:
    table = spans_of(CASE, remote=True)
    assert sampled_ctas(table, 2, 1000) is table
    few = sampled_ctas(table, 2, 40)
    assert 0 < len(few.spans) <= 60
    lanes = np.unique(few.spans["lane"])
    assert (lanes.reshape(-1, 2)[:, 0] + 1 == lanes.reshape(-1, 2)[:, 1]).all()
    assert few.lanes["recorded"].sum() == len(few.spans)
    assert len(few.lanes) == len(table.lanes)


def test_a_sample_of_split_tiles_is_of_lanes() -> None:
    table = spans_of(shared_tiles(), remote=True)
    few = sampled_ctas(table, 1, 40)
    assert np.unique(few.spans["lane"]).tolist() == list(range(0, 48, 4))


def test_distribution_by_hand() -> None:
    found = distribution(np.arange(101, dtype=np.float64))
    assert found is not None
    assert (found.count, found.mean_ns, found.p50_ns, found.p90_ns, found.p99_ns, found.max_ns) == (
        101, 50.0, 50.0, 90.0, 99.0, 100.0,
    )  # fmt: skip
    assert distribution(np.empty(0)) is None
