"""Which runs of the store have a page of their own."""

from __future__ import annotations

from xstage_tune.base.errors import UsageError
from xstage_tune.store.facade import Store
from xstage_tune.store.models import Run

_KINDS = ("calibrate", "emulate", "profile")


def find_reportable(store: Store, run_id: str) -> Run:
    """A run of ``calibrate``, ``emulate`` or ``profile``; of those ``latest`` is the last one finished.

    Raises:
        UsageError: there is none, or the run is of another kind.
    """
    run = store.run(run_id, lambda run: run.kind in _KINDS)
    if run.kind not in _KINDS:
        raise UsageError(
            f"run {run.id} is of kind '{run.kind}', not {_listed()}", "report its study with --study"
        )
    return run


def _listed() -> str:
    *others, last = (f"'{kind}'" for kind in _KINDS)
    return f"{', '.join(others)} or {last}"
