"""Skeletons on a GPU: data arrive on every path, in the simulator's order, and endless waits are named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.emulation_kernels.cases import attention_skeleton, deadlocked_skeleton, moe_skeleton
from xstage_tune.base.errors import DeviceError
from xstage_tune.base.fabric import STORE_FLAVOURS, StoreFlavour, StorePath
from xstage_tune.cuda.device import CudaDevice
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.skeletons import CudaSkeletons
from xstage_tune.families.megamoe.order import Alternating, ClampedLag, ExpertWave, Interleaved
from xstage_tune.families.megamoe.placement import Placement
from xstage_tune.launches.skeletons import TOTALS, Skeleton, SkeletonRun

pytestmark = pytest.mark.gpu

#: A launch of these tests takes a few us a tile.
_MOST_LAUNCH_NS = 2e8


@pytest.fixture(scope="module")
def gpu() -> Iterator[CudaDevice]:
    opened = Gpu.open(0)
    device = CudaDevice(opened, [CudaSkeletons(opened, _MOST_LAUNCH_NS)])
    yield device
    device.close()


def ran(device: CudaDevice, skeleton: Skeleton) -> SkeletonRun:
    """Run, and require what holds for any launch."""
    (run,) = device.run([skeleton])
    assert run.verification.checked_bytes > 0
    assert run.verification.mismatched_bytes == 0
    assert run.arrays[TOTALS]["tiles"].tolist() == np.diff(skeleton.streams.first).tolist()
    streams = skeleton.streams
    asked_ns = np.bincount(streams.sm_of_tile(), streams.mainloop_ns, streams.sms)
    # Spins count cycles, of a clock that differs from the nominal one until the first long launch.
    assert (run.arrays[TOTALS]["mainloop_ns"] >= 0.9 * asked_ns).all()
    assert run.figures.makespan_ns > 0.9 * asked_ns.max()
    return run


@pytest.mark.parametrize("path", ["local", "host", "peer"])
@pytest.mark.parametrize("flavour", STORE_FLAVOURS)
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("dependencies", [False, True])
def test_every_variant_stores_to_every_path(
    gpu: CudaDevice, path: StorePath, flavour: StoreFlavour, listed: bool, dependencies: bool
) -> None:
    if path not in gpu.describe().paths:
        pytest.skip(f"this machine has no path '{path}'")
    skeleton = moe_skeleton(flavour=flavour, listed=listed, dependencies=dependencies, sms=40)
    ran(gpu, replace(skeleton, path=path))


@pytest.mark.parametrize(
    "skeleton",
    [
        moe_skeleton(ExpertWave(1), slots=1),
        moe_skeleton(Interleaved(7), slot_offset=1.0),
        moe_skeleton(Alternating(), slot_offset=0.5),
        moe_skeleton(ClampedLag(), tokens=(5000, 0, 77), sms=100, cta_group=2),
        moe_skeleton(placement=Placement((3, 1, 0), (1, 2, 4))),
        moe_skeleton(flavour="st.v4", coupled=True),
        moe_skeleton(flavour="tma", coupled=True),
        moe_skeleton(flavour="st.v4", remote_fraction=1.0, tile_bytes=6160.0),
        attention_skeleton(tiles=40, sms=100),
    ],
    ids=lambda skeleton: f"{skeleton.scheduling and skeleton.scheduling.schedule}",
)
def test_every_schedule_and_mode_runs(gpu: CudaDevice, skeleton: Skeleton) -> None:
    run = ran(gpu, skeleton)
    assert (run.arrays[TOTALS]["completion_ns"] > 0).any() == skeleton.completion_coupled


def test_a_wait_that_never_ends_is_one_error_and_the_gpu_goes_on(gpu: CudaDevice) -> None:
    with pytest.raises(
        DeviceError, match=r"CTA [01] .*, loader role, tile 0: waited for counter [01] to reach"
    ):
        list(gpu.run([deadlocked_skeleton()]))
    ran(gpu, attention_skeleton())
