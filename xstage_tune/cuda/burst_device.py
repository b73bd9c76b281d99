"""Bursts on a GPU, whose arrival the owner verifies, and the copy engine beside them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.cuda.bursts import BurstKernels, BurstLauncher
from xstage_tune.cuda.compiler import CompiledKernel
from xstage_tune.cuda.destination import measure_copy_rate, ring_layout
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.pattern import nonce
from xstage_tune.cuda.sources import installed_sha256
from xstage_tune.cuda.variants import bursts_variant
from xstage_tune.launches.bursts import BURSTS, COPY_RATES, BurstPoint, BurstRun, CopyProbe, CopyRate
from xstage_tune.launches.device import LaunchInfo, Outcome


class CudaBursts:
    """Runs bursts, and measures the copy engine's rate, for a :class:`~xstage_tune.cuda.device.CudaDevice`.

    Bursts are numbered as the store numbers its launches; a rate of the copy engine has no number.
    """

    kinds = (BURSTS, COPY_RATES)

    def __init__(self, gpu: Gpu) -> None:
        kernels = installed_sha256(bursts_variant("st.v4").source)
        #: The GPU and the kernels: times of others are not comparable.
        self.identity = f"{gpu.device.name}, kernels {kernels[:12]}"
        self._gpu = gpu
        self._launcher = BurstLauncher(gpu.device, gpu.stream, gpu.shared_bytes)
        self._flavours: dict[StoreFlavour, tuple[BurstKernels, CompiledKernel]] = {}

    def run(self, launches: Iterable[BurstPoint | CopyProbe]) -> Iterator[Outcome[Any, Any]]:
        """See :class:`~xstage_tune.launches.device.Runner`."""
        for launch in launches:
            yield self._copy(launch) if isinstance(launch, CopyProbe) else self._run_point(launch)

    def close(self) -> None:
        """Free the buffers that launches record into; safe to call twice."""
        self._launcher.close()

    def _copy(self, probe: CopyProbe) -> Outcome[CopyProbe, CopyRate]:
        """Rate of the copy engine into the destination of a path."""
        gpu = self._gpu
        destination = gpu.destination(probe.path)
        started_at, began_ns = datetime.now(UTC), time.perf_counter_ns()
        rate = measure_copy_rate(probe.path, destination, gpu.device, gpu.stream)
        info = LaunchInfo(
            kernel="copy engine",
            kernel_sha256="",
            registers=0,
            spill_bytes=0,
            shared_bytes=0,
            timer_tick_ns=0,
            elapsed_ns=time.perf_counter_ns() - began_ns,
            started_at=started_at.isoformat(timespec="microseconds"),
        )
        return Outcome(probe, rate, info)

    def _run_point(self, point: BurstPoint) -> BurstRun:
        destination = self._gpu.destination(point.path)
        kernels, compiled = self._kernels_of(point.flavour)
        launch_nonce = nonce(self._gpu.launches)
        layout = ring_layout(destination.nbytes, point, self._gpu.launches)
        table, info = self._gpu.measure(
            lambda: self._launcher.run(kernels, point, destination, layout, launch_nonce),
            kernel=f"{point.mode}_bursts[{point.flavour}]",
            compiled=compiled,
            entry=f"{point.mode}_bursts",
            category=point.mode,
            producers=point.producers,
        )
        verification = destination.verify(layout, table.lanes["issued"], launch_nonce)
        return Outcome(point, None, info, verification, table)

    def _kernels_of(self, flavour: StoreFlavour) -> tuple[BurstKernels, CompiledKernel]:
        if flavour not in self._flavours:
            loaded = self._gpu.load(bursts_variant(flavour))
            kernels = BurstKernels(loaded.kernels["periodic_bursts"], loaded.kernels["isolated_bursts"])
            for kernel in (kernels.periodic, kernels.isolated):
                self._gpu.allow_shared_bytes(kernel)
            self._flavours[flavour] = (kernels, loaded.compiled)
        return self._flavours[flavour]
