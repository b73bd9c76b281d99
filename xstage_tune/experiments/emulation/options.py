"""From a command's options to a request: names looked up, what is left out filled in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.devices.platform_choice import accept_gpu, choose_platform
from xstage_tune.experiments.emulation.request import EmulationRequest
from xstage_tune.experiments.emulation.sweep import Sweep
from xstage_tune.families.binding import family_of, require_kind
from xstage_tune.families.config_choice import DEFAULT_CONFIG
from xstage_tune.families.workload import Workload
from xstage_tune.launches.device import DeviceDescription
from xstage_tune.search.journal import chosen_config
from xstage_tune.store.facade import Store

#: In place of the names of orders: all; in place of a placement: each.
ALL_SCHEDULES, BOTH_PLACEMENTS = "all", "both"


def make_request(
    workload: Workload,
    config: str,
    platform: str | None,
    device: DeviceDescription | None,
    store: Store,
    notify: Callable[[str], None],
    *,
    path: StorePath | None = None,
    schedules: Sequence[str] = (),
    placement: str | None = None,
    flavour: StoreFlavour | None = None,
    staging_depth: int | None = None,
    sweep: Sweep | None = None,
    force: bool = False,
    **asked: Any,
) -> EmulationRequest:
    """The request of a command.

    Args:
        config: ``default``, ``study:ID`` or a file.
        device: the GPU; None for the simulator.
        store: of the studies.
        notify: is told which platform was taken, and why, if none was named.
        schedules: names, or :data:`ALL_SCHEDULES`.
        placement: a name, or :data:`BOTH_PLACEMENTS`.
        flavour, staging_depth: in place of the config's.
        force: whether another GPU's platform is taken.
        asked: the request's other fields.

    Raises:
        UsageError: a name, file or value is unknown or does not fit.
    """
    profile = choose_platform(platform, notify, device=device, path=path)
    path = path or profile.path
    family = family_of(workload)
    chosen = chosen_config(config, workload, profile, store)
    require_kind(chosen, workload)
    if flavour is not None:
        chosen = chosen.model_copy(update={"store_flavour": flavour})
    if staging_depth is not None:
        chosen = family.bind(workload, profile).with_knob(chosen, "staging_depth", staging_depth)
    knob = family.knobs.get(sweep.key) if sweep else None
    if ALL_SCHEDULES in schedules:
        orders = family.orders
    elif schedules:
        orders = tuple(dict.fromkeys(schedules))
    elif knob is not None and knob.order is not None:
        orders = (knob.order,)
    else:
        orders = family.usual_orders(chosen, chosen=config != DEFAULT_CONFIG, swept=sweep is not None)
    if placement is not None and len(family.placements) == 1:
        raise UsageError(
            f"--placement does not fit the workload '{workload.name}': its tiles are placed in one way",
            "leave it out",
        )
    if placement == BOTH_PLACEMENTS:
        placements = family.placements
    else:
        placements = (placement or family.placement_of(chosen),)
    return EmulationRequest(
        workload=workload,
        platform=profile,
        config=chosen,
        schedules=orders,
        placements=placements,
        path=path,
        sweep=sweep,
        other_gpu=accept_gpu(device, profile, path, notify) if device and force else "",
        **asked,
    )
