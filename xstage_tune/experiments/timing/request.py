"""What is asked of a profile run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.base.profile_files import check_profile
from xstage_tune.experiments.emulation.sweep import Sweep, sweep_from_keys, sweep_keys
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.timing import ProfileCase, profile_case
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.config_files import config_from_keys, config_keys
from xstage_tune.launches.requirements import require_platform_path, require_repeats
from xstage_tune.platforms.schema import PlatformProfile

#: ``in-turn``: each implementation alone, then in turn with the attention every few milliseconds; each
#: recording variant with what it records. Of former versions ``blocks``, each between attentions of tenths of
#: a second, and ``balanced``, each alone.
Replays = Literal["in-turn", "blocks", "balanced"]


@dataclass(frozen=True, slots=True)
class ProfileRequest:
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

    workload: AttentionWorkload
    platform: PlatformProfile
    config: AttentionConfig
    path: StorePath
    repeats: int = 12
    seed: int = 0
    sweep: Sweep | None = None
    platform_recorded: bool = False
    replays: Replays = "in-turn"
    other_gpu: str = ""

    def __post_init__(self) -> None:
        require_platform_path(self.platform, self.path)
        require_repeats(self.repeats)
        if self.sweep is not None and self.sweep.key != "tokens":
            raise UsageError(
                f"--sweep {self.sweep.key}: profile sweeps tokens", "--sweep tokens=1024,2048,4096"
            )

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

    def keys(self) -> dict[str, Any]:
        """As plain keys; :func:`request_from_keys` reads them back."""
        return {
            "workload": self.workload.model_dump(mode="json", exclude_none=True),
            "platform": self.platform.model_dump(mode="json", exclude_none=True),
            "config": config_keys(self.config),
            "path": self.path,
            "repeats": self.repeats,
            "seed": self.seed,
            "sweep": sweep_keys(self.sweep),
            "platform_recorded": self.platform_recorded,
            "replays": self.replays,
            "other_gpu": self.other_gpu,
        }


def request_from_keys(keys: Mapping[str, Any], origin: str) -> ProfileRequest:
    """Keys of :meth:`ProfileRequest.keys` as a request.

    Raises:
        UsageError: they are of another version, or break a schema.
    """
    try:
        config = config_from_keys(keys["config"], f"{origin}, config")
        if not isinstance(config, AttentionConfig):
            raise TypeError(f"a config of kind '{config.kind}'")
        return ProfileRequest(
            workload=check_profile(AttentionWorkload, keys["workload"], f"{origin}, workload"),
            platform=check_profile(PlatformProfile, keys["platform"], f"{origin}, platform"),
            config=config,
            path=keys["path"],
            repeats=keys["repeats"],
            seed=keys["seed"],
            sweep=sweep_from_keys(keys["sweep"]),
            platform_recorded=bool(keys.get("platform_recorded", False)),
            replays=_replays(keys),
            other_gpu=str(keys.get("other_gpu", "")),
        )
    except UsageError as error:
        where = "" if error.message.startswith(origin) else f"{origin}: "
        raise UsageError(f"{where}{error.message}", error.hint) from None
    except (KeyError, TypeError) as error:
        raise UsageError(f"{origin}: not the request of a profile run: {error}") from None


def _replays(keys: Mapping[str, Any]) -> Replays:
    """Raises TypeError: they are of another version."""
    found = keys.get("replays")
    if found is None:
        return "blocks" if keys.get("bracketed") else "balanced"
    if found not in get_args(Replays):
        raise TypeError(f"replays '{found}'")
    return cast(Replays, found)
