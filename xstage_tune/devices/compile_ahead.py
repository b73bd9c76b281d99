"""Kernels compiled by processes of their own, before a device comes to them."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol

from xstage_tune.base.errors import DeviceError, XStageError
from xstage_tune.base.number_format import duration
from xstage_tune.devices.fused_kernels import fused_kernel
from xstage_tune.devices.worker import Worker
from xstage_tune.launches.device import Device, DeviceAround, Outcome

#: Of one config's kernels: the largest take some seconds.
_DEADLINE_S = 120.0


class CompileFault(DeviceError):  # noqa: N818 - named as what it comes under
    """The compiler crashed, or did not end."""

    fault = "compile"


@dataclass(frozen=True, slots=True)
class Built:
    """What a config's kernel takes of an SM: registers a thread, and whether it was in the cache."""

    registers: int
    cached: bool


class Builder(Protocol):
    """How the kernels of configs are compiled. It is pickled for the processes that do so."""

    def key(self, workload: Any, config: Any) -> Hashable:
        """Equal of configs that are compiled alike; raises ``XStageError`` where there is no such kernel."""
        ...

    def is_built(self, workload: Any, config: Any) -> bool:
        """Whether there is nothing to do; what is wrong with a kernel that is there the device will say."""
        ...

    def build(self, workload: Any, config: Any) -> Built:
        """Compile; raises ``XStageError`` where that fails, or gives no usable kernel."""
        ...


class KernelBuilder:
    """Fused kernels, compiled into the cache; needs no GPU."""

    def key(self, workload: Any, config: Any) -> Hashable:
        """See :class:`Builder`; raises ``DeviceError`` where there is no kernel of this kind."""
        first = fused_kernel(workload.kind).variants(workload, config, spans=False)[0]
        return first.source, *sorted(first.defines.items())

    def is_built(self, workload: Any, config: Any) -> bool:
        """Whether the cache has them; raises ``DeviceError`` where there is no compiler."""
        kernel = fused_kernel(workload.kind)
        from xstage_tune.cuda.cache import is_cached

        return all(
            is_cached(variant.source, kernel.architecture, variant.defines, variant.names)
            for variant in kernel.variants(workload, config, spans=False)
        )

    def build(self, workload: Any, config: Any) -> Built:
        """Compile a config's kernels, or find them in the cache.

        Raises:
            UsageError: there is no such variant.
            KernelCompileError: it does not compile.
            UnusableKernelError: it spills, or its products are serialised.
            DeviceError: there is no kernel of this kind, or no compiler.
        """
        kernel = fused_kernel(workload.kind)
        from xstage_tune.cuda.cache import cached_kernel

        cached = self.is_built(workload, config)
        first, *_ = [
            cached_kernel(variant.source, kernel.architecture, variant.defines, variant.names)
            for variant in kernel.variants(workload, config, spans=False)
        ]
        kernel.require_usable(config, first)
        return Built(max(entry.registers for entry in first.entries.values()), cached)


class CompileAhead:
    """Processes that compile the kernels of configs.

    Args:
        processes: by default one less than there are cores, at least one.
    """

    def __init__(self, builder: Builder, processes: int | None = None) -> None:
        self._builder = builder
        self._threads = ThreadPoolExecutor(processes or max(1, len(os.sched_getaffinity(0)) - 1))
        self._own = threading.local()
        self._workers: list[Worker] = []
        self._lock = threading.Lock()
        self._closed = False
        self._keys: dict[Any, Hashable] = {}
        self._built: dict[Hashable, Future[Built] | None] = {}

    def expect(self, workload: Any, configs: Iterable[Any], *, anyway: bool = False) -> None:
        """Compile for these configs, in this order, behind what is under way.

        Args:
            anyway: ask the builder what is built already, too.
        """
        for config in configs:
            if config in self._keys:
                continue
            try:
                key = self._keys[config] = self._builder.key(workload, config)
                needed = anyway or not self._builder.is_built(workload, config)
            except XStageError:  # which building it will raise again, for whoever waits for it
                key = self._keys[config] = config
                needed = True
            if key not in self._built:
                submitted = self._threads.submit(self._in_worker, workload, config) if needed else None
                self._built[key] = submitted

    def built(self, workload: Any, config: Any) -> Built | None:
        """Wait until a config is compiled; None where there was nothing to do.

        Raises:
            XStageError: it does not compile, or not to a usable kernel.
            CompileFault: the compiler crashed, or did not end.
        """
        self.expect(workload, [config])
        building = self._built[self._keys[config]]
        return None if building is None else building.result()

    def close(self) -> None:
        """End the processes, whatever they do; safe to call twice."""
        with self._lock:
            self._closed = True
            for worker in self._workers:
                worker.kill()
            self._workers.clear()
        self._threads.shutdown(cancel_futures=True)

    def _in_worker(self, workload: Any, config: Any) -> Built:
        worker = self._worker()
        try:
            return worker.ask(self._builder.build, workload, config, timeout_s=_DEADLINE_S)
        except (TimeoutError, BrokenProcessPool) as error:
            self._own.worker = None
            with self._lock:
                if worker in self._workers:
                    self._workers.remove(worker)
            worker.kill()
            ended = isinstance(error, BrokenProcessPool)
            what = "crashed" if ended else f"did not end within {duration(1e9 * _DEADLINE_S)}"
            raise CompileFault(f"the compiler {what}") from None

    def _worker(self) -> Worker:
        """This thread's."""
        worker: Worker | None = getattr(self._own, "worker", None)
        if worker is None:
            worker = Worker()
            with self._lock:
                self._workers.append(worker)
                if self._closed:
                    worker.kill()
            self._own.worker = worker
        return worker


class CompilingDevice(DeviceAround):
    """A device whose launches are compiled by other processes before it comes to them.

    Args:
        device: closed with it.
    """

    def __init__(self, device: Device, ahead: CompileAhead) -> None:
        super().__init__(device)
        self._ahead = ahead

    def expect(self, launches: Sequence[Any]) -> None:
        """See :class:`~xstage_tune.launches.device.LooksAhead`."""
        for launch in launches:
            self._ahead.expect(launch.workload, [launch.config])

    def run(self, launches: Iterable[Any]) -> Iterator[Outcome[Any, Any]]:
        """See :class:`~xstage_tune.launches.device.Device`; raises what compiling does too."""
        for launch in launches:
            self._ahead.built(launch.workload, launch.config)
            yield from self._device.run([launch])

    def close(self) -> None:
        """Close the device, and end the processes."""
        self._ahead.close()
        super().close()
