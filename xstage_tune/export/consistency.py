"""Whether what an export says goes together: one that was edited by hand is not to be believed."""

from __future__ import annotations

from collections.abc import Iterator

from xstage_tune.base.json_output import json_sha256
from xstage_tune.base.version import __version__
from xstage_tune.export.record import TunedConfig
from xstage_tune.families.binding import family_of


def is_edited(tuned: TunedConfig) -> bool:
    """Whether the workload is not the one that its hash is of; False where the export has no hash."""
    kept = tuned.provenance.workload_sha256
    return bool(kept) and kept != json_sha256(tuned.workload)


def contradictions(tuned: TunedConfig) -> Iterator[str]:
    """What contradicts something else in an export, in words; nothing of one that the tool wrote.

    A hash by another version of the tool is no proof, since workloads gain keys: a lookup names it.
    """
    if is_edited(tuned) and tuned.provenance.tool_version == __version__:
        yield "the workload is not the one that provenance.workload_sha256 is of: it was edited"
    family = family_of(tuned.workload)
    if tuned.config.kind != family.config_kind:
        yield f"config.kind = {tuned.config.kind}, for a workload of kind {tuned.workload.kind}"
    yield from _platform_contradictions(tuned)
    objective = tuned.objective
    if objective.bound_ns > objective.ns:
        yield f"objective.ns = {objective.ns:g} is below objective.bound_ns = {objective.bound_ns:g}"


def _platform_contradictions(tuned: TunedConfig) -> Iterator[str]:
    platform, terms = tuned.platform, tuned.default_terms
    if platform.identity.name != platform.gpu:
        yield f"platform.gpu = {platform.gpu}, but platform.gpu_identity.name = {platform.identity.name}"
    if terms is None:
        return
    of_terms = {
        "name": terms.name,
        "gpu": terms.gpu.name,
        "architecture": terms.gpu.architecture,
        "path": terms.path,
    }
    for key, value in of_terms.items():
        if getattr(platform, key) != value:
            yield f"platform.{key} = {getattr(platform, key)}, but default_terms has {value}"
    if platform.gpu_identity not in (None, terms.gpu.identity):
        yield "platform.gpu_identity is not the GPU of default_terms"
