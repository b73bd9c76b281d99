"""The kernels of a whole space, compiled before anything is searched: on any machine, no GPU needed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from xstage_tune.base.errors import DeviceError, XStageError
from xstage_tune.base.progress import Progress
from xstage_tune.devices.compile_ahead import Builder, CompileAhead, KernelBuilder
from xstage_tune.devices.fused_kernels import require_kernel
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.workload import Workload
from xstage_tune.search.evaluation import Failed, FailureGroup, grouped


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What became of a space.

    Args:
        workload: its name.
        configs: that share ``kernels`` kernels.
        cached: kernels that were there before.
        folder: of the cache.
        failures: configs without a usable kernel, grouped by reason.
        elapsed_s: of all of it.
    """

    workload: str
    configs: int
    kernels: int
    cached: int
    folder: str
    failures: tuple[FailureGroup, ...]
    elapsed_s: float

    @property
    def unusable(self) -> int:
        """Configs that no search will run."""
        return sum(group.configs for group in self.failures)

    @property
    def faults(self) -> int:
        """Of them, those that do not compile, or crash the compiler."""
        return sum(group.configs for group in self.failures if group.fault != "unusable")

    def keys(self) -> dict[str, Any]:
        """As plain keys for JSON."""
        return asdict(self) | {"unusable": self.unusable, "faults": self.faults}


def build_space_kernels(
    workload: Workload,
    configs: Sequence[KernelConfig],
    progress: Progress,
    *,
    processes: int | None = None,
    builder: Builder | None = None,
) -> BuildResult:
    """Compile the kernels of all configs into the cache.

    Raises:
        DeviceError: there is no kernel for the workload, or no compiler.
    """
    require_kernel(workload.kind, workload)
    from xstage_tune.cuda.cache import cache_folder
    from xstage_tune.cuda.compiler import compiler_version

    compiler_version()  # says so where there is none, not of every config
    builder = builder or KernelBuilder()
    began = time.monotonic()
    failures: list[tuple[KernelConfig, Failed]] = []
    kernels: dict[Any, bool] = {}
    progress.planned(len(configs))
    with closing(CompileAhead(builder, processes)) as ahead:
        ahead.expect(workload, configs, anyway=True)
        for config in configs:
            try:
                built = ahead.built(workload, config)
                kernels[builder.key(workload, config)] = built is None or built.cached
            except XStageError as error:
                if isinstance(error, DeviceError) and error.fault == "launch":
                    raise  # of the machine, not of the config
                failures.append((config, Failed(error.message, error.fault)))
            progress.advance(f"{len(kernels)} kernels, {len(failures)} configs unusable")
    return BuildResult(
        workload.name,
        len(configs),
        len(kernels),
        sum(kernels.values()),
        str(cache_folder()),
        grouped(failures),
        time.monotonic() - began,
    )
