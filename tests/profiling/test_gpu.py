"""A profile run on a real GPU: right outputs of all implementations, plausible times, every tile's spans."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attention_a2a.cases import config
from xstage_tune.base.fabric import StorePath
from xstage_tune.cuda.attention_profiles import CudaAttentions
from xstage_tune.cuda.device import CudaDevice
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.timing import (
    IMPLEMENTATIONS,
    RECORDING,
    AttentionLaunch,
    ProfileCase,
    SpanFigures,
    replays,
)
from xstage_tune.families.profiled import CheckFigures, ReplayFigures

pytestmark = pytest.mark.gpu

TALL = config(block_m=192, tile_order="rotated")
CASES = [
    (1, 7, "host", config()),
    (997, 7, "host", config(output_staging="alias-v", store_flavour="tma")),
    (4608, 8, "host", TALL),
    (4608, 7, "local", TALL),
    (8192, 7, "host", config(block_n=176, output_staging="alias-v", tile_order="spread")),
    (9000, 7, "host", config(block_n=160, output_staging="dedicated-x1", tile_order="own-last")),
]


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    gpu = Gpu.open(0)
    opened = CudaDevice(gpu, [CudaAttentions(gpu)])
    yield opened
    opened.close()


@pytest.fixture(params=CASES, ids=[f"{tokens}, {remote} of 8 on {path}" for tokens, remote, path, _ in CASES])
def case(request: pytest.FixtureRequest) -> ProfileCase:
    chosen: tuple[int, int, StorePath, AttentionConfig] = request.param
    tokens, remote_ranks, path, config = chosen
    return ProfileCase("", tokens, 3, 128, 8, remote_ranks, config, path, seed=tokens)


def test_all_outputs_are_right_before_and_after_replays(device: CudaDevice, case: ProfileCase) -> None:
    for _ in range(2):
        for checked in device.run([AttentionLaunch(case, one, "check") for one in IMPLEMENTATIONS]):
            assert isinstance(checked.figures, CheckFigures)
            assert (checked.figures.place, checked.verification.mismatched_bytes) == ("", 0)
        in_turn = (*IMPLEMENTATIONS, *RECORDING.values())
        samples = list(device.run([*replays(case, ["fused"]), *replays(case, in_turn)]))
        assert [one.launch.implementation for one in samples] == ["fused", *in_turn]
        for sample in samples:
            assert isinstance(sample.figures, ReplayFigures)
            assert 1e3 < sample.figures.time_ns < 1e8


def test_spans_of_every_tile(device: CudaDevice, case: ProfileCase) -> None:
    for recorded in device.run([AttentionLaunch(case, one, "spans") for one in RECORDING]):
        figures = recorded.figures
        assert isinstance(figures, SpanFigures)
        assert figures.dropped == 0
        assert figures.tiles > 0
        assert figures.q_loop is not None
        assert figures.q_loop.p50_ns > 0
