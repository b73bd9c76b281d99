"""What is asked of a profile run, of whatever family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import model_validator

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.base.field_types import Whole
from xstage_tune.base.limits import REPEATS, SEED
from xstage_tune.base.request import Request
from xstage_tune.devices.platform_choice import accept_gpu, choose_platform
from xstage_tune.experiments.emulation.sweep import TOKENS, Sweep
from xstage_tune.families.binding import require_kind
from xstage_tune.families.fields import AnyConfig, AnyWorkload
from xstage_tune.families.workload import Workload
from xstage_tune.launches.device import DeviceDescription
from xstage_tune.launches.requirements import require_platform_path
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.search.journal import chosen_config
from xstage_tune.store.facade import Store


class TimingRequest(Request):
    """One workload, or one at several values of a quantity, on one path of one GPU.

    Args:
        platform: calibrated, of that path: what the predictions rest on.
        path: of the remote ranks' buffers.
        repeats: of whatever is timed.
        seed: of the inputs, and of the simulator's start times.
        sweep: a quantity to vary; None for the workload's own.
        platform_recorded: whether the platform is the one that a replayed recording was made with.
        other_gpu: how the GPU differs from the platform's, where it was forced on it; else empty.

    Raises:
        UsageError: two of them do not go together.
    """

    OF: ClassVar[str] = "a profile run"

    workload: AnyWorkload
    platform: PlatformProfile
    config: AnyConfig
    path: StorePath
    repeats: Annotated[Whole, REPEATS] = 12
    seed: Annotated[Whole, SEED] = 0
    sweep: Sweep | None = None
    platform_recorded: bool = False
    other_gpu: str = ""

    @model_validator(mode="after")
    def _goes_together(self) -> TimingRequest:
        require_platform_path(self.platform, self.path)
        swept = self.swept(self.workload)
        if self.sweep is not None and self.sweep.key not in swept:
            raise UsageError(
                f"--sweep {self.sweep.key}: profile sweeps {', '.join(swept)}",
                f"--sweep tokens={TOKENS['tokens']}",
            )
        return self

    @classmethod
    def swept(cls, workload: Workload) -> Mapping[str, str]:  # noqa: ARG003 - of families with knobs
        """What of a workload can be swept, with values of it as a hint gives them."""
        return TOKENS

    @classmethod
    def on_this_machine(cls, workload: Workload) -> Mapping[str, Any]:  # noqa: ARG003 - of families that ask
        """Fields whose values depend on what is installed beside a GPU."""
        return {}

    @property
    def predicted(self) -> bool:
        """Whether the platform speaks of these stores: it does not of the local control, or of none."""
        return self.path == self.platform.path and self.workload.leaving_fraction > 0

    def values(self) -> tuple[float | None, ...]:
        """Of the sweep, whole ones as such; one None without a sweep."""
        if self.sweep is None:
            return (None,)
        return tuple(int(value) if value.is_integer() else value for value in self.sweep.values)

    def label(self, value: float | None) -> str:
        """Of the case at a value of the sweep."""
        return f"{self.sweep.key}={self.sweep.shown(value)}" if self.sweep and value is not None else ""

    def case_at(self, value: float | None) -> Any:
        """The case at one value of the sweep.

        Raises:
            UsageError: the value does not fit the workload.
        """
        raise NotImplementedError


RequestT = TypeVar("RequestT", bound=TimingRequest)


def make_request(
    model: type[RequestT],
    workload: Workload,
    config: str,
    platform: str | None,
    device: DeviceDescription,
    store: Store,
    notify: Callable[[str], None],
    *,
    path: StorePath | None = None,
    force: bool = False,
    **asked: Any,
) -> RequestT:
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
    return model(
        workload=workload,
        platform=profile,
        config=chosen,
        path=path,
        other_gpu=accept_gpu(device, profile, path, notify) if force else "",
        **asked,
    )
