"""What serving code calls, as ``xstage_tune.lookup`` and so on."""

from __future__ import annotations

from pathlib import Path

from numpy.typing import ArrayLike

from xstage_tune.base.errors import UsageError
from xstage_tune.base.profile_files import check_profile
from xstage_tune.export.bundle import Bundle, load_bundle
from xstage_tune.export.match import Lookup, ScheduleChoice
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import list_workloads, load_workload
from xstage_tune.platforms.identity import GpuIdentity

__all__ = ["choose_schedule", "load_bundle", "lookup"]


def lookup(
    bundle: Bundle | str | Path,
    workload: Workload | str,
    *,
    tokens: int | None = None,
    gpu: GpuIdentity | str | None = None,
    max_token_ratio: float | None = None,
) -> Lookup:
    """The config to run for a workload, and how well it fits: exact, nearest, stale or the default.

    :mod:`xstage_tune.export.bundle` has the rule; ``reasons`` of the result say what keeps a match from being
    exact. Under 50 us with a loaded bundle and workload, but for the first default of each number of tokens;
    exports, and a workload that is named, are read anew on every call.

    Args:
        bundle: from :func:`load_bundle`, or what it takes: a folder of exports, or the file of one.
        workload: a workload profile, its name, or a path ending in ``.toml``. A name is first looked for
            among the bundle's workloads, then among the profiles that are installed.
        tokens: in place of the workload's: of a rank of a MoE layer, of the whole sequence of an attention.
        gpu: to run on, or the driver's name of it. By default the one that this process sees, which it asks
            NVML for once; where it sees none, ``unchecked`` of the result says so.
        max_token_ratio: how many times the tokens asked for may be those of a tuned config, or the other way
            round, before the default is returned; by default ``export.token_distance.MAX_TOKEN_RATIO``.

    Raises:
        UsageError: no export is for this layer, the bundle or workload cannot be read, or the default is to
            be returned and none is known.
    """
    loaded = _loaded(bundle)
    return loaded.lookup(_workload(loaded, workload, tokens), gpu=gpu, max_token_ratio=max_token_ratio)


def choose_schedule(
    bundle: Bundle | str | Path,
    tokens_per_expert: ArrayLike,
    workload: Workload | str | None = None,
    *,
    gpu: GpuIdentity | str | None = None,
    max_token_ratio: float | None = None,
) -> ScheduleChoice:
    """Expert waves or interleaving, and the lead D, for the tokens that a rank's experts have now.

    Weighs the predicted stall that interleaving saves against the cache locality that it costs, in closed
    form (:mod:`xstage_tune.export.schedule_choice`). Where :func:`lookup` returns the default config the
    schedule is the default's own. Under 100 us with a loaded bundle.

    Args:
        bundle: from :func:`load_bundle`, or what it takes: a folder of exports, or the file of one.
        tokens_per_expert: tokens of each expert on this rank, ``[local_experts]``.
        workload: which layer, where the bundle holds several, and how many tokens it is tuned for; else the
            bundle is asked for as many tokens a rank as this rank received, over top-k.
        gpu, max_token_ratio: as of :func:`lookup`.

    Raises:
        UsageError: the tokens do not fit the layer, it is not clear which layer is meant, or as
            :func:`lookup`.
    """
    loaded = _loaded(bundle)
    layer = None if workload is None else _workload(loaded, workload, None)
    return loaded.choose_schedule(tokens_per_expert, layer, gpu=gpu, max_token_ratio=max_token_ratio)


def _loaded(bundle: Bundle | str | Path) -> Bundle:
    return bundle if isinstance(bundle, Bundle) else load_bundle(bundle)


def _workload(bundle: Bundle, workload: Workload | str, tokens: int | None) -> Workload:
    if not isinstance(workload, str | Workload):
        raise UsageError(
            f"workload = {workload!r}: should be a workload or the name of one", "e.g. 'megamoe/glm-4.5'"
        )
    found = _named(bundle, workload, tokens) if isinstance(workload, str) else workload
    if tokens is None or tokens == found.token_count:
        return found
    keys = found.model_dump() | {found.TOKENS_KEY: tokens}
    return check_profile(type(found), keys, f"{found.name} with tokens={tokens}")


def _named(bundle: Bundle, name: str, tokens: int | None) -> Workload:
    """A workload by name: the bundle's own, else an installed profile, or one by its path.

    Raises:
        UsageError: neither has it, or the bundle has several that only their tokens, or not even those, tell
            apart.
    """
    own = [export.workload for export in bundle.exports if export.workload.name == name]
    if len(own) == 1:
        return own[0]
    alike = {one.model_copy(update={one.TOKENS_KEY: 1}) for one in own}
    if own and tokens is not None and len(alike) == 1:
        return own[0]
    if own and name not in list_workloads():
        each = ", ".join(str(one.token_count) for one in own)
        raise UsageError(
            f"the bundle has '{name}' {len(own)} times, for {each} {own[0].TOKENS_KEY}",
            "say which: tokens=N, or give the workload itself",
        )
    return load_workload(name)
