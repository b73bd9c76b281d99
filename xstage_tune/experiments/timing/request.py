"""What is asked of a profile run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from xstage_tune.base.profile_files import check_profile
from xstage_tune.experiments.profiling.request import TimingRequest
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.timing import ProfileCase, profile_case
from xstage_tune.families.attention_a2a.workload import AttentionWorkload

#: ``with-receipt``: each implementation alone, then in turn with the attention every few milliseconds; each
#: recording variant with what it records. Of former versions ``in-turn``, the same without the fused one that
#: is received, ``blocks``, each between attentions of tenths of a second, and ``balanced``, each alone.
Replays = Literal["with-receipt", "in-turn", "blocks", "balanced"]


class ProfileRequest(TimingRequest):
    """One attention, or one at several numbers of tokens.

    Args:
        repeats: replays of each implementation alone, and blocks in which it takes turns with the attention.
        replays: which there are. Recordings and stored runs from before have one of the former kinds.

    Raises:
        UsageError: two of them do not go together.
    """

    workload: AttentionWorkload
    config: AttentionConfig
    replays: Replays = "with-receipt"

    @classmethod
    def completed(cls, keys: Mapping[str, Any]) -> Mapping[str, Any]:
        """Former versions told two kinds of replays apart by one key, and had none for it before."""
        if keys.get("replays") is not None:
            return keys
        return {**keys, "replays": "blocks" if keys.get("bracketed") else "balanced"}

    def workload_at(self, value: float | None) -> AttentionWorkload:
        """The workload at one value of the sweep.

        Raises:
            UsageError: the value does not fit it.
        """
        if value is None:
            return self.workload
        tokens = int(value)
        changed = {**self.workload.model_dump(exclude_none=True), "tokens": tokens}
        return check_profile(AttentionWorkload, changed, f"--sweep tokens={tokens}")

    def case_at(self, value: float | None) -> ProfileCase:
        """The case at one value of the sweep.

        Raises:
            UsageError: the value does not fit the workload, or no buffers have its remote fraction.
        """
        return profile_case(self.label(value), self.workload_at(value), self.config, self.path, self.seed)
