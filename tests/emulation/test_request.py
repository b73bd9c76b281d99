"""Requests: what goes together, spins, and the way through plain keys."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.configs.cases import attention, attention_config, megamoe_config, moe
from tests.emulation.gpu import HOST
from xstage_tune.base.errors import UsageError
from xstage_tune.experiments.emulation.request import EmulationRequest, parse_given
from xstage_tune.experiments.emulation.sweep import Sweep
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.launch import GivenTimes
from xstage_tune.families.workload import Workload


def asked(workload: Workload, config: KernelConfig, *schedules: str) -> EmulationRequest:
    return EmulationRequest(workload=workload, platform=HOST, config=config, schedules=schedules, path="host")


MOE = asked(moe(), megamoe_config(block_m=64), "wave", "interleaved")
ATTENTION = asked(attention(), attention_config(), "spread")


@pytest.mark.parametrize(
    "request_",
    [
        MOE,
        ATTENTION,
        MOE.changed(sweep=Sweep("remote_fraction", (0.0, 0.1, 1 / 3)), placements=("even", "share")),
        MOE.changed(given=GivenTimes(l1_ns=25e3, l2_ns=12.7e3, epilogue_ns=0.0), dependencies=False),
        ATTENTION.changed(completion_coupled=True, path="local", repeats=1, seed=7),
    ],
)
def test_a_request_comes_back_from_json(request_: EmulationRequest) -> None:
    assert EmulationRequest.read(json.loads(json.dumps(request_.keys())), "here") == request_


def test_keys_of_another_version_are_refused() -> None:
    keys = MOE.keys()
    del keys["schedules"]
    with pytest.raises(UsageError, match=r"run 7: not the request of an emulation: .*'schedules'"):
        EmulationRequest.read(keys, "run 7")


@pytest.mark.parametrize(
    ("base", "changes", "complaint"),
    [
        (MOE, {"config": attention_config()}, "config of kind 'attention' does not fit"),
        (ATTENTION, {"config": megamoe_config()}, "config of kind 'megamoe' does not fit"),
        (MOE, {"schedules": ("spread",)}, "--schedule spread does not fit"),
        (ATTENTION, {"schedules": ("wave",)}, "--schedule wave does not fit"),
        (MOE, {"path": "peer"}, "calibrated for path 'host', not 'peer'"),
        (MOE, {"sweep": Sweep("lead", (1, 2))}, "--sweep lead is of the interleaved schedule"),
        (ATTENTION, {"sweep": Sweep("lead", (1, 2))}, "--sweep lead does not fit"),
        (ATTENTION, {"sweep": Sweep("staging_depth", (1,))}, "--sweep staging_depth does not fit"),
        (MOE, {"given": GivenTimes(q_ns=1.0)}, "--tile-ns q does not fit"),
        (MOE, {"given": GivenTimes(l1_ns=1.0)}, "takes l1 and l2 together"),
        (ATTENTION, {"given": GivenTimes(l1_ns=1.0, l2_ns=1.0)}, "--tile-ns l1 and l2 does not fit"),
    ],
)
def test_what_does_not_go_together_is_refused(
    base: EmulationRequest, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        base.changed(**changes)
    assert complaint in refusal.value.message
    assert refusal.value.hint


def test_given_times() -> None:
    assert parse_given("l1=25000, l2=12700.5") == GivenTimes(l1_ns=25000, l2_ns=12700.5)
    assert parse_given("q=8e4,epilogue=0") == GivenTimes(q_ns=80000, epilogue_ns=0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("l1=0,l2=5", "a mainloop of 0 ns cannot be spun"),
        ("q=-3", "a mainloop of -3 ns cannot be spun"),
        ("q=nan", "a mainloop of nan ns cannot be spun"),
        ("q=3e8", "longer than the deadline of a spin, 200000000 ns"),
        ("q=inf", "cannot be spun"),
        ("l3=5", "'l3=5' is none of l1=, l2=, q=, epilogue="),
        ("l1", "'l1' is none of"),
        ("l1=4,l1=5", "l1 is there twice"),
        ("q=abc", "'abc' is no number"),
    ],
)
def test_what_cannot_be_spun_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=r"^--tile-ns ") as refusal:
        parse_given(text)
    assert complaint in refusal.value.message


@pytest.mark.parametrize("repeats", [0, -2, 10**9, float("nan"), "5"])
def test_repeats_of_an_edited_recording_are_refused_naming_it(repeats: object) -> None:
    with pytest.raises(UsageError, match=r"run\.xsemu: not the request of an emulation: repeats"):
        EmulationRequest.read({**MOE.keys(), "repeats": repeats}, "run.xsemu")
