"""Which runs of the store have a page of their own."""

from __future__ import annotations

from xstage_tune.base.errors import UsageError
from xstage_tune.store.facade import Store
from xstage_tune.store.models import Run
from xstage_tune.store.process import has_ended

_KINDS = ("calibrate", "emulate", "profile")


def find_reportable(store: Store, run_id: str) -> Run:
    """A run of ``calibrate``, ``emulate`` or ``profile``; of those ``latest`` is the last one finished.

    Raises:
        UsageError: there is none, the run is of another kind, or it runs and has measured nothing yet.
    """
    run = store.run(run_id, lambda run: run.kind in _KINDS)
    if run.kind not in _KINDS:
        raise UsageError(
            f"run {run.id} is of kind '{run.kind}', not {_listed()}", "report its study with --study"
        )
    if run.status == "running" and not has_ended(run.process) and not store.launches(run.id):
        raise UsageError(
            f"run {run.id} has measured nothing yet: it is running, in process {run.pid} on {run.host}",
            "wait until it ends",
        )
    return run


def _listed() -> str:
    *others, last = (f"'{kind}'" for kind in _KINDS)
    return f"{', '.join(others)} or {last}"
