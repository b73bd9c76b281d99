"""Exports for tests, made without a search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import xstage_tune
from xstage_tune.base.json_output import json_sha256, to_json
from xstage_tune.devices.kernel_identity import kernel_sha256
from xstage_tune.export.default_terms import default_terms
from xstage_tune.export.record import TunedConfig
from xstage_tune.families.binding import default_config
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.schedule_terms import schedule_model
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile

FLASH = "megamoe/deepseek-v4-flash"
WAN = "fa-a2a/wan2.1-14b-720p"


def tuned(
    workload: str = FLASH,
    *overrides: str,
    platform: PlatformProfile | None = None,
    schedule: dict[str, Any] | None = None,
    **objective: Any,
) -> TunedConfig:
    """An export of the default config, or of it under another schedule, as if a search had chosen it."""
    at = platform or load_platform("paper-nvlink5")
    profile = load_workload(workload, overrides)
    config = default_config(profile, at)
    if isinstance(config, MegaMoeConfig) and schedule:
        config = MegaMoeConfig.model_validate({**config.model_dump(), "schedule": schedule})
    model = (
        schedule_model(profile, at, config)
        if isinstance(profile, MoeWorkload) and isinstance(config, MegaMoeConfig)
        else None
    )
    reached = {
        "quantity": "latency",
        "basis": "predicted",
        "device": "simulator",
        "ns": 1.2e6,
        "default_ns": 1.5e6,
        "bound_ns": 1.1e6,
        "tolerance": 0.02,
        "stopped": "within 1.8% of the bound",
        "is_default": False,
        "ties": 1,
        "evaluations": 40,
    }
    return TunedConfig.model_validate(
        {
            "config": config.model_dump(),
            "objective": {**reached, **objective},
            "workload": profile.model_dump(),
            "platform": {
                "name": at.name,
                "sha256": "ab" * 32,
                "gpu": at.gpu.name,
                "architecture": at.gpu.architecture,
                "path": at.path,
                "gpu_identity": at.gpu.identity.model_dump(),
            },
            "schedule_model": model.model_dump() if model else None,
            "default_terms": default_terms(at).model_dump(),
            "provenance": {
                "study_id": "study-1",
                "created_at": "2026-01-01T00:00:00.000000Z",
                "tool_version": xstage_tune.__version__,
                "sampler": "tpe",
                "seed": 7,
                "workload_sha256": json_sha256(profile),
                "kernel_sha256": kernel_sha256(profile, emulated=objective.get("basis") == "emulated"),
            },
        }
    )


def changed(export: TunedConfig, **sections: dict[str, Any]) -> TunedConfig:
    """The export with other values under keys of its sections."""
    return export.model_copy(
        update={name: getattr(export, name).model_copy(update=keys) for name, keys in sections.items()}
    )


def write(folder: Path, name: str, export: TunedConfig) -> Path:
    """Put an export into a bundle's folder."""
    path = folder / f"{name}.json"
    path.write_text(to_json(export.keys()))
    return path
