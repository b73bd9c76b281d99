"""Templates of workload profiles."""

from __future__ import annotations

from xstage_tune.base.errors import UsageError
from xstage_tune.families.registry import families, family_of_workload_kind


def workload_template(name: str, kind: str) -> str:
    """A commented workload profile called ``name``, of a ``kind`` of workload, as TOML that loads.

    Raises:
        UsageError: a workload cannot be called so, or no family has that kind.
    """
    family = family_of_workload_kind(kind)
    if family is None:
        kinds = ", ".join(family.workload_kind for family in families())
        raise UsageError(f"kind '{kind}' is unknown", f"give --kind; there are {kinds}")
    return family.template(name)
