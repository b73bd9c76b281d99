"""The design test in a sentence."""

from __future__ import annotations

import pytest

from tests.audit.cases import paper_platform
from xstage_tune.audit.run import audit
from xstage_tune.families.binding import default_config
from xstage_tune.families.megamoe.config import Schedule
from xstage_tune.families.workload_files import load_workload
from xstage_tune.report.sentences import verdict_sentence


@pytest.mark.parametrize(
    ("lead_rows", "gap", "bounds"),
    [
        (8, "Its gap of 13.15 us is at least G*", ", but the"),  # only the capacity is exceeded
        (4, "Its gap of 4.403 us (the wave's: its lead is below D_knee) is below G*", ", and the"),
    ],
)
def test_bounds_that_differ_are_set_against_each_other(lead_rows: int, gap: str, bounds: str) -> None:
    workload, platform = load_workload("megamoe/deepseek-v4-flash"), paper_platform()
    schedule = Schedule(kind="interleaved", lead_rows=lead_rows)
    config = default_config(workload, platform).model_copy(update={"schedule": schedule})
    words = verdict_sentence(audit(workload, platform, config), "the answer")
    assert gap in words
    assert bounds in words
    assert "exceed Q" in words
