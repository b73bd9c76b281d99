"""Platforms and workloads for audits."""

from __future__ import annotations

from typing import Any

from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile


def paper_platform(**sections: Any) -> PlatformProfile:
    """The paper's platform; ``sections`` replace its own."""
    platform = load_platform("paper-nvlink5").model_dump()
    return PlatformProfile.model_validate({**platform, **sections})


def issue_point(producers: int, burst_bytes: int, ns: float) -> dict[str, Any]:
    return {
        "flavour": "st.v4",
        "producers": producers,
        "burst_bytes": burst_bytes,
        "ns": ns,
        "source": f"measured at {burst_bytes}",
    }


def capacity_point(producers: int, count: float) -> dict[str, Any]:
    return {
        "flavour": "st.v4",
        "producers": producers,
        "bytes": count,
        "source": f"knee of {producers}",
    }
