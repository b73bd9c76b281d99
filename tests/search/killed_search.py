"""A search in a process that tests kill: ``python -m tests.search.killed_search STORE FOLDER [STUDY]``."""

from __future__ import annotations

import multiprocessing
import sys
from contextlib import closing
from functools import partial

from tests.devices.fault_device import open_planted
from tests.search.cases import request, small_space
from xstage_tune.base.progress import NoProgress
from xstage_tune.devices import worker
from xstage_tune.devices.isolated import IsolatedDevice
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import begin_study, resume_study
from xstage_tune.search.result import SearchResult
from xstage_tune.store.facade import Store

TRIALS = 24


def search(location: str, folder: str, study: str | None = None) -> SearchResult:
    asked, space = request(trials=TRIALS), small_space()
    with (
        closing(IsolatedDevice(partial(open_planted, folder))) as device,
        Store.open(location) as store,
    ):
        if study is None:
            journal = begin_study(store, asked, space, device.identity)
        else:
            journal = resume_study(store, study, asked, device.identity)
        return run_search(asked, space, device, journal, NoProgress())


if __name__ == "__main__":
    worker.get_context = lambda _: multiprocessing.get_context("fork")  # all is imported
    search(*sys.argv[1:])
