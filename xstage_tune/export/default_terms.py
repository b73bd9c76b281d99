"""The default config of a layer without the platform's profile: exports carry what it rests on."""

from __future__ import annotations

from functools import lru_cache

from xstage_tune.base.errors import UsageError
from xstage_tune.export.record import PlatformIdentity
from xstage_tune.families.binding import check_config, default_config
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.loader import list_platforms, load_platform
from xstage_tune.platforms.schema import PlatformProfile

#: Layers and token counts whose defaults are kept, so that serving works each out once.
_KEPT = 1024


def default_terms(platform: PlatformProfile) -> PlatformProfile:
    """A platform reduced to what defaults, and the limits of any config, rest on.

    That is the GPU, the limits of its SMs, and which store flavours have times; what was measured of the link
    at one point of each flavour, since a profile needs some.
    """
    one_of_flavour = {point.flavour: point for point in reversed(platform.issue)}
    compute = platform.compute
    return PlatformProfile(
        name=platform.name,
        path=platform.path,
        gpu=platform.gpu,
        drain=platform.drain,
        issue=tuple(one_of_flavour[flavour] for flavour in sorted(one_of_flavour)),
        compute=compute.model_copy(update={"attention": compute.attention[:1]}) if compute else None,
        provenance=platform.provenance,
    )


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
