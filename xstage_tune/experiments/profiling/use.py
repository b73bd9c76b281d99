"""What a family's profile is, and which there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from xstage_tune.base.errors import UsageError
from xstage_tune.experiments.profiling.request import TimingRequest
from xstage_tune.launches.device import LaunchKind, Outcome, Verification

#: Module of each by the kind of its workloads, which has it as ``USE``.
_USES: Mapping[str, str] = {
    "attention": "xstage_tune.experiments.timing.use",
    "moe": "xstage_tune.experiments.schedules.use",
}


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """One launch's figures, without its spans: what a conclusion rests on."""

    label: str
    implementation: Any
    figures: Any
    verification: Verification


class ProfileResult(Protocol):
    """The answer of a profile run."""

    @property
    def run_id(self) -> str: ...

    @property
    def request(self) -> Any: ...

    def keys(self) -> dict[str, Any]: ...


class Conclude(Protocol):
    """Puts what was measured beside what was predicted, by value of the sweep."""

    def __call__(
        self,
        request: Any,
        outcomes: Sequence[LaunchResult],
        predictions: Mapping[Any, Any],
        *,
        run_id: str,
        device: str,
        device_name: str,
        throttled_launches: int = 0,
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class ProfileUse:
    """A family's profile.

    Args:
        kind: of its launches.
        predict: what the platform says at a value of the sweep; None where it does not speak of the stores.
        launches: of a request, in order.
        require_right: raises ``FindingError`` of a check that found a wrong output.
        conclude: of all of it.
    """

    request: type[TimingRequest]
    kind: LaunchKind[Any, Any, Any]
    predict: Callable[[Any, Any], Any]
    launches: Callable[[Any], Iterator[Any]]
    require_right: Callable[[Outcome[Any, Any]], None]
    conclude: Conclude


def profile_use(kind: str) -> ProfileUse:
    """The profile of a kind of workload.

    Raises:
        UsageError: there is none.
    """
    if kind not in _USES:
        raise UsageError(
            f"there is no profile of workloads of kind '{kind}', only of {' and '.join(_USES)}",
            "one of: xstage-tune workloads list; search times a kernel of your own",
        )
    use: ProfileUse = import_module(_USES[kind]).USE
    return use


def read_request(keys: Mapping[str, Any], origin: str) -> tuple[ProfileUse, TimingRequest]:
    """Keys of a recorded or stored request, with the profile that it is of.

    Raises:
        UsageError: they are of another version, or do not go together.
    """
    workload = keys.get("workload")
    kind = workload.get("kind") if isinstance(workload, Mapping) else None
    use = profile_use(kind if isinstance(kind, str) and kind in _USES else "attention")
    return use, use.request.read(keys, origin)
