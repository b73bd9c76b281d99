"""Fixtures that every area uses; tests marked ``gpu`` are skipped where there is no Hopper GPU."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.gpu_turns import gpu_turn, locks_folder
from tests.once import build_commands_once, made_once, make_tables_once
from xstage_tune import cli


class CliResult(NamedTuple):
    """How a command ended and what it wrote."""

    exit_code: int
    stdout: str
    stderr: str


RunCli = Callable[..., CliResult]


def without_choice(stderr: str) -> str:
    """What a command wrote to stderr beside which platform it took, and why."""
    lines = stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("xstage-tune: platform "))


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCli:
    """Run ``xstage-tune`` with the given arguments, as a user does, errors included."""

    def run(*arguments: str) -> CliResult:
        monkeypatch.setattr("sys.argv", ["xstage-tune", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        code = caught.value.code
        assert code is None or isinstance(code, int)
        return CliResult(code or 0, *capsys.readouterr())

    return run


@pytest.fixture(autouse=True)
def _not_hushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a command that an earlier test of this process ran."""
    monkeypatch.setattr("xstage_tune.base.progress._Told.quiet", False)


@pytest.fixture(autouse=True)
def _away_from_the_users_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own platforms decide what commands rest on, and calibrations are kept there."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture(autouse=True)
def _turn_on_the_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of tests that use it: several at once, but one that times something has it alone."""
    if request.node.get_closest_marker("gpu") is None:
        yield
        return
    with gpu_turn(locks_folder(), alone=request.node.get_closest_marker("gpu_alone") is not None):
        yield


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quick calibration of a fluid device, recorded by the command itself; its profile is beside it."""
    from tests.calibration.fluid import Fluid, FluidDevice
    from xstage_tune.devices import opener

    with made_once(tmp_path_factory, "recording") as folder:
        file, profile, store = (folder / name for name in ("run.xsrec", "live.toml", "live.db"))
        if not file.exists():
            asked = ("--budget", "quick", "--store-flavour", "st.v4", "--seed", "5", "--force")
            kept = ("--record", str(file), "--out", str(profile), "--store", str(store))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(opener, "open_cuda", lambda *_: FluidDevice(Fluid()))
                patch.setattr("sys.argv", ["xstage-tune", "calibrate", *asked, *kept])
                with pytest.raises(SystemExit) as ended:
                    cli.main()
            assert not ended.value.code
    return file


#: Profiles that tests made the user's own, by name: the files.
_CALIBRATED: dict[str, bytes] = {}


@pytest.fixture
def calibrated() -> Callable[[str], Path]:
    """Make a shipped platform the user's own."""
    from xstage_tune.platforms.loader import load_platform, save_platform, user_platforms_dir

    def calibrate(name: str) -> Path:
        file = user_platforms_dir() / f"{name}.toml"
        if name in _CALIBRATED:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(_CALIBRATED[name])
        else:
            save_platform(load_platform(name), file)
            _CALIBRATED[name] = file.read_bytes()
        return file

    return calibrate


@pytest.fixture
def few_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred MoE configs to search instead of 20,000, where a test is not about the space."""
    from tests.search.cases import SMALL_AXES
    from xstage_tune.families.megamoe.bound import BoundMegaMoe

    axes = SMALL_AXES | {"pipeline_stages": (2, 6, 24)}  # one that no SM holds
    monkeypatch.setattr(BoundMegaMoe, "axes", lambda _: dict(axes))


@pytest.fixture
def warm_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of devices are forked from a process that has imported what each would import anew."""
    from tests.processes import WARM
    from xstage_tune.devices import worker

    monkeypatch.setattr(worker, "get_context", lambda _: WARM)


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store that commands use, away from the real one."""
    file = tmp_path / "own.db"
    monkeypatch.setenv("XSTAGE_STORE", str(file))
    return file


def pytest_configure() -> None:
    """Show no progress, and let Ctrl-C reach what the tests start.

    A shell's background job is started deaf to Ctrl-C.
    """
    build_commands_once()
    make_tables_once()
    os.environ["XSTAGE_QUIET"] = "1"  # else what a command says would depend on how long it takes
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads spin, on cores that are shared
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.freeze()  # thousands of tests that stay until the end: nothing to search for garbage again and again


#: With tests that take 5 to 25 s. Begun last, one would keep a single core busy at the end.
_LONGEST = ("test_interrupts.py", "test_pages.py", "test_commands.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in _LONGEST)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _no_gpu() if marked else ""
    for item in marked:
        item.add_marker(pytest.mark.filterwarnings("default"))  # torch's are not ours to fix
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def _no_gpu() -> str:
    """Why the GPU tests cannot run here; empty where they can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    if not torch.cuda.is_available():
        return "no GPU"
    if torch.cuda.get_device_capability()[0] != 9:
        return f"{torch.cuda.get_device_name()} is no Hopper GPU"
    return ""
