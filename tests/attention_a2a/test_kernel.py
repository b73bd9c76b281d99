"""The kernel's host side without a GPU: what it refuses, and the CTAs of its launches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.attention_a2a.cases import config
from xstage_tune.base.errors import DeviceError, ExitCode, UsageError
from xstage_tune.base.spans import LANE_DTYPE
from xstage_tune.cuda import attention_kernel, fused_loading
from xstage_tune.cuda.attention_arguments import attention_arguments
from xstage_tune.cuda.attention_kernel import AttentionA2A
from xstage_tune.cuda.attention_shape import AttentionShape, Destinations
from xstage_tune.families.attention_a2a.config import AttentionConfig

SHAPE = AttentionShape(1000, 2, 128)


def fake_gpu(major: int = 9, minor: int = 0, name: str = "NVIDIA H200") -> Any:
    return SimpleNamespace(name=name, compute_capability=SimpleNamespace(major=major, minor=minor))


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's cache out of it."""
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "gpu", [fake_gpu(8, 0, "NVIDIA A100"), fake_gpu(10, 0, "NVIDIA B200")], ids=lambda gpu: gpu.name
)
def test_other_gpus_are_told_what_is_needed(gpu: Any) -> None:
    with pytest.raises(DeviceError, match=rf"{gpu.name} has compute capability .* needs 9\.0") as error:
        AttentionA2A(gpu, SHAPE, config())
    assert error.value.exit_code is ExitCode.ENVIRONMENT


def test_a_variant_that_spills_is_refused() -> None:
    """192 rows of 144 scores: 72 + 64 registers, besides what a consumer needs, are more than 160."""
    with pytest.raises(UsageError, match=r"192x144.* does not compile to a usable kernel: it spills"):
        AttentionA2A(fake_gpu(), SHAPE, config(block_m=192, block_n=144))


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_scales_that_are_no_positive_number_are_refused(scale: float) -> None:
    with pytest.raises(UsageError, match="is not positive"):
        AttentionA2A(fake_gpu(), SHAPE, config(), softmax_scale=scale)


def test_one_kv_tile_cannot_be_split() -> None:
    split = config(output_staging="dedicated-x1", kv_splits=2)
    with pytest.raises(UsageError, match="nothing to split: 128 KV rows are one tile of 128"):
        AttentionA2A(fake_gpu(), AttentionShape(128, 2, 128), split)


@pytest.mark.parametrize(
    ("inputs", "name"),
    [((0x1008, 0x2000, 0x3000), "q"), ((0x1000, 0, 0x3000), "k"), ((0x1000, 0x2000, -16), "v")],
)
def test_inputs_that_the_copy_engine_cannot_read_are_named(inputs: tuple[int, int, int], name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is at"):
        attention_arguments(SHAPE, config(), inputs, Destinations((0x4000,)), 0.1)


class HostMemory:
    """Of no GPU: only its size."""

    def __init__(self, _: Any, nbytes: int, *__: Any) -> None:
        self.nbytes = nbytes

    @classmethod
    def zeroed(cls, device: Any, nbytes: int) -> HostMemory:
        return cls(device, nbytes)


@pytest.mark.parametrize(
    ("variant", "tokens", "ctas", "lanes"),
    [
        # 132 SMs, two heads. Eight tiles a head: fewer than SMs; 100 a head: more.
        (config(), 1000, 16, 32),
        (config(), 12_800, 132, 264),
        (config(block_m=192, block_n=80), 12_800, 132, 396),
        (config(output_staging="dedicated-x1", kv_splits=2), 1000, 32, 32),
        (config(output_staging="dedicated-x1", kv_splits=2), 12_800, 132, 132),
    ],
    ids=["few", "many", "three warpgroups", "few pairs", "many pairs"],
)
def test_tiles_have_at_most_a_cta_an_sm_or_a_pair_of_two(
    monkeypatch: pytest.MonkeyPatch, variant: AttentionConfig, tokens: int, ctas: int, lanes: int
) -> None:
    gpu = fake_gpu()
    gpu.properties = SimpleNamespace(multiprocessor_count=132)
    entry = SimpleNamespace(spill_bytes=0)
    compiled = SimpleNamespace(entries={attention_kernel.KERNEL: entry}, warnings=())
    for name, fake in (
        ("compile_fused", lambda _: compiled),
        ("load_kernels", lambda *_: {attention_kernel.KERNEL: None}),
        ("allow_shared_memory", lambda *_: None),
        ("load_epoch_kernels", lambda _: {}),
        ("GpuMemory", HostMemory),
    ):
        monkeypatch.setattr(attention_kernel, name, fake)
    monkeypatch.setattr(fused_loading, "GpuMemory", HostMemory)
    kernel = AttentionA2A(gpu, AttentionShape(tokens, 2, 128), variant, record_spans=True)
    assert kernel.ctas == ctas
    assert kernel._recording is not None
    assert kernel._recording.lanes.nbytes == lanes * LANE_DTYPE.itemsize
