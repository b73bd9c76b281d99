"""An H200 as the tests describe it; they replace what they are about."""

from __future__ import annotations

from xstage_tune.launches.device import DeviceDescription

H200 = DeviceDescription(
    kind="cuda",
    name="NVIDIA H200",
    uuid="GPU-1",
    architecture="sm_90a",
    sm_count=132,
    l2_bytes=60 << 20,
    memory_bytes=140 << 30,
    max_sm_clock_mhz=1980,
    driver="580.82.07",
    cuda="13.0",
    nvrtc="13.0",
    paths=("host", "local"),
    mig=False,
    link={"host_bytes_per_s": 63.0e9, "pcie": "Gen5 x16"},
)
