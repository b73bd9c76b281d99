"""A step that all ranks of a process group take together, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

from xstage_tune.base.errors import DeviceError, XStageError
from xstage_tune.ops.runtime import import_torch

_T = TypeVar("_T")


@runtime_checkable
class ProcessGroup(Protocol):
    """The part of ``torch.distributed.ProcessGroup`` that is needed here."""

    def rank(self) -> int: ...
    def size(self) -> int: ...


def collectively(group: ProcessGroup, step: Callable[[], _T]) -> list[_T]:
    """Take a local step on every rank of ``group``; its results on all of them, in the order of the ranks.

    Returns on no rank before every rank has taken the step.

    Raises:
        XStageError: what ``step`` raised on this rank.
        DeviceError: the step failed on another rank; says on which, and how.
    """
    result: _T | None = None
    failure: XStageError | None = None
    try:
        result = step()
    except XStageError as error:
        failure = error
    outcomes: list[Any] = [None] * group.size()
    outcome = (result, "" if failure is None else failure.message)
    import_torch().distributed.all_gather_object(outcomes, outcome, group=group)
    if failure is not None:
        raise failure
    for rank, (_, message) in enumerate(outcomes):
        if message:
            raise DeviceError(
                f"rank {rank} of the group cannot take part: {message}", "see that rank's own error"
            )
    return [theirs for theirs, _ in outcomes]
