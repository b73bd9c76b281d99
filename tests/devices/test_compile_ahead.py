"""Kernels compiled ahead, in processes: what one does to its compiler is an outcome of that one alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Hashable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.configs.cases import attention, attention_config
from tests.devices.test_isolated import ends
from tests.search.cases import TableDevice, drained, request, small_space
from xstage_tune.base.errors import XStageError
from xstage_tune.base.progress import NoProgress
from xstage_tune.cuda.compiler import KernelCompileError, UnusableKernelError
from xstage_tune.devices import compile_ahead
from xstage_tune.devices.compile_ahead import Built, CompileAhead, CompilingDevice, KernelBuilder
from xstage_tune.search.build import build_space_kernels
from xstage_tune.search.driver import run_search
from xstage_tune.search.journal import NoJournal

pytestmark = pytest.mark.usefixtures("warm_workers")

CONFIGS = small_space().configs[:12]


@dataclass(frozen=True)
class PlantedBuilder:
    """Notes what it builds in a folder; has the faults that a file of a config's number there names."""

    folder: Path

    def key(self, workload: Any, config: Any) -> Hashable:
        del workload
        return CONFIGS.index(config) // 2  # two configs share a kernel

    def is_built(self, workload: Any, config: Any) -> bool:
        return (self.folder / f"{self.key(workload, config)}.there").exists()

    def build(self, workload: Any, config: Any) -> Built:
        number = self.key(workload, config)
        with (self.folder / "built").open("a") as built:
            built.write(f"{os.getpid()} {number}\n")
        fault = self.folder / f"{number}.fault"
        match fault.read_text() if fault.exists() else "":
            case "error":
                raise KernelCompileError("no semicolon")
            case "spills":
                raise UnusableKernelError("it spills 64 bytes a thread")
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hang":
                time.sleep(600)
        return Built(168, cached=self.is_built(workload, config))


@pytest.fixture
def ahead(tmp_path: Path) -> Iterator[CompileAhead]:
    with closing(CompileAhead(PlantedBuilder(tmp_path), processes=2)) as opened:
        yield opened


def built(folder: Path) -> list[tuple[int, int]]:
    """Process and kernel of each build."""
    file = folder / "built"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(process), int(number)) for process, number in map(str.split, lines)]


def outcome(ahead: CompileAhead, number: int) -> str:
    try:
        ahead.built(drained(), CONFIGS[number])
    except XStageError as error:
        return error.fault
    return ""


def test_each_kernel_is_compiled_once_before_it_is_waited_for(ahead: CompileAhead, tmp_path: Path) -> None:
    ahead.expect(drained(), CONFIGS)
    ahead.expect(drained(), CONFIGS)
    assert [outcome(ahead, number) for number in range(12)] == [""] * 12
    assert sorted(number for _, number in built(tmp_path)) == list(range(6))
    assert 1 <= len({process for process, _ in built(tmp_path)}) <= 2


def test_faults_of_the_compiler_are_of_their_config_alone(
    ahead: CompileAhead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_ahead, "_DEADLINE_S", 12.0)
    for number, fault in enumerate(("error", "crash", "hang", "spills")):
        (tmp_path / f"{number}.fault").write_text(fault)
    ahead.expect(drained(), CONFIGS)
    assert [outcome(ahead, 2 * number) for number in range(6)] == [
        "compile", "compile", "compile", "unusable", "", "",
    ]  # fmt: skip


def test_what_is_built_needs_no_process(ahead: CompileAhead, tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.there").touch()
    ahead.expect(drained(), CONFIGS)
    assert ahead.built(drained(), CONFIGS[0]) is None
    assert built(tmp_path) == []


def test_closing_ends_every_process_whatever_it_compiles(tmp_path: Path) -> None:
    (tmp_path / "0.fault").write_text("hang")
    ahead = CompileAhead(PlantedBuilder(tmp_path), processes=2)
    ahead.expect(drained(), CONFIGS)
    until = time.monotonic() + 30
    while len({process for process, _ in built(tmp_path)}) < 1 and time.monotonic() < until:
        time.sleep(0.05)
    processes = {process for process, _ in built(tmp_path)}
    ahead.close()
    ahead.close()
    assert processes
    assert all(ends(process) for process in processes)


def test_a_search_tells_what_may_come_next_and_a_compile_fault_is_a_trials_outcome(tmp_path: Path) -> None:
    space = small_space()
    heard: list[Any] = []

    class Listening(CompilingDevice):
        def expect(self, launches: Any) -> None:
            heard.append([launch.config for launch in launches])

        def run(self, launches: Any) -> Any:
            for launch in launches:
                if launch.config == space.configs[5]:
                    raise KernelCompileError("no semicolon")
                yield from self._device.run([launch])

    device = Listening(
        TableDevice(lambda config: 1e9 + space.index[config]),
        CompileAhead(PlantedBuilder(tmp_path)),
    )
    with closing(device):
        asked = request(sampler="exhaustive", trials=None)
        result = run_search(asked, space, device, NoJournal(), NoProgress())
    assert len(heard) == 1
    assert heard[0][0] == space.default
    assert set(heard[0][1:]) == set(space.configs)
    assert [(group.fault, group.configs) for group in result.failures] == [("compile", 1)]


def test_a_whole_space_is_built_and_what_is_not_usable_is_a_result(tmp_path: Path) -> None:
    (tmp_path / "1.fault").write_text("spills")
    (tmp_path / "2.there").touch()
    result = build_space_kernels(
        attention(), CONFIGS, NoProgress(), processes=2, builder=PlantedBuilder(tmp_path)
    )
    assert (result.configs, result.kernels, result.cached, result.unusable) == (12, 5, 1, 2)
    assert result.faults == 0
    (tmp_path / "3.fault").write_text("error")
    again = build_space_kernels(attention(), CONFIGS, NoProgress(), builder=PlantedBuilder(tmp_path))
    assert (again.unusable, again.faults) == (4, 2)


def test_configs_that_differ_in_a_launchs_arguments_share_a_kernel() -> None:
    builder, workload = KernelBuilder(), attention(tokens=4096)
    keys = {
        builder.key(workload, attention_config(tile_order=order, block_n=block_n))
        for order in ("sequential", "spread")
        for block_n in (112, 128)
    }
    assert len(keys) == 2
