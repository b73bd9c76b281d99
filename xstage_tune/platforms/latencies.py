"""Latencies between the roles of a kernel, and between GPUs: what a launch has beside T0, R and Q."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from xstage_tune.base.field_types import NonNegative, Strict

if TYPE_CHECKING:
    from xstage_tune.platforms.schema import PlatformProfile


class Latency(Strict):
    """One latency, and where it comes from."""

    ns: NonNegative = Field(description="In ns", examples=[370.0])
    origin: Literal["measured", "assumed"] = Field(
        description="Whether it was measured on such a GPU, or is another's or a paper's (assumed)",
        examples=["assumed"],
    )
    source: str = Field("", description="Where it comes from", examples=["estimate"])


class Latencies(Strict):
    """All of them: a calibration measures none."""

    counter: Latency = Field(
        description="From a tile's last byte leaving its SM to its counter's being raised"
    )
    signal: Latency = Field(description="From a counter's being raised to another SM's seeing it")
    handover: Latency = Field(
        description="What a mainloop role spends on passing a tile on and taking the next slot, where it "
        "takes that before the mainloop and waits for nothing"
    )
    handover_in_mainloop: Latency = Field(description="The same where it takes the slot in the mainloop")
    visibility: Latency = Field(description="T_lat: from the last byte's leaving to its being visible")

    def same_times(self, other: Latencies) -> bool:
        """Whether results are the same with either."""
        return all(getattr(self, name).ns == getattr(other, name).ns for name in type(self).model_fields)


def _of_h200(ns: float, source: str) -> Latency:
    return Latency(ns=ns, origin="assumed", source=source)


#: Of a profile that states none, as those of before they were keys: those of one H200 and its NVLink.
#: Counter and signal: 359 and 605 ns (st.v4), 354 and 588 (tma) in the recorded run of
#: ``benchmarks/neighbour_waits.py``, 374 and 604 in an earlier one; a signal alone takes 832 ns on a B200
#: (ParallelKittens, arXiv 2511.13940). Hand-over: 307 ns (st.v4) and 276 (tma) in that run, 288 and 251 in an
#: earlier one; in the mainloop by begins and stalls of tiles of skeletons without backlog.
FALLBACK = Latencies(
    counter=_of_h200(370.0, "an idle H200: benchmarks/neighbour_waits.py"),
    signal=_of_h200(600.0, "an idle H200: benchmarks/neighbour_waits.py"),
    handover=_of_h200(270.0, "an H200: benchmarks/neighbour_waits.py"),
    handover_in_mainloop=_of_h200(170.0, "an H200: skeletons without backlog"),
    visibility=_of_h200(800.0, "one way over NVLink (MSCCL++)"),
)


def latencies_of(platform: PlatformProfile) -> Latencies:
    """The platform's own; where its profile states none :data:`FALLBACK`, each marked as assumed."""
    return platform.latencies or FALLBACK
