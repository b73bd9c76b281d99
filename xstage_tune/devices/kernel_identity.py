"""Which installed kernel sources a tuned config is for."""

from __future__ import annotations

from xstage_tune.cuda.sources import SKELETON_SOURCE, installed_sha256
from xstage_tune.families.binding import family_of
from xstage_tune.families.workload import Workload


def kernel_sha256(workload: Workload, *, emulated: bool) -> str:
    """Hash of the sources of the fused kernel of a workload's family, and of the skeleton where that ran.

    Empty where neither is there: on the simulator, of a family whose kernel is the user's own. Read once in a
    process.

    Raises:
        XStageError: the installation lacks a source.
    """
    source = family_of(workload).kernel_source_of(workload)
    sources = [source] if source else []
    if emulated:
        sources.append(SKELETON_SOURCE)
    return installed_sha256(*sources)
