"""From a command's options to a request: names looked up, what is left out filled in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StorePath
from xstage_tune.devices.platform_choice import accept_gpu, choose_platform
from xstage_tune.experiments.emulation.options import choose_config, require_readable
from xstage_tune.experiments.emulation.sweep import Sweep, parse_sweep
from xstage_tune.experiments.timing.request import ProfileRequest
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.config_choice import DEFAULT_CONFIG
from xstage_tune.families.workload_files import load_workload
from xstage_tune.launches.device import DeviceDescription
from xstage_tune.store.facade import Store


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """Options as they were given; None, or empty, where they were not.

    Args:
        config: ``default``, ``study:ID`` or a file.
        force: whether another GPU's platform is taken.
    """

    workload: str
    overrides: Sequence[str] = ()
    config: str = DEFAULT_CONFIG
    path: StorePath | None = None
    sweep: str | None = None
    platform: str | None = None
    repeats: int = 12
    seed: int = 0
    force: bool = False


def attention_workload(options: ProfileOptions) -> AttentionWorkload:
    """The workload that the options name: found wrong before a GPU is opened.

    Raises:
        UsageError: it is unknown, breaks the schema, or is no attention.
    """
    workload = load_workload(options.workload, options.overrides)
    if not isinstance(workload, AttentionWorkload):
        raise UsageError(
            f"profile runs the fused attention; '{workload.name}' is a MoE layer",
            "one of: xstage-tune workloads list; of a layer: xstage-tune emulate",
        )
    return workload


def check_options(options: ProfileOptions) -> None:
    """Refuse what is wrong with them whatever the GPU, before one is looked for.

    Raises:
        UsageError: a name, file or value is unknown or breaks a schema.
    """
    _sweep(options)
    require_readable(options.platform, options.config)


def make_request(
    options: ProfileOptions,
    workload: AttentionWorkload,
    device: DeviceDescription,
    store: Store,
    notify: Callable[[str], None],
) -> ProfileRequest:
    """The request of a command.

    Args:
        store: of the studies.
        notify: is told which platform was taken, and why, if none was named.

    Raises:
        UsageError: a name, file or value is unknown or does not fit.
    """
    platform = choose_platform(options.platform, notify, device=device, path=options.path)
    path = options.path or platform.path
    config = choose_config(options.config, workload, platform, store)
    if not isinstance(config, AttentionConfig):
        raise UsageError(
            f"a config of kind '{config.kind}' does not fit the workload '{workload.name}'",
            "give one of kind 'attention', or --config default",
        )
    return ProfileRequest(
        workload=workload,
        platform=platform,
        config=config,
        path=path,
        repeats=options.repeats,
        seed=options.seed,
        sweep=_sweep(options),
        other_gpu=accept_gpu(device, platform, path, notify) if options.force else "",
    )


def _sweep(options: ProfileOptions) -> Sweep | None:
    """The sweep, if any: profile sweeps tokens alone."""
    return None if options.sweep is None else parse_sweep(options.sweep, keys=("tokens",))
