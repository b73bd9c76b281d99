"""The op over a process group of two GPUs, one process each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from xstage_tune.families.attention_a2a.check import TOLERANCE

pytestmark = pytest.mark.gpu

_RANKS = 2
_LIMIT_S = 90.0
_EPOCHS = 6
#: NVLink multicast is of no use here, and not everywhere there.
_ENVIRONMENT = {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0"}

Report = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    """What every rank did, by step; one run of all ranks serves all tests."""
    import torch

    if torch.cuda.device_count() < _RANKS:
        pytest.skip("a process group needs a second GPU")
    folder = tmp_path_factory.mktemp("group")
    ranks = [_start(rank, folder) for rank in range(_RANKS)]
    deadline = time.monotonic() + _LIMIT_S
    try:
        # Without one rank the others only run into their timeouts.
        while all(rank.poll() in (None, 0) for rank in ranks) and any(rank.poll() is None for rank in ranks):
            assert time.monotonic() < deadline, _outputs(folder)
            time.sleep(0.05)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0] * _RANKS, _outputs(folder)
    return [_report((folder / f"{rank}.out").read_text()) for rank in range(_RANKS)]


def _start(rank: int, folder: Path) -> subprocess.Popen[bytes]:
    arguments = [str(rank), str(_RANKS), str(folder / "rendezvous")]
    with (folder / f"{rank}.out").open("wb") as out, (folder / f"{rank}.err").open("wb") as err:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.attention_a2a.group_rank", *arguments],
            cwd=Path(__file__).parents[2],
            env={**os.environ, **_ENVIRONMENT},
            stdout=out,
            stderr=err,
        )


def _report(text: str) -> Report:
    steps = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {step.pop("step"): step for step in steps}


def _outputs(folder: Path) -> str:
    return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(folder.glob("*.[oe]*")))


@pytest.mark.parametrize(
    ("step", "rows", "heads", "head_dim"),
    [
        ("stores", (499, 498), 4, 128),
        ("copies", (499, 498), 4, 128),
        ("split tiles", (4501, 4500), 6, 128),
        ("several rounds", (4501, 4500), 6, 64),
        ("one token", (1, 0), 2, 128),
        ("closed and anew", (499, 498), 4, 128),
    ],
)
def test_every_rank_gets_all_heads_of_its_tokens_in_every_epoch(
    reports: list[Report], step: str, rows: tuple[int, int], heads: int, head_dim: int
) -> None:
    for report, own_rows in zip(reports, rows, strict=True):
        assert report[step]["shapes"] == [[own_rows, heads, head_dim]] * _EPOCHS
        assert own_rows == 0 or all(error <= TOLERANCE for error in report[step]["errors"])


def test_ranks_that_disagree_are_told_in_what(reports: list[Report]) -> None:
    assert [report["disagree"]["message"] for report in reports] == [
        "the ranks disagree: tokens is 501 on rank 1, 502 on 0",
        "the ranks disagree: tokens is 502 on rank 0, 501 on 1",
    ]


def test_a_rank_that_stops_calling_is_reported_by_the_others(reports: list[Report]) -> None:
    # All shapes share their epochs, from the last close on.
    late = f"rank 1 did not signal epoch {_EPOCHS + 2} within 0.5 s: its word is {_EPOCHS + 1}"
    assert [report["late"]["messages"] for report in reports] == [[late, late], []]
