"""The kernel's host side without a GPU: what it refuses, and the CTAs of its launches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.attention_a2a.cases import config
from xstage_tune.base.errors import DeviceError, ExitCode, UsageError
from xstage_tune.base.spans import LANE_DTYPE
from xstage_tune.cuda import attention_kernel, attention_maps, fused_loading
from xstage_tune.cuda.attention_arguments import attention_arguments
from xstage_tune.cuda.attention_epochs import Receipt
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


def gpu_without_kernels(monkeypatch: pytest.MonkeyPatch) -> Any:
    """One with 132 SMs, where nothing is compiled or loaded."""
    gpu = fake_gpu()
    gpu.properties = SimpleNamespace(multiprocessor_count=132)
    entry = SimpleNamespace(spill_bytes=0)
    compiled = SimpleNamespace(entries={attention_kernel.KERNEL: entry}, warnings=())
    for name, fake in (
        ("compile_fused", lambda _: compiled),
        ("load_kernels", lambda *_: {attention_kernel.KERNEL: None}),
        ("allow_shared_memory", lambda *_: None),
        ("load_epoch_kernels", lambda _: {}),
    ):
        monkeypatch.setattr(attention_kernel, name, fake)
    return gpu


def test_a_launch_that_receives_is_told_so_in_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole clusters that receive, behind those that compute; each launch has the number of the next call."""
    queued: list[tuple[int, Any]] = []

    def launch(_kernel: Any, grid: int, _threads: int, _shared: int, arguments: Any) -> Any:
        def queue(_stream: int) -> None:
            queued.append((grid, arguments[0].copy()))

        return SimpleNamespace(arguments=arguments, queue=queue)

    monkeypatch.setattr(attention_kernel, "Launch", launch)
    monkeypatch.setattr(attention_maps, "encode_map", lambda *_, **__: np.zeros(128, np.uint8))
    split = config(output_staging="dedicated-x1", kv_splits=2)
    kernel = AttentionA2A(gpu_without_kernels(monkeypatch), AttentionShape(1000, 2, 128, 2), split)
    exchange: Any = SimpleNamespace(address=0x40, numbers=iter((2**32 + 1, 3)))
    nbytes = 3 * (64 << 10)
    ranks = Destinations((0x1000, 0x2000), 1 << 20, (0x100, 0x200))
    prepared = kernel.prepare(16, 32, 48, ranks, exchange=exchange, receipt=Receipt(0x80, 0x1000, nbytes))
    prepared.output.value, prepared.timeout_ns.value = 0x9000, 7
    for call in (1, 3):
        prepared.queue(5)
        grid, arguments = queued.pop()
        assert (int(arguments["ctas"]), grid) == (32, 36)
        assert arguments["receipt"].tolist() == (0x80, 0x1000, 0x9000, 7, nbytes // 16, 2, 4, 0)
        named = ("exchange", "complete", "call")
        assert [int(arguments[name]) for name in named] == [0x40, 2, call]
    with pytest.raises(UsageError, match="need an exchange"):
        kernel.prepare(16, 32, 48, ranks)


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
    gpu = gpu_without_kernels(monkeypatch)
    monkeypatch.setattr(fused_loading, "GpuMemory", HostMemory)
    kernel = AttentionA2A(gpu, AttentionShape(tokens, 2, 128), variant, record_spans=True)
    assert kernel.ctas == ctas
    assert kernel._recording is not None
    assert kernel._recording.lanes.nbytes == lanes * LANE_DTYPE.itemsize
