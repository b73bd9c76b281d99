"""Skeletons on a GPU: the fused kernel's CTAs, scheduler and stores, its mainloops replaced by spins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np
from cuda.core import Kernel
from numpy.typing import NDArray

from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.cuda.compiler import CompiledKernel
from xstage_tune.cuda.destination import Destination
from xstage_tune.cuda.driver import launch, synchronize
from xstage_tune.cuda.gpu import DESTINATION_BYTES, Gpu
from xstage_tune.cuda.memory import GpuMemory
from xstage_tune.cuda.pattern import nonce
from xstage_tune.cuda.skeletons_arguments import add_destination, launch_arguments
from xstage_tune.cuda.skeletons_extents import TileRings, local_extents, remote_extents, tile_rings
from xstage_tune.cuda.skeletons_layout import CONTROL, THREADS
from xstage_tune.cuda.skeletons_plan import LaunchPlan, Target, plan_launch, ring_slot_bytes
from xstage_tune.cuda.skeletons_result import (
    Recorded,
    empty_record,
    lane_totals,
    raise_fault,
    require_order,
    span_table,
)
from xstage_tune.cuda.sources import installed_sha256
from xstage_tune.cuda.variants import skeleton_variant
from xstage_tune.families.kernel_launch import EMULATION_ON
from xstage_tune.launches.device import Outcome, Verification
from xstage_tune.launches.skeleton_figures import figures_of
from xstage_tune.launches.skeletons import SKELETONS, TOTALS, Skeleton, SkeletonRun

#: What a launch may take: the recorder counts a lane's cycles in 32 bits, 2.1 s at 2 GHz.
MOST_LAUNCH_NS = 2e9
#: Beyond that: arrival of all CTAs, start delay, and roles that give up after others.
_LAUNCH_TIMEOUT_S = 5.0
#: A lane's clock pairs are this far apart when they tell the clock to 0.01%.
_CLOCK_NS = 1e6
_LEAST_BYTES = 4


class CudaSkeletons:
    """Runs skeletons for a :class:`~xstage_tune.cuda.device.CudaDevice`.

    Lane i of a skeleton of K SMs runs on the i-th of K SMs that are spread evenly over the GPU, as the drain
    model has it; with all SMs, on SM i.

    Args:
        most_launch_ns: what a launch may take before its waits give up.
    """

    kinds = (SKELETONS,)

    def __init__(self, gpu: Gpu, most_launch_ns: float = MOST_LAUNCH_NS) -> None:
        kernels = installed_sha256(skeleton_variant("st.v4", listed=False).source)
        #: The GPU and the kernels: times of others are not comparable.
        self.identity = f"{EMULATION_ON}{gpu.device.name}, kernels {kernels[:12]}"
        self._gpu = gpu
        self._most_launch_ns = most_launch_ns
        self._control = GpuMemory(gpu.device, CONTROL.itemsize, gpu.device)
        # Spins count cycles: of the nominal clock at first, then of the one that the last launch ran at.
        self._cycles_per_ns = int(gpu.device.properties.clock_rate) / 1e6
        self._local: Destination | None = None
        self._allowed: set[tuple[StoreFlavour, bool]] = set()

    def run(self, launches: Iterable[Skeleton]) -> Iterator[SkeletonRun]:
        """See :class:`~xstage_tune.launches.device.Runner`.

        Raises:
            UsageError: a skeleton does not fit the device (says how many staging slots would), a mainloop is
                0, or longer than a launch may take.
            DeviceError: the device cannot run one, or a wait inside it ran out (names CTA, role, tile,
                expected and seen).
            FindingError: the scheduler on the device took another order.
        """
        for skeleton in launches:
            yield self._run(skeleton)

    def close(self) -> None:
        """Free what launches record into, and their local destination; safe to call twice."""
        if self._local is not None:
            self._local.close()
            self._local = None
        self._control.close()

    def _run(self, skeleton: Skeleton) -> SkeletonRun:
        target = Target(
            sm_count=self._gpu.sm_count,
            shared_bytes=self._gpu.shared_bytes,
            cycles_per_ns=self._cycles_per_ns,
            most_ns=self._most_launch_ns,
        )
        plan = plan_launch(skeleton, target)
        remote = self._gpu.destination(skeleton.path)
        number, launch_nonce = self._gpu.launches, nonce(self._gpu.launches)
        remote_rings = tile_rings(remote.nbytes, plan.lanes, ring_slot_bytes(plan.remote_bytes), number)
        local_rings = tile_rings(self._own.nbytes, plan.lanes, ring_slot_bytes(plan.local_bytes), number)
        kernel, compiled = self._kernel(skeleton.flavour, listed=skeleton.scheduling is None)
        with _Buffers(self._gpu) as buffers:
            arguments = launch_arguments(plan, buffers, self._most_launch_ns)
            arguments["control"] = self._control.address
            arguments["nonce"] = launch_nonce
            add_destination(arguments, "remote", remote.address, remote_rings)
            add_destination(arguments, "local", self._own.address, local_rings)
            order = "listed" if skeleton.scheduling is None else "megamoe"
            recorded, info = self._gpu.measure(
                lambda: self._launch(kernel, plan, arguments, buffers),
                kernel=f"skeleton[{order},{skeleton.flavour}]",
                compiled=compiled,
                entry="skeleton",
                category="skeleton",
                producers=plan.lanes,
            )
        require_order(recorded, plan)
        table = span_table(recorded, plan)
        ns_per_tick = table.ns_per_tick()
        totals = lane_totals(recorded, ns_per_tick)
        self._note_clock(recorded.lanes, ns_per_tick)
        makespan_ns = float(totals["finish_ns"].max())
        return Outcome(
            skeleton,
            figures_of(skeleton.streams, table, totals, makespan_ns),
            info,
            self._verify(plan, remote, remote_rings, local_rings, launch_nonce),
            table,
            {TOTALS: totals},
            kept_fraction=float(np.mean(plan.kept)) if plan.kept.size else 1.0,
        )

    def _launch(
        self, kernel: Kernel, plan: LaunchPlan, arguments: NDArray[np.void], buffers: _Buffers
    ) -> Recorded:
        """Launch, wait, and read what was recorded.

        Raises:
            DeviceError: the launch failed or hung, or a wait inside it ran out.
        """
        self._control.fill_zero(self._gpu.stream)
        launch(
            kernel,
            self._gpu.stream,
            grid=(self._gpu.sm_count, 1),
            threads=THREADS[plan.skeleton.flavour],
            shared_bytes=self._gpu.shared_bytes,
            arguments=arguments,
            cooperative=True,
        )
        timeout_s = _LAUNCH_TIMEOUT_S + self._most_launch_ns * 1e-9
        synchronize(self._gpu.stream, timeout_s, f"the skeleton '{plan.skeleton.label}'")
        control = np.zeros(1, CONTROL)
        self._control.read_into(control, self._gpu.stream)
        raise_fault(control[0]["fault"], plan)
        recorded = empty_record(plan, int(control[0]["start"]["at_ns"]))
        for name in ("lanes", "totals", "moments"):
            buffers.read_into(getattr(recorded, name), int(arguments[name][0]))
        return recorded

    def _verify(
        self,
        plan: LaunchPlan,
        remote: Destination,
        remote_rings: TileRings,
        local_rings: TileRings,
        launch_nonce: int,
    ) -> Verification:
        """Have both owners check what the launch left."""
        checks = (
            remote.verify_extents(remote_extents(plan, remote_rings), launch_nonce),
            self._own.verify_extents(local_extents(plan, local_rings), launch_nonce),
        )
        return Verification(
            checked_bytes=sum(check.checked_bytes for check in checks),
            mismatched_bytes=sum(check.mismatched_bytes for check in checks),
        )

    @property
    def _own(self) -> Destination:
        """Where local bytes go: the GPU's own memory, beside that of path ``local``."""
        if self._local is None:
            self._local = self._gpu.new_destination("local", DESTINATION_BYTES)
        return self._local

    def _kernel(self, flavour: StoreFlavour, *, listed: bool) -> tuple[Kernel, CompiledKernel]:
        loaded = self._gpu.load(skeleton_variant(flavour, listed=listed))
        kernel = loaded.kernels["skeleton"]
        if (flavour, listed) not in self._allowed:
            self._gpu.allow_shared_bytes(kernel)
            self._allowed.add((flavour, listed))
        return kernel, loaded.compiled

    def _note_clock(self, lanes: NDArray[np.void], ns_per_tick: NDArray[np.float64]) -> None:
        if (lanes["timer_end_ns"] - lanes["timer_begin_ns"]).min() > _CLOCK_NS:
            self._cycles_per_ns = 1.0 / float(np.median(ns_per_tick))


class _Buffers:
    """A launch's tables and records in the GPU's memory, for as long as it runs."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._held: dict[int, GpuMemory] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for memory in self._held.values():
            memory.close()

    def put(self, table: NDArray[Any]) -> int:
        """See :class:`~xstage_tune.cuda.skeletons_arguments.LaunchMemory`."""
        memory = self._allocate(table.nbytes)
        if table.nbytes:
            memory.write(np.ascontiguousarray(table), self._gpu.stream)
        return memory.address

    def room(self, nbytes: int) -> int:
        """See :class:`~xstage_tune.cuda.skeletons_arguments.LaunchMemory`."""
        memory = self._allocate(nbytes)
        memory.fill_zero(self._gpu.stream)
        return memory.address

    def read_into(self, target: NDArray[Any], address: int) -> None:
        """Copy what was recorded at an address of :meth:`room`, and wait."""
        if target.nbytes:
            self._held[address].read_into(target, self._gpu.stream)

    def _allocate(self, nbytes: int) -> GpuMemory:
        memory = GpuMemory(self._gpu.device, max(_LEAST_BYTES, nbytes), self._gpu.device)
        self._held[memory.address] = memory
        return memory
