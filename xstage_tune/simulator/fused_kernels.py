"""Fused kernels on the event simulator: one rank's launch, the one that sets the layer's time."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from xstage_tune.families.binding import fused_launch
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import KERNELS, KernelLaunch, KernelRun
from xstage_tune.families.tile_times import local_store_bytes_per_ns
from xstage_tune.families.workload import Workload
from xstage_tune.launches.device import Outcome
from xstage_tune.launches.streams import Floats, Streams
from xstage_tune.platforms.latencies import Latencies, latencies_of
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.simulator.drain import DrainModel, drain_model
from xstage_tune.simulator.measuring import SIMULATOR, measure, other_path
from xstage_tune.simulator.pipeline import PipelineConfig, PipelineRun, simulate

# CTAs of a launch begin up to a microsecond apart, which is what desynchronises them (seen on an H200).
_START_JITTER_NS = 1000.0


@dataclass(frozen=True, slots=True)
class Launch:
    """A config made ready to simulate.

    Args:
        streams: the tiles of each SM.
        local_bytes: ``[n]`` what each tile stores to the GPU's own memory; their time is in ``streams``.
        drain: the path.
        staging_slots: S.
        load_cover_ns: how long a mainloop goes on while its loads wait behind its SM's stores.
        latencies: of the platform.
        linear2: as :class:`~xstage_tune.families.launch.FusedLaunch` has it.
    """

    streams: Streams
    local_bytes: Floats
    drain: DrainModel
    staging_slots: int
    load_cover_ns: float
    latencies: Latencies
    linear2: NDArray[np.bool_] | None = None

    def run(
        self, seed: int = 0, *, trace_occupancy: bool = False, completion_coupled: bool = False
    ) -> PipelineRun:
        """Simulate it once; seeds differ in when the CTAs start."""
        config = PipelineConfig(
            staging_slots=self.staging_slots,
            raise_ns=self.latencies.counter.ns,
            signal_ns=self.latencies.signal.ns,
            completion_coupled=completion_coupled,
            completion_latency_ns=self.latencies.visibility.ns if completion_coupled else 0.0,
            load_cover_ns=self.load_cover_ns,
            start_jitter_ns=_START_JITTER_NS,
            seed=seed,
            trace_occupancy=trace_occupancy,
        )
        return simulate(self.streams, self.drain, config, self.local_bytes)

    def key(self) -> Hashable:
        """Equal of launches on the same path of which every run takes the same time."""
        digest = hashlib.blake2b(digest_size=16)
        columns = (getattr(self.streams, column.name) for column in fields(self.streams))
        load_cover_ns = self.load_cover_ns if self.drain.delays_loads else np.inf
        for value in (*columns, self.local_bytes, self.staging_slots, load_cover_ns):
            array = np.asarray(value)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(array.tobytes())
        return digest.digest(), id(self.drain)

    def without_remote_stores(self) -> Launch:
        """The same launch with nothing remote: T_FA of the hiding ratio."""
        return replace(self, streams=replace(self.streams, remote_bytes=np.zeros(self.streams.tiles)))


class SimulatedKernels:
    """Runs fused kernels. Repeat i starts its CTAs by seed i: the same call, the same times.

    Configs that differ in nothing that is simulated, in operand stages say, are one launch: it is simulated
    once. On the platform of the paper's GPU that is true of two MoE configs in three.
    """

    identity = SIMULATOR
    kinds = (KERNELS,)

    def __init__(self, platform: PlatformProfile) -> None:
        self._platform = platform
        self._drain: Callable[[str], DrainModel] = lru_cache(maxsize=None)(self._drain_of)
        #: Of each launch: latency and waits of its runs by seeds 0, 1, ...
        self._simulated: defaultdict[Hashable, list[tuple[float, float]]] = defaultdict(list)

    def run(self, launches: Iterable[KernelLaunch]) -> Iterator[Outcome[KernelLaunch, KernelRun]]:
        """Simulate the kernels in order; they store on the platform's path.

        Raises:
            UsageError: as :meth:`run_kernel`, or the platform was calibrated for another path.
        """
        for launch in launches:
            if launch.path != self._platform.path:
                raise other_path(self._platform, launch.path)
            simulated = partial(self.run_kernel, launch.workload, launch.config, launch.repeats)
            figures, info = measure(simulated, producers=self._platform.gpu.sm_count)
            yield Outcome(launch, figures, info)

    def run_kernel(self, workload: Workload, config: KernelConfig, repeats: int = 1) -> KernelRun:
        """Simulate a config ``repeats`` times.

        Raises:
            UsageError: it does not fit the workload or the platform, or the platform lacks T0, Q or
                compute figures.
        """
        launch = self.launch(workload, config)
        runs = self._simulated[launch.key()]
        for seed in range(len(runs), repeats):
            run = launch.run(seed)
            runs.append((run.end_ns, waits_ns(run)))
        latency_ns, stall_ns = zip(*runs[:repeats], strict=True)
        return KernelRun(latency_ns=latency_ns, stall_ns=stall_ns)

    def close(self) -> None:
        """Nothing is held."""

    def launch(self, workload: Workload, config: KernelConfig) -> Launch:
        """The launch of a config on the rank that receives most.

        Raises:
            UsageError: as :meth:`run_kernel`.
        """
        tiles = fused_launch(workload, config, self._platform)
        local_ns = tiles.local_bytes / local_store_bytes_per_ns(self._platform)
        streams = replace(tiles.streams, staging_ns=tiles.streams.staging_ns + local_ns)
        drain = self._drain(config.store_flavour)
        return Launch(
            streams, tiles.local_bytes, drain, tiles.staging_slots, tiles.load_cover_ns,
            latencies_of(self._platform), tiles.linear2,
        )  # fmt: skip

    def _drain_of(self, flavour: str) -> DrainModel:
        return drain_model(self._platform, flavour="tma" if flavour == "tma" else "st.v4")


def waits_ns(run: PipelineRun) -> float:
    """What a role that computes waits, mean over the SMs: for a staging slot, its inputs, or its operands."""
    waits = run.stall_ns + run.dependency_wait_ns + run.starved_ns
    return float(waits.sum()) / run.streams.sms
