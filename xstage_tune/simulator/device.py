"""The simulator as a device: what a calibrated platform says that its GPU would do."""

from __future__ import annotations

from xstage_tune.base.json_output import json_sha256
from xstage_tune.launches.device import ComposedDevice, DeviceDescription
from xstage_tune.launches.gpu_identity import link_of
from xstage_tune.platforms.identity import SIMULATED_UUID
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.simulator.bursts import NO_JITTER, BurstJitter, SimulatedBursts
from xstage_tune.simulator.fused_kernels import SimulatedKernels
from xstage_tune.simulator.skeletons import SimulatedSkeletons


class SimulatedDevice(ComposedDevice):
    """A calibrated platform, simulated: bursts and the copy engine, skeletons, and fused kernels.

    Args:
        platform: whose (T0, R, Q) and arbitration to simulate; its path can be run, bursts on ``local`` too.
        seed: of the start times of skeletons.
        jitter: seeded disturbance of bursts; none by default.
    """

    def __init__(self, platform: PlatformProfile, *, seed: int = 0, jitter: BurstJitter = NO_JITTER) -> None:
        super().__init__(
            (
                SimulatedBursts(platform, jitter),
                SimulatedSkeletons(platform, seed=seed),
                SimulatedKernels(platform),
            )
        )
        self._platform = platform

    def describe(self) -> DeviceDescription:
        """The platform's GPU, marked as simulated; its ``uuid`` tells two profiles apart."""
        gpu = self._platform.gpu
        return DeviceDescription(
            kind="simulator",
            name=gpu.name,
            uuid=f"{SIMULATED_UUID}{json_sha256(self._platform)[:32]}",
            architecture=gpu.architecture,
            sm_count=gpu.sm_count,
            l2_bytes=gpu.l2_bytes,
            memory_bytes=gpu.memory_bytes or 0,
            max_sm_clock_mhz=round(gpu.sm_clock_mhz),
            driver="",
            cuda="",
            nvrtc="",
            paths=(self._platform.path,),
            link=link_of(gpu),
            mig=gpu.mig,
        )

    def label_launches(self, run_id: str) -> None:
        """Nothing to label: no kernel is launched."""
