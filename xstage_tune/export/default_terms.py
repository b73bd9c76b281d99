"""Default configs, and whether tuned ones beat them, without the platform's profile: by what exports say."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

from xstage_tune.base.errors import UsageError
from xstage_tune.export.record import PlatformIdentity
from xstage_tune.families.binding import bind, check_config, default_config
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.loader import list_platforms, load_platform
from xstage_tune.platforms.schema import AttentionTile, CapacityPoint, IssuePoint, PlatformProfile

#: What has a source, which nothing computes with.
EntryT = TypeVar("EntryT", IssuePoint, CapacityPoint, AttentionTile)

#: Layers and token counts whose defaults are kept, so that serving works each out once.
_KEPT = 1024


def default_terms(platform: PlatformProfile) -> PlatformProfile:
    """A platform reduced to what defaults, the limits of any config, and expected times rest on.

    That is the GPU, the limits of its SMs and its tile times; R and Q; T0 of the most producers that were
    calibrated. Sources stay behind.
    """
    compute = platform.compute
    most = {point.flavour: point.producers for point in sorted(platform.issue, key=lambda one: one.producers)}
    return PlatformProfile(
        name=platform.name,
        path=platform.path,
        gpu=platform.gpu,
        drain=platform.drain,
        issue=_short(point for point in platform.issue if point.producers == most[point.flavour]),
        capacity=_short(platform.capacity),
        capacity_law=platform.capacity_law,
        compute=compute and compute.model_copy(update={"attention": _short(compute.attention)}),
        provenance=platform.provenance,
    )


def _short(entries: Iterable[EntryT]) -> tuple[EntryT, ...]:
    return tuple(one.model_copy(update={"source": ""}) for one in entries)


class Defaults:
    """Default configs, and what can run at all, on the platform of a bundle's exports.

    Args:
        platform: of the exports.
        terms: those of an export that has them; None where all are of a version that kept none. The platform
            of that name then stands in, if it is installed and of the same GPU.
    """

    def __init__(self, platform: PlatformIdentity, terms: PlatformProfile | None) -> None:
        self._platform = platform
        self._given = terms
        self._terms = lru_cache(maxsize=None)(self._find_terms)
        self._default = lru_cache(maxsize=_KEPT)(self._work_out)
        self._problem = lru_cache(maxsize=_KEPT)(self._first_problem)
        self._slower = lru_cache(maxsize=_KEPT)(self._expected_slower)

    def __reduce__(self) -> tuple[type[Defaults], tuple[PlatformIdentity, PlatformProfile | None]]:
        """Bundles go to other processes; what was worked out stays."""
        return Defaults, (self._platform, self._given)

    def config(self, workload: Workload, sms: int | None = None) -> KernelConfig:
        """The default config of a layer.

        Args:
            sms: of the GPU to run on, where they are not the platform's.

        Raises:
            UsageError: no default fits, or nothing says what a default rests on.
        """
        return self._default(workload, sms)

    def problem(self, config: KernelConfig, workload: Workload) -> str | None:
        """Why a config cannot run for a workload on the platform; None where it can, or nobody knows."""
        return self._problem(config, workload)

    def slower(self, config: KernelConfig, workload: Workload) -> str | None:
        """That a config which can run is expected to be slower than the default; None where nothing says so.

        Exports of earlier versions lack what that rests on.
        """
        return self._slower(config, workload)

    def _work_out(self, workload: Workload, sms: int | None) -> KernelConfig:
        terms = self._terms()
        if terms is None:
            raise UsageError(
                f"the exports of '{self._platform.name}' carry nothing of its GPU, so the default config of "
                f"'{workload.name}' is not known",
                "write them again: xstage-tune export; or take the nearest one: max_token_ratio=math.inf",
            )
        if sms is not None and sms != terms.gpu.sm_count:
            terms = terms.model_copy(update={"gpu": terms.gpu.model_copy(update={"sm_count": sms})})
        return default_config(workload, terms)

    def _first_problem(self, config: KernelConfig, workload: Workload) -> str | None:
        terms = self._terms()
        if terms is None:
            return None
        violations = check_config(config, workload, terms).violations
        return violations[0].message if violations else None

    def _expected_slower(self, config: KernelConfig, workload: Workload) -> str | None:
        terms = self._terms()
        try:
            return None if terms is None else bind(workload, terms).outgrown(config)
        except UsageError:  # no T0 or Q, or no default
            return None

    def _find_terms(self) -> PlatformProfile | None:
        if self._given is not None:
            return self._given
        if self._platform.name not in list_platforms():
            return None
        installed = load_platform(self._platform.name)
        same = (installed.gpu.name, installed.gpu.architecture) == (
            self._platform.gpu,
            self._platform.architecture,
        )
        return default_terms(installed) if same else None
