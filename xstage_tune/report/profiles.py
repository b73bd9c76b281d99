"""How the profile of each kind of workload is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xstage_tune.report import layer_page, layer_tables, profile_page, profile_tables


@dataclass(frozen=True, slots=True)
class ProfileView:
    """What shows a result.

    Args:
        tables: for a terminal.
        sweep_figure: of a sweep.
        page: of a run, with its launches.
    """

    tables: Callable[[Any], Any]
    sweep_figure: Callable[[Any], Any]
    page: Callable[[Any, Any, Any], str]


_VIEWS = {
    "attention": ProfileView(
        profile_tables.profile_report, profile_page.sweep_figure, profile_page.render_profile
    ),
    "moe": ProfileView(layer_tables.layer_report, layer_page.sweep_figure, layer_page.render_layer),
}


def profile_view(result: Any) -> ProfileView:
    """Of the kind of the result's workload."""
    return _VIEWS[result.request.workload.kind]
