"""The CUDA device of calibration: runs burst points on a GPU and has the owner verify what arrived."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.cuda.bursts import BurstKernels, BurstLauncher
from xstage_tune.cuda.compiler import CompiledKernel
from xstage_tune.cuda.destination import measure_copy_rate, ring_layout
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.pattern import nonce
from xstage_tune.cuda.variants import bursts_variant
from xstage_tune.launches.device import BurstPoint, BurstRun, CopyRate, DeviceDescription


class CudaBursts:
    """One GPU of this process, as a :class:`~xstage_tune.launches.device.BurstDevice`."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._launcher = BurstLauncher(gpu.device, gpu.stream, gpu.shared_bytes)
        self._flavours: dict[StoreFlavour, tuple[BurstKernels, CompiledKernel]] = {}

    def describe(self) -> DeviceDescription:
        """Identity of the GPU, its driver and its links."""
        return self._gpu.describe()

    def label_launches(self, run_id: str) -> None:
        """See :class:`~xstage_tune.launches.device.BurstDevice`."""
        self._gpu.label_launches(run_id)

    def copy_rate(self, path: StorePath) -> CopyRate:
        """Rate of the copy engine into the destination of ``path``."""
        return measure_copy_rate(path, self._gpu.destination(path), self._gpu.device, self._gpu.stream)

    def run_bursts(self, points: Sequence[BurstPoint]) -> Iterator[BurstRun]:
        """See :class:`~xstage_tune.launches.device.BurstDevice`."""
        for point in points:
            yield self._run_point(point)

    def close(self) -> None:
        """Free all memory on all owners; safe to call twice."""
        self._launcher.close()
        self._gpu.close()

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
        )
        verification = destination.verify(layout, table.lanes["issued"], launch_nonce)
        return BurstRun(point, table, verification, info)

    def _kernels_of(self, flavour: StoreFlavour) -> tuple[BurstKernels, CompiledKernel]:
        if flavour not in self._flavours:
            loaded = self._gpu.load(bursts_variant(flavour))
            kernels = BurstKernels(loaded.kernels["periodic_bursts"], loaded.kernels["isolated_bursts"])
            for kernel in (kernels.periodic, kernels.isolated):
                self._gpu.allow_shared_bytes(kernel)
            self._flavours[flavour] = (kernels, loaded.compiled)
        return self._flavours[flavour]
