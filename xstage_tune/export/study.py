"""From a finished study in the store to a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from xstage_tune.base.errors import UsageError
from xstage_tune.base.files import refuse_existing, write_text
from xstage_tune.base.text import printable
from xstage_tune.export.default_terms import default_terms
from xstage_tune.export.formats import render
from xstage_tune.export.history import History, TrialRecord
from xstage_tune.export.names import ExportFormat
from xstage_tune.export.record import (
    PlatformIdentity,
    Provenance,
    ResultBasis,
    TunedConfig,
    TunedObjective,
)
from xstage_tune.families.binding import bind
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_files import config_from_keys
from xstage_tune.families.kernel_launch import EMULATION_ON, OTHER_GPU
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.journal import studied_platform, studied_workload
from xstage_tune.search.result import SearchResult
from xstage_tune.search.space import params_of
from xstage_tune.search.unfinished import answer_of
from xstage_tune.store.facade import Store
from xstage_tune.store.models import Study, Trial
from xstage_tune.store.studies import suite_of

_SIMULATOR = "simulator"
#: The lookup and Kernel Tuner know their files by these endings.
_SUFFIXES = {ExportFormat.JSON: ".json", ExportFormat.TOML: ".toml", ExportFormat.KERNEL_TUNER: ".json"}
#: Of formats whose readers take any.
_OTHER_SUFFIXES = {ExportFormat.HEADER: ".h", ExportFormat.T4: ".json"}


def export_study(
    store: Store,
    study_id: str,
    to: ExportFormat,
    path: Path,
    *,
    platform: str | None = None,
    force: bool = False,
    unfinished: bool = False,
) -> TunedConfig:
    """Write a study's answer and record the file in the store.

    Args:
        study_id: or ``latest``, ``latest-any``.
        platform: a profile in place of the one kept with the study.
        unfinished: take the best so far of a study that has not ended; the file says that it is no more.

    Raises:
        UsageError: no such study, it has no result, the platform is not the one searched on, the file exists
            and ``force`` is not set, or its name does not end as its readers need it.
        StoreError: the database failed.
    """
    suffix = _SUFFIXES.get(to, path.suffix)
    if path.suffix != suffix:
        raise UsageError(f"{path}: a file of format {to} must end in {suffix}, or its reader does not see it")
    refuse_existing(path, force)
    study = store.studies.get(study_id)
    history = study_history(store, study, studied_platform(study, platform), unfinished=unfinished)
    _write(store, study, history, to, path, force=force)
    return history.tuned


@dataclass(frozen=True, slots=True)
class SuiteExport:
    """The files of a suite; ``left_out`` are its studies that have not ended, by id."""

    suite: str
    exports: dict[Path, TunedConfig]
    left_out: tuple[str, ...]


def export_suite(
    store: Store,
    suite: str,
    to: ExportFormat,
    folder: Path,
    *,
    force: bool = False,
    unfinished: bool = False,
) -> SuiteExport:
    """Write the answers of all studies of a suite into a folder, a file each, and record them in the store.

    Args:
        suite: id of the suite, ``latest`` or ``latest-any``.
        unfinished: also take the best so far of those that have not ended and of which something ran.

    Raises:
        UsageError: no such suite, none of its studies has a result, or a file exists and ``force`` is not
            set: then nothing is written.
        StoreError: the database failed.
    """
    found = suite_histories(store, suite, unfinished=unfinished)
    taken = {
        folder / f"{study.workload.replace('/', '-')}-{study.id}{(_SUFFIXES | _OTHER_SUFFIXES)[to]}": (
            study,
            history,
        )
        for study, history in found.taken
    }
    for path in taken:
        refuse_existing(path, force)
    for path, (study, history) in taken.items():
        _write(store, study, history, to, path, force=force)
    exports = {path: history.tuned for path, (_, history) in taken.items()}
    return SuiteExport(found.suite, exports, found.left_out)


@dataclass(frozen=True, slots=True)
class SuiteHistories:
    """The answers of a suite; ``left_out`` are its studies that have not ended, by id."""

    suite: str
    taken: list[tuple[Study, History]]
    left_out: tuple[str, ...]


def suite_histories(store: Store, suite: str, *, unfinished: bool = False) -> SuiteHistories:
    """The answers of a suite's studies, at least one; arguments as of :func:`export_suite`.

    Raises:
        UsageError: no such suite, or none of its studies has a result.
        StoreError: the database failed.
    """
    studies = store.studies.of_suite(suite)
    taken, left_out = [], []
    for study in studies:
        try:
            history = study_history(store, study, studied_platform(study), unfinished=unfinished)
        except UsageError:
            if study.status == "finished":
                raise
            left_out.append(study.id)
            continue
        taken.append((study, history))
    suite_id = suite_of(studies[0])
    if not taken:
        raise UsageError(
            f"suite {suite_id}: none of its {len(studies)} studies has ended",
            "--unfinished takes their best so far",
        )
    return SuiteHistories(suite_id, taken, tuple(left_out))


def _write(
    store: Store, study: Study, history: History, to: ExportFormat, path: Path, *, force: bool
) -> None:
    text = render(history, to)
    write_text(path, text, force=force)
    add_export(store, study, to, path, text)


def add_export(store: Store, study: Study, to: ExportFormat, path: Path, text: str) -> None:
    """Record a file of a study that was written, where the store takes records."""
    if not store.read_only:
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        store.studies.add_export(study.id, format=to, path=printable(str(path.resolve())), sha256=sha256)


def study_history(
    store: Store, study: Study, platform: PlatformProfile, *, unfinished: bool = False
) -> History:
    """A study's answer and trials; if asked, also those so far of an unfinished one.

    Raises:
        UsageError: it has no result.
    """
    result = answer_of(store, study, platform, unfinished=unfinished)
    tuned = TunedConfig(
        config=result.best.config,
        objective=_objective(study, result),
        workload=(workload := studied_workload(study)),
        platform=PlatformIdentity(
            name=platform.name,
            sha256=study.platform_sha256,
            gpu=platform.gpu.name,
            architecture=platform.gpu.architecture,
            path=platform.path,
            gpu_identity=platform.gpu.identity,
            compute_origin=platform.compute.origin if platform.compute else None,
            other_gpu=study.device.partition(OTHER_GPU)[2] or None,
        ),
        schedule_model=bind(workload, platform).schedule_model(result.best.config),
        default_terms=default_terms(platform),
        provenance=Provenance(
            study_id=study.id,
            created_at=study.created_at,
            tool_version=study.space.get("tool_version", ""),
            sampler=study.sampler,
            seed=study.seed,
            workload_sha256=study.workload_sha256,
            kernel_sha256=study.space.get("kernel_sha256", ""),
        ),
    )
    return History(tuned, tuple(_trials(result, store.studies.trials(study.id))))


def _basis(device: str) -> ResultBasis:
    if device == _SIMULATOR:
        return "predicted"
    return "emulated" if device.startswith(EMULATION_ON) else "measured"


def _objective(study: Study, result: SearchResult) -> TunedObjective:
    default = result.default
    return TunedObjective.model_validate(
        {
            "quantity": study.objective,
            "basis": _basis(study.device),
            "device": study.device,
            "ns": result.best.objective_ns,
            "default_ns": default and default.objective_ns,
            "default": default and default.config,
            "latency_ns": result.best.latency_ns,
            "default_latency_ns": default and default.latency_ns,
            "bound_ns": result.bound_ns,
            "tolerance": study.space.get("tolerance"),
            "stopped": result.stopped,
            "unfinished": result.unfinished or None,
            "is_default": default is not None and result.best.config == default.config,
            "ties": len(result.ties),
            "evaluations": result.evaluations,
        }
    )


def _trials(result: SearchResult, trials: list[Trial]) -> Iterator[TrialRecord]:
    """The trials that ran or could not; those of the last comparison with all its repeats."""
    compared = {outcome.config: outcome.samples_ns for outcome in (*result.named, *result.ties)}
    seen: set[KernelConfig] = set()
    for trial in trials:
        if trial.state == "cut":
            continue
        config = config_from_keys(trial.params, f"trial {trial.number}")
        if config in seen:  # the answer is kept a second time, with the result
            continue
        seen.add(config)
        once = () if trial.objective_ns is None else (trial.objective_ns,)
        yield TrialRecord(params_of(config), trial.state, compared.get(config, once), trial.created_at)
