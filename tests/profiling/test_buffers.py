"""The serial All-to-All from the attention's output to every rank's buffer and back, all in host memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.configs.cases import attention_config
from xstage_tune.base.bf16 import Bits
from xstage_tune.cuda import attention_buffers, serial_a2a
from xstage_tune.cuda.attention_buffers import AttentionBuffers
from xstage_tune.cuda.attention_shape import AttentionShape
from xstage_tune.cuda.serial_a2a import SERIAL, SerialA2A
from xstage_tune.families.attention_a2a.check import POISON_BITS, random_inputs
from xstage_tune.families.attention_a2a.timing import ProfileCase

#: What may not be written beyond an allocation.
_GUARD_BYTES = 64


class HostMemory:
    """Memory of the host with the interface of both kinds."""

    def __init__(self, nbytes: int) -> None:
        self._whole = np.zeros(nbytes + 2 * _GUARD_BYTES, np.uint8)
        self.bytes = self._whole[_GUARD_BYTES : _GUARD_BYTES + nbytes]
        self.address, self.nbytes = self.bytes.ctypes.data, nbytes

    def write(self, values: Bits, _: Any) -> None:
        self.bytes[:] = values.view(np.uint8).ravel()

    def read_into(self, target: Bits, _: Any) -> None:
        ctypes.memmove(target.ctypes.data, self.address, target.nbytes)

    def read_rows_into(self, target: Bits, pitch_bytes: int, _: Any) -> None:
        width = target.nbytes // len(target)
        for row in range(len(target)):
            ctypes.memmove(target[row:].ctypes.data, self.address + row * pitch_bytes, width)

    def close(self) -> None:
        """Nothing to free; but nothing beyond may have been written."""
        assert not self._whole[:_GUARD_BYTES].any()
        assert not self._whole[_GUARD_BYTES + self.nbytes :].any()


class GpuHostMemory(HostMemory):
    def __init__(self, _: Any, nbytes: int, __: Any) -> None:
        super().__init__(nbytes)


class PinnedHostMemory(HostMemory):
    def __enter__(self) -> PinnedHostMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def succeed(move: Callable[..., Any]) -> Callable[..., tuple[int]]:
    """As a driver call."""

    def call(*arguments: Any) -> tuple[int]:
        move(*arguments)
        return (0,)

    return call


def copy_rows(copy: Any, _: Any) -> None:
    for row in range(copy.Height):
        source, target = int(copy.srcDevice) + row * copy.srcPitch, int(copy.dstDevice) + row * copy.dstPitch
        ctypes.memmove(target, source, copy.WidthInBytes)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, library: ctypes.CDLL) -> Any:
    """A GPU whose memory, copies and kernels are the host's."""
    driver = SimpleNamespace(
        cuMemsetD16=succeed(lambda at, bits, n: ctypes.memmove(at, bits.to_bytes(2, "little") * n, 2 * n)),
        cuCtxSynchronize=succeed(lambda: None),
        cuMemcpy2DAsync=succeed(copy_rows),
        cuMemcpyAsync=succeed(lambda to, source, nbytes, _: ctypes.memmove(to, source, nbytes)),
        CUDA_MEMCPY2D=SimpleNamespace,
        CUmemorytype=SimpleNamespace(CU_MEMORYTYPE_UNIFIED=4),
        CUstream=int,
    )
    for module in (attention_buffers, serial_a2a):
        monkeypatch.setattr(module, "driver", driver)
        monkeypatch.setattr(module, "check", lambda status, _: status)
    monkeypatch.setattr(attention_buffers, "GpuMemory", GpuHostMemory)
    monkeypatch.setattr(attention_buffers, "PinnedMemory", PinnedHostMemory)
    monkeypatch.setattr(attention_buffers, "free_bytes", lambda _: 1 << 40)

    def launch(name: str, _: Any, *, grid: tuple[int, int], arguments: Any, **__: Any) -> None:
        run = getattr(library, f"run_{name}")
        assert run(ctypes.c_void_p(arguments.ctypes.data), grid[0]) is None

    monkeypatch.setattr(serial_a2a, "launch", launch)
    loaded = SimpleNamespace(kernels={name: name for name in SERIAL.names}, compiled=None)
    device = SimpleNamespace(name="host", device_id=0, set_current=lambda: None)
    return SimpleNamespace(device=device, stream=SimpleNamespace(handle=0), sm_count=1, load=lambda _: loaded)


@pytest.mark.parametrize("way", ["store", "copy", "permute"])
@pytest.mark.parametrize(
    ("tokens", "ranks", "remote_ranks"),
    [(1, 8, 7), (1, 1, 0), (37, 4, 3), (37, 4, 4), (64, 8, 4), (61, 8, 0)],
)
def test_every_way_brings_every_row_to_its_rank(
    gpu: Any, tokens: int, ranks: int, remote_ranks: int, way: str
) -> None:
    case = ProfileCase("", tokens, 2, 64, ranks, remote_ranks, attention_config(), "host")
    shape = AttentionShape(tokens, 2, 64, ranks)
    inputs = random_inputs(tokens, 2, 64, seed=5)
    buffers, serial = AttentionBuffers(gpu, case, shape, inputs), SerialA2A(gpu, shape)
    source = buffers.inputs[2]  # any [tokens, heads, head_dim] in the GPU's memory
    buffers.poison_ranks()
    assert (buffers.read_ranks(received=False) == POISON_BITS).all()
    if way == "store":
        serial.store(source, buffers.destinations, gpu.stream)
    elif way == "copy":
        serial.copy(source, buffers.destinations, gpu.stream)
    else:
        serial.copy_and_permute(source, buffers.receivers, buffers.received, buffers.permuted, gpu.stream)
    assert np.array_equal(buffers.read_ranks(received=way == "permute"), inputs.value)
    buffers.close()
    buffers.close()


def test_the_attention_s_own_output_is_poisoned_and_read(gpu: Any) -> None:
    case = ProfileCase("", 9, 2, 64, 4, 3, attention_config(), "host")
    buffers = AttentionBuffers(gpu, case, AttentionShape(9, 2, 64, 4), random_inputs(9, 2, 64, seed=5))
    buffers.poison_output()
    found = buffers.read_output()
    assert found.shape == (9, 2, 64)
    assert (found == POISON_BITS).all()
    buffers.close()
