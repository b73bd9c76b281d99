"""What serving code calls, as ``xstage_tune.lookup`` and so on."""

from __future__ import annotations

from pathlib import Path

from numpy.typing import ArrayLike

from xstage_tune.export.bundle import Bundle, Lookup, load_bundle
from xstage_tune.export.schedule_choice import ScheduleChoice
from xstage_tune.workloads.loader import load_workload
from xstage_tune.workloads.schema import Workload

__all__ = ["choose_schedule", "load_bundle", "lookup"]


def lookup(bundle: Bundle | str | Path, workload: Workload | str) -> Lookup:
    """The tuned config for a workload: that of exactly this workload, else of the nearest of its layer.

    :mod:`xstage_tune.export.bundle` has the rule. Under 50 us with a loaded bundle and workload; exports,
    and a workload that is named, are read anew on every call.

    Args:
        bundle: from :func:`load_bundle`, or what it takes: a folder of exports, or the file of one.
        workload: a workload profile, its name, or a path ending in ``.toml``.

    Raises:
        UsageError: no export is for this layer, or the bundle or workload cannot be read.
    """
    return _loaded(bundle).lookup(_workload(workload))


def choose_schedule(
    bundle: Bundle | str | Path, tokens_per_expert: ArrayLike, workload: Workload | str | None = None
) -> ScheduleChoice:
    """Expert waves or interleaving, and the lead D, for the tokens that a rank's experts have now.

    Weighs the predicted stall that interleaving saves against the cache locality that it costs, in closed
    form (:mod:`xstage_tune.export.schedule_choice`). Under 100 us with a loaded bundle.

    Args:
        bundle: from :func:`load_bundle`, or what it takes: a folder of exports, or the file of one.
        tokens_per_expert: tokens of each expert on this rank, ``[local_experts]``.
        workload: which layer, where the bundle holds several.

    Raises:
        UsageError: the tokens do not fit the layer, or it is not clear which layer is meant.
    """
    return _loaded(bundle).choose_schedule(
        tokens_per_expert, None if workload is None else _workload(workload)
    )


def _loaded(bundle: Bundle | str | Path) -> Bundle:
    return bundle if isinstance(bundle, Bundle) else load_bundle(bundle)


def _workload(workload: Workload | str) -> Workload:
    return load_workload(workload) if isinstance(workload, str) else workload
