"""What is asked of a profile run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import model_validator

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.base.field_types import Whole
from xstage_tune.base.limits import REPEATS, SEED
from xstage_tune.base.profile_files import check_profile
from xstage_tune.base.request import Request
from xstage_tune.devices.platform_choice import accept_gpu, choose_platform
from xstage_tune.experiments.emulation.sweep import Sweep
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.timing import ProfileCase, profile_case
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.binding import require_kind
from xstage_tune.families.workload_files import load_workload
from xstage_tune.launches.device import DeviceDescription
from xstage_tune.launches.requirements import require_platform_path
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.journal import chosen_config
from xstage_tune.store.facade import Store

#: ``in-turn``: each implementation alone, then in turn with the attention every few milliseconds; each
#: recording variant with what it records. Of former versions ``blocks``, each between attentions of tenths of
#: a second, and ``balanced``, each alone.
Replays = Literal["in-turn", "blocks", "balanced"]


class ProfileRequest(Request):
    """One attention, or one at several numbers of tokens, on one path of one GPU.

    Args:
        platform: calibrated, of that path: what the predictions rest on.
        path: of the remote ranks' buffers.
        repeats: replays of each implementation alone, and blocks in which it takes turns with the attention.
        seed: of the inputs, and of the simulator's start times.
        sweep: of tokens; None for the workload's own.
        platform_recorded: whether the platform is the one that a replayed recording was made with.
        replays: which there are. Recordings and stored runs from before have one of the former kinds.
        other_gpu: how the GPU differs from the platform's, where it was forced on it; else empty.

    Raises:
        UsageError: two of them do not go together.
    """

    OF: ClassVar[str] = "a profile run"

    workload: AttentionWorkload
    platform: PlatformProfile
    config: AttentionConfig
    path: StorePath
    repeats: Annotated[Whole, REPEATS] = 12
    seed: Annotated[Whole, SEED] = 0
    sweep: Sweep | None = None
    platform_recorded: bool = False
    replays: Replays = "in-turn"
    other_gpu: str = ""

    @model_validator(mode="after")
    def _goes_together(self) -> ProfileRequest:
        require_platform_path(self.platform, self.path)
        if self.sweep is not None and self.sweep.key != "tokens":
            raise UsageError(
                f"--sweep {self.sweep.key}: profile sweeps tokens", "--sweep tokens=1024,2048,4096"
            )
        return self

    @classmethod
    def completed(cls, keys: Mapping[str, Any]) -> Mapping[str, Any]:
        """Former versions told two kinds of replays apart by one key, and had none for it before."""
        if keys.get("replays") is not None:
            return keys
        return {**keys, "replays": "blocks" if keys.get("bracketed") else "balanced"}

    @property
    def predicted(self) -> bool:
        """Whether the platform speaks of these stores: it does not of the local control, or of none."""
        return self.path == self.platform.path and self.workload.output_remote_fraction > 0

    def values(self) -> tuple[int | None, ...]:
        """Tokens of the sweep; one None without a sweep."""
        return tuple(int(value) for value in self.sweep.values) if self.sweep else (None,)

    def workload_at(self, value: int | None) -> AttentionWorkload:
        """The workload at one value of the sweep.

        Raises:
            UsageError: the value does not fit it.
        """
        if value is None:
            return self.workload
        changed = {**self.workload.model_dump(exclude_none=True), "tokens": value}
        return check_profile(AttentionWorkload, changed, f"--sweep tokens={value}")

    def case_at(self, value: int | None) -> ProfileCase:
        """The case at one value of the sweep.

        Raises:
            UsageError: the value does not fit the workload, or no buffers have its remote fraction.
        """
        label = "" if value is None else f"tokens={value}"
        return profile_case(label, self.workload_at(value), self.config, self.path, self.seed)


def attention_workload(name_or_path: str, overrides: Sequence[str]) -> AttentionWorkload:
    """The workload that a command names: found wrong before a GPU is opened.

    Raises:
        UsageError: it is unknown, breaks the schema, or is no attention.
    """
    workload = load_workload(name_or_path, overrides)
    if not isinstance(workload, AttentionWorkload):
        raise UsageError(
            f"profile runs the fused attention; '{workload.name}' is a MoE layer",
            "one of: xstage-tune workloads list; of a layer: xstage-tune emulate",
        )
    return workload


def make_request(
    workload: AttentionWorkload,
    config: str,
    platform: str | None,
    device: DeviceDescription,
    store: Store,
    notify: Callable[[str], None],
    *,
    path: StorePath | None = None,
    force: bool = False,
    **asked: Any,
) -> ProfileRequest:
    """The request of a command.

    Args:
        config: ``default``, ``study:ID`` or a file.
        store: of the studies.
        notify: is told which platform was taken, and why, if none was named.
        force: whether another GPU's platform is taken.
        asked: the request's other fields.

    Raises:
        UsageError: a name, file or value is unknown or does not fit.
    """
    profile = choose_platform(platform, notify, device=device, path=path)
    path = path or profile.path
    chosen = chosen_config(config, workload, profile, store)
    require_kind(chosen, workload)
    return ProfileRequest(
        workload=workload,
        platform=profile,
        config=cast(AttentionConfig, chosen),
        path=path,
        other_gpu=accept_gpu(device, profile, path, notify) if force else "",
        **asked,
    )
