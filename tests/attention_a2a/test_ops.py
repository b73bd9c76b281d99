"""What the op refuses, before torch, a compiler or a GPU is needed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from xstage_tune.base.errors import DeviceError, UsageError
from xstage_tune.cuda.attention_shape import Destinations
from xstage_tune.cuda.attention_variants import SHIPPED
from xstage_tune.families.binding import default_config
from xstage_tune.families.workload_files import load_workload
from xstage_tune.ops import attention_a2a, default_attention_config
from xstage_tune.ops.runtime import torch_calls
from xstage_tune.ops.tensors import input_layout
from xstage_tune.platforms.loader import load_platform

H200 = load_platform("h200-peer")


@dataclass(frozen=True)
class FakeTensor:
    """As much of a tensor as is looked at."""

    shape: tuple[int, ...] = (1000, 3, 128)
    dtype: str = "torch.bfloat16"
    device: str = "cuda:0"
    is_cuda: bool = True
    strides: tuple[int, ...] | None = None
    requires_grad: bool = False

    def stride(self) -> tuple[int, ...]:
        return self.strides or (self.shape[1] * self.shape[2], self.shape[2], 1)

    def data_ptr(self) -> int:
        return 0x1000


GOOD = FakeTensor()


def test_layouts_of_plain_tensors_and_of_views_of_one() -> None:
    plain = input_layout(GOOD, GOOD, GOOD)
    assert (plain.tokens, plain.kv_tokens, plain.heads, plain.head_dim) == (1000, 1000, 3, 128)
    assert plain.strides == ((768, 256),) * 3
    packed = replace(GOOD, strides=(9 * 128, 3 * 128, 1))  # [tokens, heads, 3, head_dim]
    assert input_layout(packed, packed, GOOD).strides == ((2304, 768), (2304, 768), (768, 256))
    # Of a dimension of one the stride is anybody's.
    one = replace(GOOD, shape=(1, 1, 128), strides=(7, 5, 1))
    assert input_layout(one, one, one).strides == ((256, 256),) * 3


def test_keys_may_be_more_or_fewer_than_queries() -> None:
    text = replace(GOOD, shape=(77, 3, 128))
    layout = input_layout(GOOD, text, text)
    assert (layout.tokens, layout.kv_tokens) == (1000, 77)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (replace(GOOD, dtype="torch.float16"), "{} is float16: the kernel takes bfloat16"),
        (replace(GOOD, strides=(384, 1, 3)), "{} has strides"),
        (replace(GOOD, strides=(388, 128, 1)), "{} has strides"),
        (replace(GOOD, strides=(0, 128, 1)), "{} has strides"),
        (replace(GOOD, device="cpu", is_cuda=False), "{} is on cpu"),
        (replace(GOOD, shape=(1, 1000, 3, 128)), r"{} has shape \[1, 1000, 3, 128\]"),
    ],
)
@pytest.mark.parametrize("place", range(3))
def test_a_tensor_that_the_kernel_cannot_read_is_named(place: int, bad: FakeTensor, message: str) -> None:
    tensors = [GOOD, GOOD, GOOD]
    tensors[place] = bad
    with pytest.raises(UsageError, match=message.format("qkv"[place])):
        attention_a2a(*tensors, [0x1000])


@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("shape", [(999, 3, 128), (1000, 1, 128), (1000, 3, 64)])
def test_uneven_keys_and_values_and_grouped_heads_are_refused(place: int, shape: tuple[int, ...]) -> None:
    tensors = [GOOD, GOOD, GOOD]
    tensors[place] = replace(GOOD, shape=shape)
    with pytest.raises(UsageError, match="has shape"):
        attention_a2a(*tensors, [0x1000])


def test_tensors_of_two_gpus_are_refused() -> None:
    with pytest.raises(UsageError, match="k is on cuda:1 and q on cuda:0"):
        attention_a2a(GOOD, replace(GOOD, device="cuda:1"), GOOD, [0x1000])


def test_no_tokens_are_refused() -> None:
    empty = replace(GOOD, shape=(0, 3, 128))
    with pytest.raises(UsageError, match="0 tokens"):
        attention_a2a(empty, empty, empty, [0x1000])


def test_destinations_are_checked_against_the_tensors() -> None:
    with pytest.raises(UsageError, match="buffer of rank 1 is at 0x1001"):
        attention_a2a(GOOD, GOOD, GOOD, [0x1000, 0x1001])
    with pytest.raises(UsageError, match="buffer of rank 0 is a FakeTensor"):
        attention_a2a(GOOD, GOOD, GOOD, [GOOD])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="0 ranks"):
        attention_a2a(GOOD, GOOD, GOOD, [])
    with pytest.raises(UsageError, match="table holds"):
        attention_a2a(GOOD, GOOD, GOOD, [0x1000] * 9)
    with pytest.raises(UsageError, match="rank 2 is not one of 2"):
        attention_a2a(GOOD, GOOD, GOOD, Destinations((0x1000, 0x2000)), rank=2)


def test_without_torch_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DeviceError, match="torch is not available"):
        attention_a2a(GOOD, GOOD, GOOD, [0x1000])


def test_of_another_torch_the_public_functions_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without what its own generated code calls: nobody promises that."""
    torch: Any = ModuleType("torch")
    torch.empty_strided = lambda *layout, dtype, device: (*layout, dtype, device)
    torch.cuda = SimpleNamespace(
        current_device=lambda: 3,
        current_stream=lambda device: SimpleNamespace(cuda_stream=70 + device),
        is_current_stream_capturing=lambda: True,
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    calls = torch_calls()
    assert calls.empty((2, 4), (4, 1), "bf16") == ((2, 4), (4, 1), "bf16", "cuda")
    assert (calls.current_device(), calls.current_stream(3), calls.capturing()) == (3, 73, True)


def test_importing_the_ops_imports_no_torch() -> None:
    code = "import sys, xstage_tune.ops; sys.exit('torch' in sys.modules or 'cuda' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("heads", [1, 3, 5])
@pytest.mark.parametrize("tokens", [1, 300, 4096, 8192, 9000, 75_600])
def test_the_op_runs_what_a_search_has_to_beat_and_tests_have_run(
    tokens: int, heads: int, head_dim: int
) -> None:
    layer = load_workload("fa-a2a/paper", [f"tokens={tokens}", f"heads={8 * heads}", f"head_dim={head_dim}"])
    config = default_attention_config(tokens, heads, H200.gpu.sm_count)
    assert config == default_config(layer, H200)
    assert (config, head_dim) in SHIPPED
