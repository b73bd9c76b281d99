"""The MoE kernel as a search runs it: without a GPU what it is compiled from, on one a trial's steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.configs.cases import moe
from xstage_tune.base.errors import FindingError, UsageError
from xstage_tune.cuda.compiler import UnusableKernelError
from xstage_tune.cuda.moe_bench import MoeBench, MoeKernel
from xstage_tune.cuda.moe_variants import KERNEL, SHIPPED, moe_variant
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.workload import MoeWorkload, Precision

LAYERS: dict[Precision, MoeWorkload] = {
    precision: moe(
        precision=precision, hidden=1024, intermediate=512, experts=16, top_k=4, tokens_per_rank=300
    )
    for precision in SHIPPED
}
LAYER = LAYERS["bf16"]
Opened = tuple[MoeBench, tuple[MegaMoeConfig, ...]]


@pytest.mark.parametrize("precision", SHIPPED)
def test_a_config_is_compiled_with_its_recording_where_spans_are_asked_for(precision: Precision) -> None:
    kernel, config, layer = MoeKernel(), SHIPPED[precision][0], LAYERS[precision]
    assert kernel.variants(layer, config, spans=False) == (moe_variant(config, precision),)
    assert kernel.variants(layer, config, spans=True) == (
        moe_variant(config, precision),
        moe_variant(config, precision, record_spans=True),
    )


def test_another_precision_has_no_variant() -> None:
    with pytest.raises(UsageError, match="no MoE kernel of w4a8 yet, only of bf16 and w8a8"):
        MoeKernel().variants(LAYER.model_copy(update={"precision": "w4a8"}), SHIPPED["w8a8"][0], spans=False)


def test_a_variant_that_spills_is_refused() -> None:
    from types import SimpleNamespace

    spilling = SimpleNamespace(entries={KERNEL: SimpleNamespace(spill_bytes=8)}, warnings=())
    with pytest.raises(UnusableKernelError, match="it spills 8 bytes a thread"):
        MoeKernel().require_usable(SHIPPED["bf16"][0], spilling)  # type: ignore[arg-type]


@pytest.fixture(params=SHIPPED)
def bench(request: pytest.FixtureRequest) -> Iterator[Opened]:
    """With the configs of its precision."""
    from xstage_tune.cuda.gpu import Gpu

    gpu = Gpu.open(0)
    made = MoeBench(gpu, LAYERS[request.param], "host")
    yield made, SHIPPED[request.param]
    made.close()
    gpu.close()


@pytest.mark.gpu
def test_kernels_agree_on_the_same_inputs(bench: Opened) -> None:
    made, configs = bench
    wide, *others = (made.prepare(config) for config in configs)
    made.launch_on(wide, 1, None)()
    for inputs, other in enumerate(others, 2):
        made.launch_on(other, inputs, wide)()
    for kernel in (wide, *others):
        kernel.close()


@pytest.mark.gpu
def test_rows_that_stay_where_they_are_not_looked_for_are_missed(bench: Opened) -> None:
    made, (config, *_) = bench
    local = made.prepare(config, local=True)
    with pytest.raises(FindingError, match=r"rows of rank 1 were not written"):
        made.launch_on(local, 1, None)()
    local.close()


@pytest.mark.gpu
def test_spans_tell_mainloops_and_stall(bench: Opened) -> None:
    made, (config, *_) = bench
    spans = made.spans(config)
    assert spans is not None
    assert spans.mainloop_ns > 0
    assert spans.stall_ns > 0
