"""What is known of a GPU's compute, which a calibration of its links does not measure."""

from __future__ import annotations

from pydantic import Field

from xstage_tune.assets import data_dir
from xstage_tune.platforms.schema import Compute
from xstage_tune.profile_files import check_profile, find_profiles, read_profile
from xstage_tune.profile_types import Strict


class GpuCompute(Strict):
    """Rates and limits of the GPUs whose names begin with one of ``names``."""

    names: tuple[str, ...] = Field(
        min_length=1,
        description="Names of GPUs that it speaks of, as the driver gives them",
        examples=[["NVIDIA H200"]],
    )
    compute: Compute = Field(description="Rates and limits of the GPU's SMs")


def known_compute(gpu_name: str) -> Compute | None:
    """The shipped compute section for a GPU by the driver's name of it; None where none is shipped.

    Raises:
        UsageError: a shipped file breaks the schema.
    """
    for path in find_profiles((data_dir("profiles") / "gpus",)).values():
        known = check_profile(GpuCompute, read_profile(path), str(path))
        if gpu_name.startswith(known.names):
            return known.compute
    return None
