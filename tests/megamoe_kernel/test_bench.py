"""The MoE kernel as a search runs it: without a GPU what it is compiled from, on one a trial's steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.configs.cases import moe
from xstage_tune.base.errors import FindingError, UsageError
from xstage_tune.cuda.compiler import UnusableKernelError
from xstage_tune.cuda.moe_bench import MoeBench, MoeKernel
from xstage_tune.cuda.moe_variants import KERNEL, SHIPPED, moe_variant

LAYER = moe(precision="bf16", hidden=1024, intermediate=512, experts=16, top_k=4, tokens_per_rank=300)


def test_a_config_is_compiled_with_its_recording_where_spans_are_asked_for() -> None:
    kernel, config = MoeKernel(), SHIPPED[0]
    assert kernel.variants(LAYER, config, spans=False) == (moe_variant(config),)
    assert kernel.variants(LAYER, config, spans=True) == (
        moe_variant(config),
        moe_variant(config, record_spans=True),
    )


def test_another_precision_has_no_variant() -> None:
    with pytest.raises(UsageError, match="no MoE kernel of w8a8 yet, only of bf16"):
        MoeKernel().variants(LAYER.model_copy(update={"precision": "w8a8"}), SHIPPED[0], spans=False)


def test_a_variant_that_spills_is_refused() -> None:
    from types import SimpleNamespace

    spilling = SimpleNamespace(entries={KERNEL: SimpleNamespace(spill_bytes=8)}, warnings=())
    with pytest.raises(UnusableKernelError, match="it spills 8 bytes a thread"):
        MoeKernel().require_usable(SHIPPED[0], spilling)  # type: ignore[arg-type]


@pytest.fixture
def bench() -> Iterator[MoeBench]:
    from xstage_tune.cuda.gpu import Gpu

    gpu = Gpu.open(0)
    made = MoeBench(gpu, LAYER, "host")
    yield made
    made.close()
    gpu.close()


@pytest.mark.gpu
def test_kernels_of_other_tiles_agree_on_the_same_inputs(bench: MoeBench) -> None:
    wide, *others = (bench.prepare(config) for config in (SHIPPED[0], SHIPPED[2], SHIPPED[4]))
    bench.launch_on(wide, 1, None)()
    for inputs, other in enumerate(others, 2):
        bench.launch_on(other, inputs, wide)()
    for kernel in (wide, *others):
        kernel.close()


@pytest.mark.gpu
def test_rows_that_stay_where_they_are_not_looked_for_are_missed(bench: MoeBench) -> None:
    local = bench.prepare(SHIPPED[0], local=True)
    with pytest.raises(FindingError, match=r"rows of rank 1 were not written"):
        bench.launch_on(local, 1, None)()
    local.close()


@pytest.mark.gpu
def test_spans_tell_mainloops_and_stall(bench: MoeBench) -> None:
    spans = bench.spans(SHIPPED[0])
    assert spans is not None
    assert spans.mainloop_ns > 0
    assert spans.stall_ns > 0
