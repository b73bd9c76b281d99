"""The template of what is known of a GPU's compute, for a GPU whose section is not shipped."""

from __future__ import annotations

import re
from typing import Any

from xstage_tune.base.profile_templates import checked_template
from xstage_tune.platforms.gpus import KnownGpu
from xstage_tune.platforms.schema import Gpu

_SOURCE = "example of the template: replace it by this GPU's"


def gpu_file_name(gpu: Gpu) -> str:
    """Stem of the file: the driver's name without its maker, in lower case, as in ``h200-nvl``."""
    model = gpu.name.lower().removeprefix("nvidia").strip()
    return re.sub(r"[^a-z0-9]+", "-", model).strip("-") or "gpu"


def gpu_template(gpu: Gpu) -> str:
    """A commented section for exactly this GPU, as TOML that loads; its figures are examples.

    Raises:
        UsageError: the GPU's name cannot be written so.
    """
    heading = (
        f"Compute of {gpu.name}, for xstage-tune: what platforms of this GPU take where they have no compute "
        "section of their own. The identity below is the GPU's; all else are examples to be replaced: peaks "
        "and bandwidth from its data sheet, times of tiles from benchmarks/attention_tiles.py. Set origin "
        'to "measured" once they are.'
    )
    known = gpu.identity.model_dump(exclude_none=True)
    values: dict[str, Any] = {
        f"gpu.{key}.{inner}" if inner else f"gpu.{key}": value
        for key, found in known.items()
        for inner, value in (found.items() if isinstance(found, dict) else ((None, found),))
    }
    values |= {"*.source": _SOURCE, "compute.origin": "datasheet"}
    sections = [f"gpu.{key}" for key, found in known.items() if isinstance(found, dict)]
    return checked_template(
        KnownGpu, heading, gpu.name, values=values, given=(*sections, "compute.attention")
    )
