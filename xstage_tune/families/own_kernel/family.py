"""Kernels of one's own, as a family: any axes, and a process that measures them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xstage_tune.families.family import Family, Params
from xstage_tune.families.kernel_process import KernelProcess
from xstage_tune.families.own_kernel.config import OwnConfig
from xstage_tune.families.own_kernel.workload import UNIT_NS, OwnSpace
from xstage_tune.platforms.schema import PlatformProfile

if TYPE_CHECKING:
    from xstage_tune.families.own_kernel.bound import BoundOwn


class OwnFamily(Family[OwnSpace, OwnConfig]):
    """See :class:`~xstage_tune.families.family.Family`."""

    workload_kind = "own"
    config_kind = "own"
    workload_model = OwnSpace
    config_model = OwnConfig
    objectives = ("latency",)
    simulated = False
    template_heading = "The space of a kernel of your own, for xstage-tune."

    def bind(self, workload: OwnSpace, platform: PlatformProfile) -> BoundOwn:
        """See :class:`~xstage_tune.families.family.Family`."""
        from xstage_tune.families.own_kernel.bound import BoundOwn  # a lookup needs none of it

        return BoundOwn(workload, platform)

    def anchor(self, data: dict[str, Any], folder: Path) -> None:
        """See :class:`~xstage_tune.families.family.Family`."""
        given = data.get("folder", "")
        if isinstance(given, str):
            data["folder"] = str((folder / given).resolve())

    def template(self, name: str) -> str:
        """See :class:`~xstage_tune.families.family.Family`."""
        from xstage_tune.families.own_kernel.template import space_template

        return space_template(name)

    def template_companions(self) -> Mapping[str, str]:
        """What measures the stand-in."""
        from xstage_tune.families.own_kernel.template import BENCH, bench_template

        return {BENCH: bench_template()}

    def process_of(self, workload: OwnSpace) -> KernelProcess:
        """See :class:`~xstage_tune.families.family.Family`."""
        host = (sys.executable, "-m", "xstage_tune.base.function_host", workload.function)

        def request(config: OwnConfig) -> Mapping[str, Any]:
            asked: dict[str, Any] = {"config": dict(config.values), "keys": dict(workload.known)}
            return {**asked, "yardstick": config.yardstick} if config.yardstick else asked

        module = (f"{workload.function.partition(':')[0].replace('.', '/')}.py",)
        return KernelProcess(
            command=workload.command or host,
            folder=workload.place,
            words=" ".join(workload.command) or workload.function,
            sources=tuple(workload.place / name for name in workload.command or module),
            request=request,
            unit_ns=UNIT_NS[workload.unit],
            repeats=workload.repeats,
            in_turn=workload.in_turn,
            deadline_s=workload.deadline_s,
        )

    def shape_words(self, workload: OwnSpace) -> str:
        """See :class:`~xstage_tune.families.family.Family`."""
        return f"{len(workload.axes)} axes" + "".join(f", {key} {one}" for key, one in workload.keys.items())

    def facts(self, workload: OwnSpace) -> list[tuple[str, str]]:
        """See :class:`~xstage_tune.families.family.Family`."""
        return [
            *((name, ", ".join(map(str, values))) for name, values in workload.axes.items()),
            ("measured by", " ".join(workload.command) or workload.function),
            ("objective", f"{workload.objective}, in {workload.unit}"),
            ("bursts", workload.bursts or "not told: the space has no bounds"),
        ]

    def derived(self, workload: OwnSpace) -> dict[str, object]:  # noqa: ARG002 - nothing
        """See :class:`~xstage_tune.families.family.Family`."""
        return {}

    def sentence(self, workload: OwnSpace) -> str:
        """See :class:`~xstage_tune.families.family.Family`."""
        return f"A kernel of its own: {self.shape_words(workload)}; {workload.objective}."

    def params_of(self, config: OwnConfig) -> Params:
        """See :class:`~xstage_tune.families.family.Family`."""
        return dict(config.values)

    def config_of(self, params: Mapping[str, Any]) -> OwnConfig:
        """See :class:`~xstage_tune.families.family.Family`."""
        return OwnConfig(values=dict(params))


FAMILY = OwnFamily()
