"""The export itself: a tuned config, what it was tuned for, what it reached and what is behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.base.field_types import Count, NonNegative, Strict, Tally, Whole
from xstage_tune.base.json_output import json_sha256
from xstage_tune.base.profile_files import check_profile
from xstage_tune.base.version import __version__
from xstage_tune.families.fields import AnyConfig, AnyWorkload
from xstage_tune.families.megamoe.schedule_model import ScheduleModel
from xstage_tune.platforms.identity import GpuIdentity
from xstage_tune.platforms.schema import ComputeOrigin, PlatformProfile

#: Key of a file, not of the schema: the hash of all others.
_SEAL = "sha256"

FORMAT: Literal["xstage-tune.tuned-config"] = "xstage-tune.tuned-config"

#: ``measured``: on a GPU. ``emulated``: by the kernel's skeleton on a GPU. ``predicted``: by the simulator
#: from the platform's calibration.
ResultBasis = Literal["measured", "emulated", "predicted"]


class TunedObjective(Strict):
    """What the config reached, beside the default config and the bound; all of the same quantity."""

    quantity: Literal["latency", "stall"]
    basis: ResultBasis
    device: str
    ns: NonNegative
    #: The default config on the same device; None where it failed or none fits.
    default_ns: NonNegative | None = None
    #: That one, which may be another than today's; exports of earlier versions do not say.
    default: AnyConfig | None = None
    #: Of the launch, whatever the quantity; exports of earlier versions have none.
    latency_ns: NonNegative | None = None
    default_latency_ns: NonNegative | None = None
    #: No config of the searched space is below it.
    bound_ns: NonNegative
    #: The search was to stop once the best is within this fraction of the bound, and why it did stop.
    tolerance: NonNegative | None = None
    stopped: str
    #: Set where the search has not ended: why. The config is then only the best so far.
    unfinished: str | None = None
    #: True where nothing beat the default by more than the noise, so that the default is the answer.
    is_default: bool
    #: Other configs that the repeats cannot tell from this one.
    ties: Tally
    evaluations: Count


class PlatformIdentity(Strict):
    """The calibrated platform that the config is for."""

    name: str
    sha256: str
    gpu: str
    architecture: str
    path: StorePath
    #: The GPU that the platform was calibrated on; exports of before it was told apart have its name alone.
    gpu_identity: GpuIdentity | None = None
    #: Whether the times of its tiles, by which the search predicts and bounds, were measured.
    compute_origin: ComputeOrigin | None = None
    #: How the GPU that ran the configs differs from it, where the platform was forced on that GPU.
    other_gpu: str | None = None

    @property
    def identity(self) -> GpuIdentity:
        """The GPU, as far as the export knows it."""
        return self.gpu_identity or GpuIdentity(name=self.gpu)


class Provenance(Strict):
    """Where the result comes from."""

    study_id: str
    created_at: str
    #: By which the study was begun; empty where an older version searched, which did not keep it.
    tool_version: str
    sampler: str
    seed: Whole
    workload_sha256: str
    #: Of the sources that ``devices.kernel_identity`` names, when the study was begun; empty where it names
    #: none, or an older version searched.
    kernel_sha256: str = ""


class TunedConfig(Strict):
    """One export."""

    format: Literal["xstage-tune.tuned-config"] = FORMAT
    schema_version: Literal[1] = 1
    config: AnyConfig
    objective: TunedObjective
    workload: AnyWorkload
    platform: PlatformIdentity
    schedule_model: ScheduleModel | None = None  # of a MoE layer
    #: What of the platform its default configs rest on; exports of older versions lack it.
    default_terms: PlatformProfile | None = None
    provenance: Provenance

    def keys(self) -> dict[str, Any]:
        """Plain keys that :func:`tuned_from_keys` reads back; those that do not apply are left out."""
        return self.model_dump(mode="json", exclude_none=True)


def sealed(keys: dict[str, Any]) -> dict[str, Any]:
    """The keys of an export with their hash, by which damage to any of them is seen."""
    return {**keys, _SEAL: json_sha256(keys)}


def tuned_from_keys(keys: dict[str, Any], path: Path) -> TunedConfig:
    """The keys of a JSON or TOML export; those of earlier versions are not sealed.

    Raises:
        UsageError: they break the schema, or are not those that were sealed; names the file and the key.
    """
    keys = dict(keys)
    seal = keys.pop(_SEAL, None)
    if seal is not None and seal != json_sha256(keys):
        raise UsageError(
            f"{path}: damaged or edited: its keys are not those that {_SEAL} is of",
            f"export its study again: xstage-tune export; to use what was edited on purpose, remove {_SEAL}",
        )
    try:
        return check_profile(TunedConfig, keys, str(path))
    except UsageError as error:
        provenance = keys.get("provenance")
        by = provenance.get("tool_version") if isinstance(provenance, dict) else None
        if not by or by == __version__:
            raise
        update = f"exported by xstage-tune {by}, this is {__version__}: update it, or export again"
        raise UsageError(error.message, "; ".join(filter(None, (error.hint, update)))) from None
