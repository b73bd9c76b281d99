"""Taking runs and studies out of a store, with all that is kept of them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from xstage_tune.base.errors import StoreError
from xstage_tune.store.catalogue import no_entry
from xstage_tune.store.database import Database
from xstage_tune.store.models import Environment, Run, Study, StudyHolder
from xstage_tune.store.process import has_ended
from xstage_tune.store.studies import require_left


def remove(database: Database, ids: Sequence[str]) -> None:
    """Remove runs and studies in one transaction: all of them or none.

    Launches, spans and fits go with their run; trials and the record of exports with their study. Trials of
    a study that stays only forget the run that measured them. Files that were exported stay.

    Raises:
        UsageError: an id is neither a run's nor a study's.
        StoreError: a process that may still live writes one of them, or the database failed.
    """

    def removing(session: Session) -> None:
        for entry_id in dict.fromkeys(ids):
            # On PostgreSQL, whoever takes the study at the same time waits for this row.
            study = session.get(Study, entry_id, with_for_update=True)
            run = None if study else session.get(Run, entry_id)
            if study is not None:
                holder = session.get(StudyHolder, entry_id)
                if holder is not None:
                    require_left(holder)
                session.execute(delete(Study).where(Study.id == entry_id))
            elif run is not None:
                _require_ended(run)
                session.execute(delete(Run).where(Run.id == entry_id))
            else:
                raise no_entry(database, entry_id)
        used = select(Run.environment_id)
        session.execute(delete(Environment).where(Environment.id.not_in(used)))

    database.write(removing)


def _require_ended(run: Run) -> None:
    """Refuse to remove what a process may still write."""
    if run.status != "running" or has_ended(run.process):
        return
    raise StoreError(
        f"run {run.id} is being written by process {run.pid} on {run.host} since {run.started_at[:19]} UTC",
        f"wait until it ends; if it died, any command with this store on {run.host} finds out",
    )
