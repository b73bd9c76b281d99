"""What a shell completes: names of workloads and platforms, ids of studies and runs.

Fast, and silent whatever fails: what a completion prints lands amid the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import typer


def workload_names(incomplete: str) -> list[str]:
    """Workloads that are found by name."""
    from xstage_tune.families.workload_files import list_workloads

    return _matching(list_workloads, incomplete)


def platform_names(incomplete: str) -> list[str]:
    """Platforms that are found by name."""
    from xstage_tune.platforms.loader import list_platforms

    return _matching(list_platforms, incomplete)


def study_ids(context: typer.Context, incomplete: str) -> list[str]:
    """``latest``, ``latest-any``, and the studies of the store that is asked for, newest first."""
    return _matching(lambda: _ids(context, "study"), incomplete)


def run_ids(context: typer.Context, incomplete: str) -> list[str]:
    """``latest``, ``latest-any``, and the runs of the store that is asked for, newest first."""
    return _matching(lambda: _ids(context, "run"), incomplete)


def kept_ids(context: typer.Context, incomplete: str) -> list[str]:
    """The runs and studies of the store that is asked for, the newest of either first."""
    return _matching(lambda: (*_newest(context, "run"), *_newest(context, "study")), incomplete)


def config_choices(context: typer.Context, incomplete: str) -> list[str]:
    """``default``, and studies as ``study:ID``; a file is left to the shell."""
    return _matching(lambda: ("default", *(f"study:{study}" for study in _ids(context, "study"))), incomplete)


def _matching(candidates: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    try:
        return [candidate for candidate in candidates() if candidate.startswith(incomplete)]
    except Exception:
        return []


def _ids(context: typer.Context, kind: Literal["run", "study"]) -> list[str]:
    return ["latest", "latest-any", *_newest(context, kind)]


def _newest(context: typer.Context, kind: Literal["run", "study"]) -> list[str]:
    from xstage_tune.store.recent import recent_ids

    return recent_ids(context.params.get("store"), kind)
