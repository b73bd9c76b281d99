"""A MoE layer's profile on a real GPU: right outputs with fusion and without, spans of every schedule."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.configs.cases import moe
from xstage_tune.cuda.device import CudaDevice
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.moe_profiles import CudaLayers
from xstage_tune.cuda.moe_variants import SHIPPED
from xstage_tune.families.megamoe.config import Schedule
from xstage_tune.families.megamoe.timing import LayerCase, LayerLaunch, LayerSpans
from xstage_tune.families.megamoe.workload import Precision
from xstage_tune.families.profiled import CheckFigures, ReplayFigures

pytestmark = pytest.mark.gpu

SCHEDULES = (
    Schedule(kind="wave", experts_per_wave=1),
    Schedule(kind="interleaved", lead_rows=4),
    Schedule(kind="alternating"),
    Schedule(kind="clamped-lag"),
)


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    gpu = Gpu.open(0)
    opened = CudaDevice(gpu, [CudaLayers(gpu)])
    yield opened
    opened.close()


@pytest.fixture(params=SHIPPED)
def case(request: pytest.FixtureRequest) -> LayerCase:
    """Ragged rows, of which a CTA has several tiles."""
    pytest.importorskip("torch")
    precision: Precision = request.param
    workload = moe(precision=precision, top_k=4, tokens_per_rank=2047, routing={"kind": "zipf", "alpha": 1.0})
    base = SHIPPED[precision][0]
    configs = tuple((one.label, base.model_copy(update={"schedule": one})) for one in SCHEDULES)
    return LayerCase("", workload, configs, "host", seed=3, serial=True)


def test_all_outputs_are_right_before_and_after_replays(device: CudaDevice, case: LayerCase) -> None:
    for _ in range(2):
        for checked in device.run([LayerLaunch(case, one, "check") for one in case.checked]):
            assert isinstance(checked.figures, CheckFigures)
            assert (checked.figures.place, checked.verification.mismatched_bytes) == ("", 0)
        samples = list(device.run(LayerLaunch(case, case.timed[0], "replay", case.timed).turns()))
        assert [one.launch.implementation for one in samples] == list(case.timed)
        for sample in samples:
            assert isinstance(sample.figures, ReplayFigures)
            assert 1e3 < sample.figures.time_ns < 1e8


def test_spans_of_every_part(device: CudaDevice, case: LayerCase) -> None:
    parts = set()
    for recorded in device.run([LayerLaunch(case, one, "spans") for one in case.recorded]):
        figures = recorded.figures
        assert isinstance(figures, LayerSpans)
        assert figures.dropped == 0
        assert figures.issue is not None
        assert figures.stall is not None
        assert 0 < figures.active < 1
        parts.add(figures.parts)
    assert len(parts) == 1
