"""What a family's fused kernel is to a search on a GPU: all that :mod:`.kernel_trials` asks of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from cuda.core import Stream

from xstage_tune.base.fabric import StorePath
from xstage_tune.cuda.compiler import CompiledKernel
from xstage_tune.cuda.gpu import Gpu
from xstage_tune.cuda.variants import KernelVariant


@dataclass(frozen=True, slots=True)
class TileSpansOfLaunch:
    """What a launch that records spans tells.

    Args:
        mainloop_ns: of a tile, the mean.
        stall_ns: waits of the mainloop role, mean over the SMs.
    """

    mainloop_ns: float
    stall_ns: float


class PreparedKernel(Protocol):
    """A config's kernel with its arguments, loaded.

    Args:
        entry: its kernel in ``compiled``.
        producers: SMs that take part.
        timeout_s: in which a launch surely ends.
    """

    name: str
    compiled: CompiledKernel
    entry: str
    shared_bytes: int
    producers: int
    timeout_s: float

    def queue(self) -> None:
        """Queue a launch on the GPU's stream. Neither allocates nor waits: graphs capture it."""
        ...

    def close(self) -> None:
        """Free what it holds; safe to call twice."""
        ...


class Launchable(Protocol):
    """A variant that is launched with arguments that were prepared for it."""

    compiled: CompiledKernel
    ctas: int

    def launch(self, prepared: Any, stream: Stream) -> None:
        """Queue one launch. Neither allocates nor waits."""
        ...

    def close(self) -> None:
        """Free what it holds; safe to call twice."""
        ...


KernelT = TypeVar("KernelT", bound=Launchable)


class LoadedKernel(Generic[KernelT]):
    """See :class:`PreparedKernel`.

    Args:
        gpu: whose stream it is queued on.
        kernel: closed with it.
        prepared: its arguments.
    """

    def __init__(
        self,
        gpu: Gpu,
        kernel: KernelT,
        prepared: Any,
        *,
        name: str,
        entry: str,
        shared_bytes: int,
        timeout_s: float,
    ) -> None:
        self.kernel = kernel
        self.name, self.entry = name, entry
        self.shared_bytes, self.timeout_s = shared_bytes, timeout_s
        self.compiled, self.producers = kernel.compiled, kernel.ctas
        self._gpu, self._prepared = gpu, prepared

    def queue(self) -> None:
        """See :class:`PreparedKernel`."""
        self.kernel.launch(self._prepared, self._gpu.stream)

    def close(self) -> None:
        """See :class:`PreparedKernel`."""
        self.kernel.close()


class KernelBench(Protocol):
    """The memory of a workload on a GPU, for kernels of any config of it."""

    def prepare(self, config: Any, *, local: bool = False) -> PreparedKernel:
        """The kernel of a config.

        Args:
            local: with destinations that are all in the GPU's own memory.

        Raises:
            UsageError: there is no such variant.
            UnusableKernelError: it spills, or is serialised.
            DeviceError: the GPU cannot run it.
        """
        ...

    def launch_on(
        self, kernel: PreparedKernel, inputs: int, trusted: PreparedKernel | None
    ) -> Callable[[], None]:
        """Launch a kernel once, on other inputs and poisoned buffers, and read what it left.

        Args:
            inputs: seed of the inputs.
            trusted: another kernel, already found right, to compare with on the same inputs.

        Returns:
            What compares the output, and raises ``FindingError`` where it is wrong. It needs no GPU.
        """
        ...

    def spans(self, config: Any) -> TileSpansOfLaunch | None:
        """Of a launch that records them; None where the config has no room for them."""
        ...

    def close(self) -> None:
        """Free the memory; safe to call twice."""
        ...


class FusedKernel(Protocol):
    """The kernel of a family.

    Args:
        sources: below the kernels folder; their hash tells kernels apart.
        architecture: that it is compiled for, and alone runs on.
    """

    sources: tuple[str, ...]
    architecture: str

    def variants(self, workload: Any, config: Any, *, spans: bool) -> Sequence[KernelVariant]:
        """What a config's kernels are compiled from, for this workload; needs no GPU.

        Raises:
            UsageError: there is no such variant.
        """
        ...

    def require_usable(self, config: Any, compiled: CompiledKernel) -> None:
        """Refuse a variant that is not worth a launch.

        Raises:
            UnusableKernelError: says why.
        """
        ...

    def open(self, gpu: Gpu, workload: Any, path: StorePath) -> KernelBench:
        """Its bench.

        Raises:
            UsageError: the workload has no kernel.
            DeviceError: there is too little memory, or no such path.
        """
        ...
