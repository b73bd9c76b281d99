"""The families that there are: those of the tool, and those of installed packages.

A package brings one by an entry point of the group ``xstage_tune.families`` that names its
:class:`~xstage_tune.families.family.Family`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from xstage_tune.base.errors import UsageError
from xstage_tune.families.family import Family

GROUP = "xstage_tune.families"
#: Found without a look at what is installed: lookups in serving processes take milliseconds.
_BUILT_IN = tuple(
    f"xstage_tune.families.{folder}.family" for folder in ("megamoe", "attention_a2a", "own_kernel")
)

AnyFamily = Family[Any, Any]


@cache
def built_in_families() -> tuple[AnyFamily, ...]:
    """Those of the tool."""
    return tuple(import_module(module).FAMILY for module in _BUILT_IN)


@cache
def families() -> tuple[AnyFamily, ...]:
    """All families, the tool's first, then those of installed packages by the names of their entry points.

    Raises:
        UsageError: a package's family cannot be loaded, is none, or has a kind of another one.
    """
    found = list(built_in_families())
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        family = _loaded(entry)
        for what in ("workload_kind", "config_kind"):
            kind = getattr(family, what)
            if any(kind == getattr(other, what) for other in found):
                raise UsageError(
                    f"the family '{entry.name}' of {_package_of(entry)} has the {what.replace('_', ' ')} "
                    f"'{kind}' of another one",
                    f"uninstall {_package_of(entry)}",
                )
        found.append(family)
    return tuple(found)


def _loaded(entry: EntryPoint) -> AnyFamily:
    """What an entry point names.

    Raises:
        UsageError: it cannot be loaded, or is no family.
    """
    mend = f"mend or uninstall {_package_of(entry)}"
    try:
        family = entry.load()
    except Exception as error:  # whatever a package of someone else's raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(
            f"the family '{entry.name}' of {_package_of(entry)} cannot be loaded: {reason}", mend
        ) from error
    if not isinstance(family, Family):
        raise UsageError(
            f"the family '{entry.name}' of {_package_of(entry)} is none: {entry.value} is a "
            f"{type(family).__name__}, not an object of a class derived from Family",
            mend,
        )
    return family


def _package_of(entry: EntryPoint) -> str:
    return f"package '{entry.dist.name}'" if entry.dist else f"the package that brings {entry.value}"


def family_of_workload_kind(kind: str) -> AnyFamily | None:
    """The family of workload files of a kind; None where there is none."""
    return _first(lambda family: family.workload_kind == kind)


def family_of_config_kind(kind: str) -> AnyFamily | None:
    """The family of configs of a kind; None where there is none."""
    return _first(lambda family: family.config_kind == kind)


def _first(matches: Callable[[AnyFamily], bool]) -> AnyFamily | None:
    for known in (built_in_families, families):
        for family in known():
            if matches(family):
                return family
    return None
