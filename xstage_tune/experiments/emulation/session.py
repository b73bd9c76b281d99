"""An emulation whose every launch is kept: device, store and recording around the procedure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xstage_tune.base.progress import Progress, phase
from xstage_tune.experiments.emulation.procedure import emulate
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.experiments.emulation.result import EmulationResult, conclude
from xstage_tune.launches.device import Device
from xstage_tune.store.facade import Store
from xstage_tune.store.kept_run import kept_launches


def run_emulation(
    device: Device,
    request: EmulationRequest,
    store: Store,
    *,
    argv: Sequence[str],
    progress: Progress,
    record: Path | None = None,
    force: bool = False,
) -> EmulationResult:
    """Emulate, keeping every launch in the store before anything is concluded from it.

    On a GPU a round that nobody times, or keeps, comes first.

    Args:
        record: file to record the run to, for replay.
        force: whether ``record`` may replace a file.

    Raises:
        RunInterrupted: the user stopped it; what was measured is in the store.
        DeviceError, FindingError, UsageError, StoreError: as the parts raise them; likewise.
    """
    description = device.describe()
    kept_run = kept_launches(
        device, request, store, "emulate", argv=argv, progress=progress, record=record, force=force
    )
    with kept_run as kept:
        untimed = device if description.kind == "cuda" else None
        launches = emulate(kept, request, progress, untimed=untimed)
    with phase("predicting"):
        return conclude(
            request,
            launches,
            run_id=kept.run_id,
            device=device.identity,
            device_name=description.name,
            throttled_launches=kept.throttled,
        )
