"""A short run of the fuzzers, and that they find what they are for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.fuzz import harness
from tests.fuzz.harness import Tally, Target, away_from_the_users_data, command, program, run_input
from tests.fuzz.powercuts import power_cuts, why_not
from tests.fuzz.targets import TARGETS
from xstage_tune.base.errors import UsageError, XStageError

#: Which, where not the first 60; the first of ``stops`` runs an emulation line by line, which takes 20 s.
_INPUTS = {
    "options": range(8), "stores": range(20), "kills": range(3), "power_cuts": range(3), "stops": range(2, 4),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _away() -> Iterator[None]:
    with away_from_the_users_data():
        yield


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_found_in_a_few_inputs(target: Target) -> None:
    if target is power_cuts and (reason := why_not()):
        pytest.skip(reason)
    tally = Tally()
    for number in _INPUTS.get(target.__name__, range(60)):
        run_input(target, 0, number, tally)
    assert not tally.findings, "\n".join(text for _, text in tally.findings)


def hang(_: Random, __: Path) -> None:
    while True:
        pass


def block(_: Random, __: Path) -> None:
    time.sleep(60)


def take_memory(_: Random, __: Path) -> None:
    bytearray(100_000_000)


def crash(_: Random, __: Path) -> None:
    raise TypeError("broken")


def fail_inside(_: Random, __: Path) -> None:
    raise XStageError("broken")


def warn(_: Random, __: Path) -> None:
    np.float64(1) / np.float64(0)


def refuse(_: Random, __: Path) -> None:
    raise UsageError("wrong")


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (hang, "Hung at "),
        (block, "Hung at "),
        (take_memory, "memory over "),
        (crash, "TypeError at "),
        (fail_inside, "an internal error"),
        (warn, "RuntimeWarning at "),
    ],
)
def test_what_they_are_for_is_found(target: Target, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "MOST_SECONDS", 0.5)
    monkeypatch.setattr(harness, "MOST_WAIT_SECONDS", 2.0)
    monkeypatch.setattr(harness, "MOST_BYTES", 50e6)
    tally = Tally()
    run_input(target, 0, 0, tally)
    ((number, text),) = tally.findings
    assert number == 0
    assert text.startswith(kind)


def test_a_refusal_is_no_finding() -> None:
    tally = Tally()
    run_input(refuse, 0, 0, tally)
    assert (tally.inputs, tally.refused, tally.findings) == (1, 1, [])


def test_an_input_is_the_same_whenever_it_is_made() -> None:
    made = []
    for _ in range(2):
        tally = Tally()
        run_input(lambda random, _: made.append(random.random()), 3, 14, tally)
    assert made[0] == made[1]


def test_a_program_that_ends_well_is_no_finding() -> None:
    program("workloads", "show", "none")


def test_commands_are_run_as_users_run_them() -> None:
    code, out, err = command("workloads", "show", "none")
    assert (code, out) == (2, "")
    assert "unknown workload" in err
