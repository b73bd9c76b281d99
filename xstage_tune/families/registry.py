"""The families that there are: those of the tool, and those of installed packages.

A package brings one by an entry point of the group ``xstage_tune.families`` that names its
:class:`~xstage_tune.families.family.Family`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from xstage_tune.base.errors import UsageError
from xstage_tune.families.family import Family

GROUP = "xstage_tune.families"
#: Found without a look at what is installed: lookups in serving processes take milliseconds.
_BUILT_IN = ("xstage_tune.families.megamoe.family", "xstage_tune.families.attention_a2a.family")

AnyFamily = Family[Any, Any]


@cache
def built_in_families() -> tuple[AnyFamily, ...]:
    """Those of the tool."""
    return tuple(import_module(module).FAMILY for module in _BUILT_IN)


@cache
def families() -> tuple[AnyFamily, ...]:
    """All families, the tool's first, then those of installed packages by the names of their entry points.

    Raises:
        UsageError: a package's family cannot be loaded, or has the kind of another one.
    """
    found = list(built_in_families())
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            family = entry.load()
        except Exception as error:  # whatever a package of someone else's raises
            raise UsageError(
                f"the family '{entry.name}' of the installed packages cannot be loaded: {error}",
                f"mend or uninstall the package that brings {entry.value}",
            ) from error
        if any(family.workload_kind == other.workload_kind for other in found):
            raise UsageError(
                f"the family '{entry.name}' of the installed packages has the workload kind "
                f"'{family.workload_kind}' of another one",
                f"uninstall the package that brings {entry.value}",
            )
        found.append(family)
    return tuple(found)


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
