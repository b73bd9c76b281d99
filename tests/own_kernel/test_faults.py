"""Whatever the user's process does is an outcome of the config that it was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import RunCli
from tests.own_kernel.cases import FAULTS, space_file
from xstage_tune.devices.process_kernels import ProcessKernels
from xstage_tune.families.binding import family_of
from xstage_tune.families.kernel_launch import KernelLaunch
from xstage_tune.families.workload_files import load_workload
from xstage_tune.search.evaluation import Evaluation, evaluate


@pytest.fixture
def faults(own_store: Path, tmp_path: Path) -> Path:
    del own_store
    what = ["nothing", *FAULTS, "endless-lines"]
    return space_file(
        tmp_path, deadline_s=3.0, axes={"what": what, "size": [1, 2]}, default={"what": "nothing", "size": 2},
        constraints=["size == 1 or what == 'nothing'"], repeats=1,
    )  # fmt: skip


def runs(pid: str) -> bool:
    """Whether a process is there, and no zombie that nobody waits for."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_no_fault_ends_a_search(run_cli: RunCli, faults: Path) -> None:
    options = ("--space", str(faults), "-p", "h200-host", "--sampler", "exhaustive")
    result = run_cli("search", *options, "--format", "json")
    assert result.exit_code == 1, result.stderr  # there are faults
    found = json.loads(result.stdout)
    assert found["best"]["config"]["values"] == {"what": "nothing", "size": 1}
    by_what = {group["example"].split(",")[0]: group["fault"] for group in found["failures"]}
    alone = {f"what={what}": fault for what, fault in FAULTS.items()}
    assert {what: by_what.get(what) for what in alone} == alone
    children = (faults.parent / "children").read_text().split()
    assert children
    assert [child for child in children if runs(child)] == []


def test_what_a_config_says_too_late_is_no_fault_of_the_next(faults: Path) -> None:
    workload = load_workload(str(faults))
    process = family_of(workload).process_of(workload)
    assert process is not None
    device = ProcessKernels(process)
    try:
        for what in ("endless-lines", "nothing", "endless-lines", "nothing"):
            config = family_of(workload).config_of({"what": what, "size": 1})
            found = evaluate(device, KernelLaunch(workload, config, "host"))
            assert what == "endless-lines" or isinstance(found, Evaluation)
    finally:
        device.close()
