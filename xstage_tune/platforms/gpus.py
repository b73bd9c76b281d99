"""GPUs that are known: their identity, the names that drivers give them, and their compute.

A calibration of a GPU's links measures nothing of its compute, so profiles take it from here.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from xstage_tune.base.assets import data_dir
from xstage_tune.base.field_types import Strict
from xstage_tune.base.profile_files import check_profile, find_profiles, read_profile
from xstage_tune.base.user_folders import data_folder
from xstage_tune.platforms.identity import (
    FormFactor,
    GpuComparison,
    GpuIdentity,
    compare_gpus,
    form_factor_in,
)
from xstage_tune.platforms.schema import Compute

if TYPE_CHECKING:
    from xstage_tune.base.fabric import StorePath


class KnownGpu(Strict):
    """One GPU: what tells it from others, and its rates and limits."""

    gpu: GpuIdentity = Field(description="What tells the GPU from others")
    aliases: tuple[str, ...] = Field(
        default=(), description="Other names that drivers give this very GPU", examples=[["H200"]]
    )
    compute: Compute = Field(description="Rates and limits of the GPU's SMs")

    @property
    def names(self) -> tuple[str, ...]:
        return (self.gpu.name, *self.aliases)


def user_gpus_dir() -> Path:
    """Where a user's own sections are found; it may not exist."""
    return data_folder() / "gpus"


def known_gpus() -> tuple[KnownGpu, ...]:
    """The user's own, then the shipped ones.

    Raises:
        UsageError: a file breaks the schema.
    """
    return (*_read(user_gpus_dir()), *_shipped())


def known_compute(gpu: GpuIdentity) -> Compute | None:
    """The compute section of exactly this GPU, the user's own first; None where none is known.

    A MIG slice gets none of the whole GPU: it has a part of its SMs and of its memory, and another name.

    Raises:
        UsageError: a file breaks the schema.
    """
    return next((known.compute for known in known_gpus() if compare(known.gpu, gpu).same), None)


def compare(made_on: GpuIdentity, present: GpuIdentity, path: StorePath | None = None) -> GpuComparison:
    """:func:`~xstage_tune.platforms.identity.compare_gpus` with all names that are known of a GPU."""
    names = [known.names for known in known_gpus()]
    return compare_gpus(made_on, present, path=path, aliases=names)


def form_factor_of(name: str) -> FormFactor | None:
    """The form factor of the GPU of that name: as the name spells it out, else as it is known."""
    known = (one.gpu.form_factor for one in known_gpus() if name in one.names)
    return form_factor_in(name) or next(known, None)


@cache
def _shipped() -> tuple[KnownGpu, ...]:
    return _read(data_dir("profiles") / "gpus")


def _read(folder: Path) -> tuple[KnownGpu, ...]:
    files = find_profiles((folder,)).values()
    return tuple(check_profile(KnownGpu, read_profile(file), str(file)) for file in files)
