"""A search on record: every trial is committed as soon as it is known, so that an interrupt loses none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Protocol, cast

from xstage_tune.base.errors import UsageError
from xstage_tune.base.interrupts import held_back
from xstage_tune.base.json_output import json_sha256
from xstage_tune.base.profile_files import check_profile
from xstage_tune.base.version import __version__
from xstage_tune.devices.kernel_identity import kernel_sha256
from xstage_tune.families.binding import default_config
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.config_choice import DEFAULT_CONFIG, is_file_choice, study_of
from xstage_tune.families.config_files import config_from_keys, config_keys, load_config
from xstage_tune.families.kernel_launch import EMULATION_ON
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import workload_from_keys
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.evaluation import Failed
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.result import SearchResult, result_from_keys
from xstage_tune.search.space import Space
from xstage_tune.store.facade import Store
from xstage_tune.store.models import Study, Trial

#: Key of a trial's ``verification`` that holds the whole result; its trial is the answer.
_RESULT = "result"
#: Keys of a request that a study's ``space`` holds; its other ones are columns, or of one run alone.
_IN_SPACE = ("workload", "platform", "tolerance", "trials")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a finished trial measured."""

    objective_ns: float
    latency_ns: float


class Journal(Protocol):
    """Where a search's trials go, and come back from when it is resumed."""

    study_id: str

    def finished(self) -> Mapping[KernelConfig, Measured]:
        """What the trials that an earlier run of this study finished have measured."""
        ...

    def failed(self) -> Mapping[KernelConfig, Failed]:
        """Why the configs failed that an earlier run of this study could not measure."""
        ...

    def write(
        self,
        config: KernelConfig,
        state: str,
        *,
        objective_ns: float | None = None,
        bound_ns: float | None = None,
        latency_ns: float | None = None,
        reason: str = "",
        fault: str = "",
        measured: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep one trial; ``state`` is complete, pruned, failed or cut.

        Args:
            fault: what a failure comes under.
            measured: all that was, its samples and the GPU's states.
        """
        ...

    def conclude(self, result: SearchResult) -> None:
        """Keep the result, and mark the study finished."""
        ...

    def abandon(self, status: str) -> None:
        """Mark the study ``interrupted`` or ``failed``; its trials stay."""
        ...


class NoJournal:
    """Keeps nothing."""

    study_id = ""

    def finished(self) -> Mapping[KernelConfig, Measured]:
        return {}

    def failed(self) -> Mapping[KernelConfig, Failed]:
        return {}

    def write(
        self,
        config: KernelConfig,
        state: str,
        *,
        objective_ns: float | None = None,
        bound_ns: float | None = None,
        latency_ns: float | None = None,
        reason: str = "",
        fault: str = "",
        measured: Mapping[str, Any] | None = None,
    ) -> None:
        """Nothing is kept."""

    def conclude(self, result: SearchResult) -> None:
        """Nothing is kept."""

    def abandon(self, status: str) -> None:
        """Nothing is kept."""


@dataclass
class StoreJournal:
    """Keeps a study in the store."""

    store: Store
    study_id: str
    next_number: int = 0
    measured_before: dict[KernelConfig, Measured] = field(default_factory=dict)
    failed_before: dict[KernelConfig, Failed] = field(default_factory=dict)

    def finished(self) -> Mapping[KernelConfig, Measured]:
        return self.measured_before

    def failed(self) -> Mapping[KernelConfig, Failed]:
        return self.failed_before

    def write(
        self,
        config: KernelConfig,
        state: str,
        *,
        objective_ns: float | None = None,
        bound_ns: float | None = None,
        latency_ns: float | None = None,
        reason: str = "",
        fault: str = "",
        measured: Mapping[str, Any] | None = None,
    ) -> None:
        self._add(
            config, state, objective_ns=objective_ns, bound_ns=bound_ns, latency_ns=latency_ns, reason=reason,
            fault=fault or None, measured=dict(measured) if measured else None,
        )  # fmt: skip

    def conclude(self, result: SearchResult) -> None:
        with held_back():  # a study with a result is finished
            self._add(
                result.best.config,
                "complete",
                objective_ns=result.best.objective_ns,
                bound_ns=result.bound_ns,
                latency_ns=result.best.latency_ns,
                verification={_RESULT: result.keys()},
            )
            self.store.studies.end(self.study_id, "finished")

    def abandon(self, status: str) -> None:
        self.store.studies.end(self.study_id, status)

    def _add(self, config: KernelConfig, state: str, **values: Any) -> None:
        self.store.studies.add_trial(
            self.study_id, number=self.next_number, state=state, params=config_keys(config), **values
        )
        self.next_number += 1


def begin_study(
    store: Store, request: SearchRequest, space: Space, device: str, suite: Mapping[str, Any] | None = None
) -> StoreJournal:
    """Begin a study.

    Args:
        suite: ``name`` and ``id`` of the suite that it is part of, and how many ``searches`` that has.

    Raises:
        StoreError: the database failed.
    """
    identity = _identity(request, device)
    study_id = store.studies.add(
        **identity,
        space={
            **{key: value for key, value in request.keys().items() if key in _IN_SPACE},
            "tool_version": __version__,
            "kernel_sha256": kernel_sha256(request.workload, emulated=device.startswith(EMULATION_ON)),
            "axes": {name: list(values) for name, values in space.axes.items()},
            "configs": len(space.configs),
            "infeasible": {cut.limit_name: cut.configs for cut in space.infeasible},
            **({"suite": dict(suite)} if suite else {}),
        },
    )
    return StoreJournal(store, study_id)


def resume_study(
    store: Store,
    study_id: str,
    request: SearchRequest,
    device: str,
    *,
    retry_failed: bool = False,
    take_over: bool = False,
) -> StoreJournal:
    """Take up a study where it stopped.

    Args:
        retry_failed: whether configs that failed are run again; else their failure stands, as a time does.
        take_over: whether to take it from a process elsewhere that was heard of a short while ago.

    Raises:
        UsageError: there is no such study, or it is of another workload, platform, device, objective,
            sampler or seed; says what differs.
        StoreError: another process searches it, or the database failed.
    """
    study = store.studies.to_resume(study_id)
    differences = []
    for key, value in _identity(request, device).items():
        theirs = getattr(study, key)
        if theirs != value:
            differences.append(_difference(key, theirs, value))
    if differences:
        raise UsageError(
            f"study {study.id} is another search: {'; '.join(differences)}",
            "leave out --resume to begin a new study, or give the study's own options",
        )
    store.studies.take(study.id, over=take_over)
    trials = store.studies.trials(study.id)
    measured, failed = recorded(study, trials)
    next_number = max((trial.number for trial in trials), default=-1) + 1
    return StoreJournal(store, study.id, next_number, measured, {} if retry_failed else failed)


def recorded(
    study: Study, trials: Sequence[Trial]
) -> tuple[dict[KernelConfig, Measured], dict[KernelConfig, Failed]]:
    """What a study's trials measured, and why the others failed, by config; the last one of each counts."""
    measured: dict[KernelConfig, Measured] = {}
    failed: dict[KernelConfig, Failed] = {}
    for trial in trials:
        if trial.verification or trial.state not in ("complete", "failed"):
            continue
        config = config_from_keys(trial.params, f"study {study.id}, trial {trial.number}")
        measured.pop(config, None)
        failed.pop(config, None)
        if trial.state == "failed":
            failed[config] = Failed(trial.reason, cast(Any, trial.fault or ""))
        elif (found := _measured(trial, study.objective)) is not None:
            measured[config] = found
    return measured, failed


def _measured(trial: Trial, objective: str) -> Measured | None:
    """What a trial measured; None where that cannot be used, so that its config runs again.

    Earlier versions kept times that are none, and no latency beside another objective.
    """
    objective_ns = trial.objective_ns
    latency_ns = objective_ns if objective == "latency" else trial.latency_ns
    if objective_ns is None or latency_ns is None:
        return None
    usable = isfinite(objective_ns) and isfinite(latency_ns) and objective_ns >= 0 and latency_ns > 0
    return Measured(objective_ns, latency_ns) if usable else None


def stored_result(store: Store, study_id: str = "latest") -> SearchResult:
    """The result of a finished study; one that has been taken up again since is not finished.

    Raises:
        UsageError: there is no such study, or it has not finished.
    """
    study = store.studies.get(study_id)
    results = study.status == "finished" and [
        trial.verification[_RESULT]
        for trial in store.studies.trials(study.id)
        if trial.verification and _RESULT in trial.verification
    ]
    if not results:
        raise UsageError(
            f"study {study.id} has no result: {store.studies.state(study)}",
            store.studies.next_step(study),
        )
    return result_from_keys(results[-1], f"study {study.id}")


def chosen_config(choice: str, workload: Workload, platform: PlatformProfile, store: Store) -> KernelConfig:
    """The config that a ``--config`` names: ``default``, ``study:ID`` or a file.

    Raises:
        UsageError: there is no such study or file, or the file breaks the schema.
    """
    if choice == DEFAULT_CONFIG:
        return default_config(workload, platform)
    if (study := study_of(choice)) is not None:
        return stored_result(store, study).best.config
    return load_config(Path(choice))


def require_readable(platform: str | None, config: str) -> None:
    """Refuse a platform, or a config's file, that cannot be read, before anything is opened for them.

    Raises:
        UsageError: there is no such one, or it breaks the schema.
    """
    if platform is not None:
        load_platform(platform)
    if is_file_choice(config):
        load_config(Path(config))


def studied_request(study: Study, **given: Any) -> SearchRequest:
    """What a study was begun with, but for what is given; older studies did not keep their trials.

    Raises:
        UsageError: its keys are of another version of the tool, or as :func:`studied_platform`.
    """
    columns = {"objective": study.objective, "sampler": study.sampler, "seed": study.seed}
    own = {key: study.space[key] for key in _IN_SPACE if key in study.space} | columns
    if "platform" not in given:
        own["platform"] = studied_platform(study)
    return SearchRequest.read(own | given, f"study {study.id}")


def studied_workload(study: Study) -> Workload:
    """The workload that a study searched for, its overrides included.

    Raises:
        UsageError: its keys are of another version of the tool.
    """
    return workload_from_keys(dict(study.space["workload"]), f"study {study.id}, workload")


def studied_platform(study: Study, name_or_path: str | None = None) -> PlatformProfile:
    """The platform that a study searched on, as it was then.

    Args:
        name_or_path: a profile to take in place of the one kept with the study. Studies of earlier versions
            kept none: theirs is found by its name unless this says where.

    Raises:
        UsageError: the profile is not found, or is another than the one searched on.
    """
    kept = study.space.get("platform")
    if kept is not None and name_or_path is None:
        return check_profile(PlatformProfile, kept, f"study {study.id}, platform")
    platform = load_platform(name_or_path or study.platform)
    if json_sha256(platform.figures()) != study.platform_sha256:
        raise UsageError(
            f"platform '{platform.name}' is not what study {study.id} was searched on: its keys differ",
            "search again, or give the profile of that time with --platform FILE.toml",
        )
    return platform


def _identity(request: SearchRequest, device: str) -> dict[str, Any]:
    """What two runs of one study must agree on, under the store's names."""
    return {
        "workload": request.workload.name,
        "workload_sha256": json_sha256(request.workload),
        "platform": request.platform.name,
        "platform_sha256": json_sha256(request.platform.figures()),
        "device": device,
        "objective": request.objective,
        "sampler": request.sampler,
        "seed": request.seed,
    }


def _difference(key: str, theirs: object, ours: object) -> str:
    if key.endswith("_sha256"):
        return f"the {key.removesuffix('_sha256')}'s keys have changed"
    return f"{key} {theirs}, not {ours}"
