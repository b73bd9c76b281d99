"""Which GPU a number was measured on, and whether another GPU is the same one.

A beginning of a name does not tell: slices of a GPU carry its name in front of theirs, and GPUs of one chip
differ in SMs, memory or links.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field, StrictBool

from xstage_tune.base.field_types import Count, Strict

if TYPE_CHECKING:
    from xstage_tune.base.fabric import StorePath

#: ``superchip``: soldered beside its CPU, as in GH200 and GB200.
FormFactor = Literal["SXM", "PCIe", "NVL", "superchip"]

#: One H200 has 150.75e9 bytes by NVML and 150.11e9 by CUDA, 0.4% less, and drivers reserve more of them where
#: ECC or confidential computing is on. Two GPUs of one chip differ by more: B200 and GB200 by 3.2%.
MEMORY_TOLERANCE = 0.02

#: What the UUID of a simulated GPU begins with.
SIMULATED_UUID = "SIM-"

#: What a driver writes between the name of a GPU and that of its slice.
_SLICE = " MIG "


class GpuLink(Strict):
    """A GPU's links of one kind: NVLinks, or the lanes of PCIe."""

    generation: Count | None = Field(default=None, description="Generation of the link", examples=[4])
    count: Count | None = Field(default=None, description="Active NVLinks, or lanes of PCIe", examples=[18])


class GpuIdentity(Strict):
    """A GPU as its driver knows it; what is left out is not known, and is not compared."""

    name: str = Field(description="Name, letter by letter as the driver gives it", examples=["NVIDIA H200"])
    form_factor: FormFactor | None = Field(default=None, description="Module or card", examples=["SXM"])
    sm_count: Count | None = Field(default=None, description="SMs", examples=[132])
    memory_bytes: Count | None = Field(
        default=None, description="All of its memory, in bytes, by NVML or CUDA", examples=[150_109_880_320]
    )
    nvlink: GpuLink | None = Field(default=None, description="NVLinks that are active")
    pcie: GpuLink | None = Field(
        default=None, description="The best PCIe link that the GPU and its slot can form"
    )
    mig: StrictBool | None = Field(
        default=None, description="Whether it is a slice of a GPU (MIG)", examples=[False]
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """A key by which two GPUs differ; nested keys are dotted (``nvlink.count``)."""

    key: str
    made_on: object
    present: object

    def __str__(self) -> str:
        return f"{self.key} {self.made_on}, not {self.present}"


@dataclass(frozen=True, slots=True)
class GpuComparison:
    """What tells the GPU that something was made on from the one that is present.

    Args:
        differences: keys that both know, with other values.
        unknown: keys that only one of them knows, which therefore were not compared.
    """

    differences: tuple[Difference, ...]
    unknown: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether nothing that is known of both tells them apart."""
        return not self.differences

    def words(self) -> str:
        """The differences in one line: ``name NVIDIA H200, not NVIDIA H20; sm_count 132, not 78``."""
        return "; ".join(map(str, self.differences))


def compare_gpus(
    made_on: GpuIdentity,
    present: GpuIdentity,
    *,
    path: StorePath | None = None,
    aliases: Collection[Collection[str]] = (),
) -> GpuComparison:
    """Compare two GPUs key by key.

    Args:
        path: whose link counts: NVLink on ``peer``, PCIe on ``host``, none on ``local`` or where it is None.
        aliases: groups of names by which drivers know one and the same GPU.
    """
    differences: list[Difference] = []
    unknown: list[str] = []
    for key, ours, theirs in _keys(made_on, present, path):
        if ours is None and theirs is None:
            continue
        if ours is None or theirs is None:
            unknown.append(key)
        elif not _equal(key, ours, theirs, aliases):
            differences.append(Difference(key, ours, theirs))
    return GpuComparison(tuple(differences), tuple(unknown))


def is_slice_name(name: str) -> bool:
    """Whether a driver's name is that of a MIG slice, as in ``NVIDIA H200 MIG 1g.18gb``."""
    return _SLICE in name


def form_factor_in(name: str) -> FormFactor | None:
    """The form factor that a driver's name spells out; None where it does not."""
    words = name.replace("-", " ").split()
    if "PCIe" in words or "PCIE" in words:
        return "PCIe"
    if "NVL" in words:
        return "NVL"
    if any(word.startswith("SXM") for word in words):
        return "SXM"
    return "superchip" if any(word.startswith(("GH", "GB")) for word in words) else None


def _keys(
    made_on: GpuIdentity, present: GpuIdentity, path: StorePath | None
) -> Iterator[tuple[str, object, object]]:
    for key in ("name", "form_factor", "mig", "sm_count", "memory_bytes"):
        yield key, getattr(made_on, key), getattr(present, key)
    kind = {"peer": "nvlink", "host": "pcie"}.get(path or "")
    if kind is None:
        return
    ours, theirs = (getattr(gpu, kind) or GpuLink() for gpu in (made_on, present))
    yield f"{kind}.generation", ours.generation, theirs.generation
    yield f"{kind}.count", ours.count, theirs.count


def _equal(key: str, ours: object, theirs: object, aliases: Collection[Collection[str]]) -> bool:
    if key == "memory_bytes" and isinstance(ours, int) and isinstance(theirs, int):
        return abs(ours - theirs) <= MEMORY_TOLERANCE * max(ours, theirs)
    if key == "name":
        return ours == theirs or any(ours in names and theirs in names for names in aliases)
    return ours == theirs
