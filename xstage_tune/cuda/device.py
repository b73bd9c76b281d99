"""One GPU of this process as a device."""

from __future__ import annotations

from collections.abc import Sequence

from xstage_tune.cuda.gpu import Gpu
from xstage_tune.launches.device import ComposedDevice, DeviceDescription, Runner


class CudaDevice(ComposedDevice):
    """A GPU with what it is to run.

    Args:
        gpu: closed with the device.
        runners: on that GPU; a family brings that of its own kernel.
    """

    def __init__(self, gpu: Gpu, runners: Sequence[Runner]) -> None:
        super().__init__(runners)
        self._gpu = gpu

    def describe(self) -> DeviceDescription:
        """Identity of the GPU, its driver and its links."""
        return self._gpu.describe()

    def label_launches(self, run_id: str) -> None:
        """See :class:`~xstage_tune.launches.device.Device`."""
        self._gpu.label_launches(run_id)

    def close(self) -> None:
        """Free all memory on all owners; safe to call twice."""
        super().close()
        self._gpu.close()
