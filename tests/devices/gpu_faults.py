"""The fused attention, whose kernel of one config is replaced by one that is broken; for a worker."""

from __future__ import annotations

from typing import Any

from cuda.core import Program, ProgramOptions

from xstage_tune.cuda import attention_bench, kernel_trials
from xstage_tune.cuda.attention_bench import AttentionBench, AttentionKernel
from xstage_tune.cuda.device import CudaDevice
from xstage_tune.cuda.driver import launch
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.kernel_trials import CudaKernels
from xstage_tune.launches.device import Device

SOURCES = {
    "illegal access": 'extern "C" __global__ void broken(long* at) { *at = 7; }',
    "hang": 'extern "C" __global__ void broken(long* at) { for (;;) asm volatile("nanosleep.u32 1000;"); }',
    "nothing": 'extern "C" __global__ void broken(long* at) {}',
    "trap": 'extern "C" __global__ void broken(long* at) { asm("trap;"); }',
}


class BrokenBench(AttentionBench):
    """Its kernel of 112 KV rows does what is planted."""

    fault = "nothing"

    def prepare(self, config: Any, *, local: bool = False) -> Any:
        kernel = super().prepare(config, local=local)
        if config.block_n != 112:
            return kernel
        import numpy as np

        code = Program(SOURCES[self.fault], "c++", ProgramOptions(arch="sm_90a")).compile("cubin")
        broken = code.get_kernel("broken")
        argument = np.array([0x10], np.uint64)

        def queue() -> None:
            launch(
                broken, self._gpu.stream, grid=(1, 1), threads=1, shared_bytes=0, arguments=argument,
                cooperative=False,
            )  # fmt: skip

        kernel.queue = queue  # type: ignore[method-assign]
        return kernel


class BrokenKernel(AttentionKernel):
    def open(self, gpu: Gpu, workload: Any, path: Any) -> Any:
        return BrokenBench(gpu, workload, path)


def open_broken(fault: str) -> Device:
    BrokenBench.fault = fault
    attention_bench._START_TIMEOUT_S = kernel_trials._START_TIMEOUT_S = 2.0
    gpu = Gpu.open(0)
    return CudaDevice(gpu, [CudaKernels(gpu, BrokenKernel())])
