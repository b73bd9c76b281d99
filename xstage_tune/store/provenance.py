"""What identifies a run and the environment it was made in."""

from __future__ import annotations

import hashlib
import json
import platform
import secrets
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from xstage_tune.base.provenance import installed_version
from xstage_tune.launches.device import DeviceDescription


def utc_now() -> str:
    """The time as ISO 8601 in UTC with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def new_id(kind: str) -> str:
    """A readable name, unique across processes and ordered by time, e.g. ``cal-20261129-114738-3fa9c1``."""
    return f"{kind[:3]}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def environment_values(device: DeviceDescription, host: str) -> dict[str, Any]:
    """Column values of the ``environment`` row of this host, its software and ``device``."""
    values: dict[str, Any] = {
        "host": host,
        "system": f"{platform.platform()}, Python {platform.python_version()}",
        "device_kind": device.kind,
        "gpu_name": device.name,
        "gpu_uuid": device.uuid,
        "driver": device.driver,
        "cuda": device.cuda,
        "nvrtc": device.nvrtc,
        "torch": installed_version("torch") or "",
        "device": asdict(device),
    }
    identity = json.dumps(values, sort_keys=True).encode()
    return {"identity_sha256": hashlib.sha256(identity).hexdigest(), **values}
