"""Which platform a command rests on: one rule for all of them.

The one that is named. Else the user's own calibrated profile that fits the GPU present and the path, of
several calibrations of one GPU and path the newest; a replayed recording counts only where nothing was
measured, a simulation or an unchanged template never. Else it must be named: a profile that nobody chose
would answer for another machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from xstage_tune.base.errors import UsageError
from xstage_tune.platforms.gpus import compare
from xstage_tune.platforms.loader import list_own_platforms, list_platforms, load_platform
from xstage_tune.platforms.schema import TEMPLATE_SOURCE, PlatformProfile

if TYPE_CHECKING:
    from xstage_tune.base.fabric import StorePath
    from xstage_tune.platforms.identity import GpuIdentity


@dataclass(frozen=True, slots=True)
class ChosenPlatform:
    """A platform, and why it was taken; empty where the user named it."""

    profile: PlatformProfile
    why: str = ""


def chosen_platform(
    name_or_path: str | None,
    *,
    present: GpuIdentity | None = None,
    path: StorePath | None = None,
    preferred: StorePath | None = None,
) -> ChosenPlatform:
    """The platform of a command.

    Args:
        name_or_path: what the user named, if anything.
        present: the GPU of this machine; None where there is none.
        path: that was asked for; None for any.
        preferred: where profiles of several paths fit, the path to take.

    Raises:
        UsageError: there is no such profile; or none was named and none of the user's own fits, or several
            that are not calibrations of one GPU and path. Names those that there are.
    """
    if name_or_path is not None:
        return ChosenPlatform(load_platform(name_or_path))
    own, templates = _own_platforms()
    measured = {name: one for name, one in own.items() if one.provenance.replayed_from is None}
    considered = measured or own
    fitting = {name: one for name, one in considered.items() if _fits(one, present, path)}
    if len(fitting) > 1:
        fitting = {name: one for name, one in fitting.items() if one.path == preferred} or fitting
    if len(fitting) == 1:
        ((name, profile),) = fitting.items()
        return ChosenPlatform(profile, f"platform {name}: {_why(profile, own, present, path)}")
    if newest := _newest(fitting):
        others = ", ".join(name for name in fitting if name != newest)
        words = f"the newest of your {len(fitting)} calibrations of {fitting[newest].gpu.name}, path"
        why = f"platform {newest}: {words} {fitting[newest].path}; --platform names another: {others}"
        return ChosenPlatform(fitting[newest], why)
    raise _refusal(fitting, considered, templates, present, path)


def _own_platforms() -> tuple[dict[str, PlatformProfile], list[str]]:
    """The user's own of a machine, by name, and the names of templates that nobody has changed yet.

    Simulated ones are neither, nor is a file that does not load: ``platforms list`` says what it lacks.
    """
    found, templates = {}, []
    for name in list_own_platforms():
        try:
            profile = load_platform(name)
        except UsageError:
            continue
        if profile.drain.source == TEMPLATE_SOURCE:
            templates.append(name)
        elif not profile.provenance.simulated:
            found[name] = profile
    return found, templates


def _fits(profile: PlatformProfile, present: GpuIdentity | None, path: StorePath | None) -> bool:
    if path is not None and profile.path != path:
        return False
    return present is None or compare(profile.gpu.identity, present, profile.path).same


def _newest(fitting: Mapping[str, PlatformProfile]) -> str | None:
    """The name of the calibration made last, where all are of one GPU and path; None where they are not.

    What was written by hand has no run, and stands in for no calibration; a copy is as old as the original.
    """
    profiles = list(fitting.values())
    if not profiles or not all(one.provenance.run_id and _is_like(profiles[0], one) for one in profiles):
        return None
    try:
        made = {name: _time(one.provenance.created_at) for name, one in fitting.items()}
    except ValueError:
        return None
    last = max(made.values())
    names = [name for name, time in made.items() if time == last]
    return names[0] if len(names) == 1 else None


def _is_like(one: PlatformProfile, other: PlatformProfile) -> bool:
    same = compare(one.gpu.identity, other.gpu.identity, one.path).same
    return same and one.path == other.path


def _time(iso: str) -> datetime:
    """
    Raises:
        ValueError: it is no time by ISO 8601.
    """
    time = datetime.fromisoformat(iso)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _why(
    profile: PlatformProfile,
    own: Mapping[str, PlatformProfile],
    present: GpuIdentity | None,
    path: StorePath | None,
) -> str:
    whose = "your own"
    if profile.provenance.replayed_from is not None:
        whose = f"replayed from the recording {profile.provenance.replayed_from}, of {profile.gpu.name}"
    if len(own) == 1:
        reason = "the only one of yours"
    elif present is not None:
        reason = f"calibrated on this GPU, path {profile.path}"
    else:
        reason = f"the only one that fits path {path}" if path else "the only one that was measured"
    unknown = compare(profile.gpu.identity, present, profile.path).unknown if present else ()
    unsure = f"; not known of one of the two GPUs, so not compared: {', '.join(unknown)}" if unknown else ""
    return f"{whose}, {reason}{unsure}"


def _refusal(
    fitting: Mapping[str, PlatformProfile],
    considered: Mapping[str, PlatformProfile],
    templates: Sequence[str],
    present: GpuIdentity | None,
    path: StorePath | None,
) -> UsageError:
    on = f" on path '{path}'" if path else ""
    if fitting:
        listed = ", ".join(f"{name} ({one.gpu.name}, {one.path})" for name, one in fitting.items())
        return UsageError(
            f"which platform? {len(fitting)} of your own fit{on}: {listed}", "name one with --platform"
        )
    every = ", ".join(list_platforms())
    flag = f" --path {path}" if path else ""
    hint = f"calibrate this machine: xstage-tune calibrate{flag}; or name one with --platform: {every}"
    if not considered:
        written = (
            f"; {', '.join(templates)}: a template with example numbers, so to be named" if templates else ""
        )
        return UsageError(f"no platform is named, and you have calibrated none{written}", hint)
    if present is None:
        listed = ", ".join(f"{name} ({one.path})" for name, one in considered.items())
        return UsageError(f"no platform is named, and none of your own fits{on}: {listed}", hint)
    listed = "; ".join(f"{name}: {_misfit(one, present)}" for name, one in considered.items())
    return UsageError(
        f"no platform is named, and none of your own is of this GPU, {present.name}{on}: {listed}", hint
    )


def _misfit(profile: PlatformProfile, present: GpuIdentity) -> str:
    differences = compare(profile.gpu.identity, present, profile.path).words()
    return differences or f"path {profile.path}"
