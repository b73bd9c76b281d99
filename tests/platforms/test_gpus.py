"""GPUs told apart, and compute sections by exact identity, each number with its source."""

from __future__ import annotations

import pytest

from xstage_tune.platforms.gpus import compare, form_factor_of, known_compute, known_gpus
from xstage_tune.platforms.identity import GpuIdentity, GpuLink, compare_gpus
from xstage_tune.platforms.loader import load_platform

H200 = GpuIdentity(
    name="NVIDIA H200",
    form_factor="SXM",
    sm_count=132,
    memory_bytes=143_771 << 20,  # by NVML; CUDA has 150,109,880,320
    nvlink=GpuLink(generation=4, count=18),
    pcie=GpuLink(generation=5, count=16),
    mig=False,
)


def gpu(name: str, *, nvlinks: int, memory_mib: int, sms: int = 132) -> GpuIdentity:
    """A Hopper as its driver names it."""
    return GpuIdentity(
        name=name,
        form_factor=form_factor_of(name),
        sm_count=sms,
        memory_bytes=memory_mib << 20,
        nvlink=GpuLink(generation=4, count=nvlinks),
        pcie=GpuLink(generation=5, count=16),
        mig=" MIG " in name,
    )


#: All with 132 SMs but the slice of one compute instance, and none of them an H200.
OTHERS = (
    gpu("NVIDIA H100 80GB HBM3", nvlinks=18, memory_mib=81_559),
    gpu("NVIDIA H800", nvlinks=8, memory_mib=81_559),
    gpu("NVIDIA H200 NVL", nvlinks=18, memory_mib=143_771),
    gpu("NVIDIA H100 NVL", nvlinks=12, memory_mib=95_830),
    gpu("NVIDIA GH200 480GB", nvlinks=18, memory_mib=97_871),
    gpu("NVIDIA GH200 144G HBM3e", nvlinks=18, memory_mib=147_456),
    gpu("NVIDIA H200 MIG 7g.141gb", nvlinks=18, memory_mib=143_771),
    gpu("NVIDIA H200 MIG 1g.18gb", nvlinks=18, memory_mib=16_384, sms=16),
)


@pytest.mark.parametrize("platform", ["h200-host", "h200-peer"])
def test_the_shipped_h200_profiles_are_of_an_h200(platform: str) -> None:
    profile = load_platform(platform)
    comparison = compare(profile.gpu.identity, H200, profile.path)
    assert (comparison.differences, comparison.unknown) == ((), ())


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.name)
@pytest.mark.parametrize("platform", ["h200-host", "h200-peer"])
def test_the_shipped_h200_profiles_are_of_no_other_gpu(platform: str, other: GpuIdentity) -> None:
    profile = load_platform(platform)
    comparison = compare(profile.gpu.identity, other, profile.path)
    assert "name" in [difference.key for difference in comparison.differences]


@pytest.mark.parametrize(
    ("path", "changes", "key"),
    [
        ("peer", {"nvlink": GpuLink(generation=4, count=8)}, "nvlink.count"),
        ("peer", {"nvlink": GpuLink(generation=3, count=18)}, "nvlink.generation"),
        ("host", {"pcie": GpuLink(generation=4, count=16)}, "pcie.generation"),
        ("host", {"pcie": GpuLink(generation=5, count=8)}, "pcie.count"),
        ("host", {"sm_count": 114}, "sm_count"),
        ("host", {"memory_bytes": 81_559 << 20}, "memory_bytes"),
        ("host", {"mig": True}, "mig"),
        ("host", {"form_factor": "NVL"}, "form_factor"),
    ],
)
def test_one_key_tells_two_of_a_name_apart(path: str, changes: dict[str, object], key: str) -> None:
    other = H200.model_copy(update=changes)
    (difference,) = compare_gpus(H200, other, path=path).differences  # type: ignore[arg-type]
    assert difference.key == key
    assert str(difference.made_on) in str(difference)
    assert str(difference.present) in str(difference)


@pytest.mark.parametrize(("path", "kind"), [("peer", "pcie"), ("host", "nvlink"), ("local", "nvlink")])
def test_a_link_that_the_path_does_not_use_tells_nothing(path: str, kind: str) -> None:
    other = H200.model_copy(update={kind: GpuLink(generation=1, count=1)})
    assert compare_gpus(H200, other, path=path).same  # type: ignore[arg-type]


def test_memory_is_the_same_by_nvml_and_by_cuda_and_not_that_of_the_next_gpu() -> None:
    by_cuda = H200.model_copy(update={"memory_bytes": 150_109_880_320})
    assert compare_gpus(H200, by_cuda).same
    b200, gb200 = 183_359 << 20, 189_471 << 20
    one = H200.model_copy(update={"memory_bytes": b200})
    assert not compare_gpus(one, H200.model_copy(update={"memory_bytes": gb200})).same


def test_what_one_side_does_not_know_is_said_and_not_compared() -> None:
    old = GpuIdentity(name="NVIDIA H200", sm_count=132)
    comparison = compare_gpus(old, H200, path="peer")
    assert comparison.same
    assert comparison.unknown == (
        "form_factor", "mig", "memory_bytes", "nvlink.generation", "nvlink.count",
    )  # fmt: skip


def test_an_alias_is_the_same_gpu_and_a_longer_name_is_not() -> None:
    old = H200.model_copy(update={"name": "H200"})
    assert not compare_gpus(H200, old).same
    assert compare_gpus(H200, old, aliases=[("NVIDIA H200", "H200")]).same
    longer = H200.model_copy(update={"name": "NVIDIA H200 SE"})
    assert not compare_gpus(H200, longer, aliases=[("NVIDIA H200", "H200")]).same


def test_no_two_known_gpus_share_a_name() -> None:
    names = [name for known in known_gpus() for name in known.names]
    assert len(names) == len(set(names))


def test_a_known_gpu_has_rates_and_limits_with_sources() -> None:
    for known in known_gpus():
        compute = known_compute(known.gpu)
        assert compute is not None
        assert {rate.dtype for rate in compute.tensor} == {"bf16", "fp8"}
        assert all(part.source for part in (*compute.tensor, *compute.attention, compute))


@pytest.mark.parametrize("other", OTHERS[1:], ids=lambda other: other.name)
def test_a_gpu_gets_no_rates_of_another(other: GpuIdentity) -> None:
    assert known_compute(other) is None


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-80GB", "H200", ""])
def test_an_unknown_gpu_has_none(name: str) -> None:
    assert known_compute(GpuIdentity(name=name)) is None


@pytest.mark.parametrize("platform", ["h200-host", "h200-peer"])
def test_the_shipped_h200_profiles_carry_its_compute_section(platform: str) -> None:
    profile = load_platform(platform)
    assert profile.compute == known_compute(profile.gpu.identity)
