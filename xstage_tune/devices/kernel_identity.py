"""Which installed kernel sources a tuned config is for."""

from __future__ import annotations

from xstage_tune.cuda.sources import ATTENTION_SOURCE, SKELETON_SOURCE, installed_sha256

#: The fused kernels that are shipped, by kind of workload. That of a MoE layer is the user's own.
_FUSED: dict[str, str] = {"attention": ATTENTION_SOURCE}


def kernel_sha256(kind: str, *, emulated: bool) -> str:
    """Hash of the sources of the fused kernel of a kind of workload, and of the skeleton where that ran.

    Empty where neither is there: a MoE layer on the simulator. Read once in a process.

    Raises:
        XStageError: the installation lacks a source.
    """
    sources = [_FUSED[kind]] if kind in _FUSED else []
    if emulated:
        sources.append(SKELETON_SOURCE)
    return installed_sha256(*sources)
