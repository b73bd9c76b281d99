"""Where a user's folders are, above all in a container: no home, no passwd entry, or another's home."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import RunCli
from xstage_tune.base.errors import UsageError
from xstage_tune.base.user_folders import cache_folder, data_folder, expanded

#: A user whom the machine does not know; what comes after runs as that user would see it.
NOBODY_KNOWN = """
import pwd

def unknown(user):
    raise KeyError(f"getpwuid(): uid not found: {user}")

pwd.getpwuid = pwd.getpwnam = unknown
"""
PROGRAM = "from xstage_tune.cli import entry; entry()"
LOOKUP = """
import sys, xstage_tune
found = xstage_tune.lookup(sys.argv[1], "fa-a2a/paper")
print(found.match)
"""


def run(
    temporary: Path, program: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A program of a user without a passwd entry, and of no environment but what is given."""
    temporary.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", NOBODY_KNOWN + program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=temporary,
        env={"PATH": os.defpath, "TMPDIR": str(temporary), **environment},
    )


def instead(temporary: Path) -> Path:
    return temporary / f"xstage-tune-{os.geteuid()}"


@pytest.mark.parametrize(
    "command",
    [
        ("workloads", "list"),
        ("platforms", "list"),
        ("audit", "-w", "fa-a2a/paper", "-p", "paper-nvlink5"),
        ("doctor",),
        ("store", "path"),
    ],
)
def test_without_a_home_commands_work(tmp_path: Path, command: tuple[str, ...]) -> None:
    ran = run(tmp_path / "t", PROGRAM, *command)
    assert ran.returncode in (0, 1), ran  # 1 is a finding
    assert ran.stdout
    assert "error" not in ran.stderr


def test_without_a_home_the_store_is_kept_in_a_private_folder_that_is_said_once(
    tmp_path: Path, recording: Path
) -> None:
    temporary = tmp_path / "t"
    done = run(temporary, PROGRAM, "calibrate", "--device", f"replay:{recording}")
    assert done.returncode == 0, done
    assert done.stdout
    assert "error" not in done.stderr
    assert done.stderr.count(f"no home folder is known: what is kept goes to {instead(temporary)};") == 1
    assert stat.S_IMODE(instead(temporary).stat().st_mode) == 0o700
    shown = run(temporary, PROGRAM, "store", "info")
    assert "1 finished" in shown.stdout
    assert sorted(path.name for path in temporary.iterdir()) == [instead(temporary).name]


def test_a_serving_process_without_a_home_looks_up_in_silence(tmp_path: Path) -> None:
    temporary = tmp_path / "t"
    bundle = temporary / "tuned.json"
    search = ("search", "-w", "fa-a2a/paper", "--trials", "2", "-p", "paper-nvlink5")
    cache = os.environ.get("XSTAGE_CACHE_DIR") or str(cache_folder())  # compiled there already
    searched = run(temporary, PROGRAM, *search, XSTAGE_CACHE_DIR=cache)
    assert searched.returncode == 0, searched
    assert run(temporary, PROGRAM, "export", "-o", str(bundle)).returncode == 0
    found = run(temporary, LOOKUP, str(bundle))
    assert (found.stdout, found.stderr, found.returncode) == ("exact\n", "", 0)


def test_what_cannot_do_without_a_home_says_so(tmp_path: Path) -> None:
    install = ("--install-completion", "bash")
    ran = run(tmp_path / "t", PROGRAM, *install, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert ran.returncode == 3
    assert "no home folder is known" in ran.stderr
    ran = run(tmp_path / "t", PROGRAM, "store", "info", "--store", "~/store.db")
    assert ran.returncode == 4
    assert "no home folder is known" in ran.stderr


def test_a_home_that_cannot_be_written_is_like_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: RunCli
) -> None:
    (tmp_path / "home").write_text("a file, so that not even root can make a folder in it")
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XSTAGE_CACHE_DIR", "XSTAGE_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert data_folder() == instead(tmp_path) / "data"
    assert cache_folder() == instead(tmp_path) / "cache"
    assert run_cli("store", "path").stdout == f"{instead(tmp_path) / 'data' / 'store.db'}\n"


def test_folders_that_are_named_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XSTAGE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder() == tmp_path / "data" / "xstage-tune"
    assert cache_folder() == tmp_path / "cache" / "xstage-tune"
    monkeypatch.setenv("XSTAGE_CACHE_DIR", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("taken", ["link", "open folder", "file"])
def test_a_folder_that_others_may_have_prepared_is_refused(tmp_path: Path, taken: str) -> None:
    temporary = tmp_path / "t"
    temporary.mkdir()
    if taken == "link":
        (tmp_path / "elsewhere").mkdir()
        instead(temporary).symlink_to(tmp_path / "elsewhere")
    elif taken == "file":
        instead(temporary).write_text("")
    else:
        instead(temporary).mkdir()
        instead(temporary).chmod(0o777)
    ran = run(temporary, PROGRAM, "store", "path")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert str(instead(temporary)) in ran.stderr
    assert "XDG_DATA_HOME" in ran.stderr


def test_the_home_of_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no such user"):
        expanded(Path("~no-such-user/tuned"))
    monkeypatch.setenv("HOME", "/somewhere")
    assert expanded(Path("~/tuned")) == Path("/somewhere/tuned")
