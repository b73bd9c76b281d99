"""The command line's last line of defence: one line and the right exit code, whatever happens."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

import xstage_tune
from tests.conftest import RunCli
from xstage_tune.base.json_output import emit_json

ROOT = Path(__file__).parents[1]


def raising(error: BaseException) -> object:
    def fail() -> None:
        raise error

    return fail


def test_version(run_cli: RunCli) -> None:
    assert run_cli("--version") == (0, f"xstage-tune {xstage_tune.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("search", "--foo"), "search: no option --foo"),
        (("search", "--trials", "0"), "search: --trials: should be greater than or equal to 1"),
        (("search", "--trials", "x"), "search: --trials: should be a whole number"),
        (("search", "--tolerance", "x"), "search: --tolerance: should be a number"),
        (("search", "--sampler", "tp"), "search: --sampler: 'tp' is not one of 'auto'"),
        (("search", "--trials"), "option '--trials' requires an argument"),
        (("report",), "report: missing option '--output'"),
        (("store", "show"), "store show: missing argument 'ID|latest'"),
        (("store", "lst"), "store: no command 'lst'; did you mean 'list'?"),
        (("audit", "-w", "fa-a2a/paper", "more"), "audit: got unexpected extra argument"),
        (("serach",), "no command 'serach'; did you mean 'search'?"),
        (("-x",), "no option -x"),
    ],
)
def test_a_bad_option_is_told_as_any_other_error(
    run_cli: RunCli, arguments: tuple[str, ...], told: str
) -> None:
    result = run_cli(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    message, hint = result.stderr.splitlines()
    assert message.startswith(f"xstage-tune: error: {told}")
    assert hint.startswith("  try: xstage-tune ")
    assert hint.endswith(" -h")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("tokens = 'many'", "tokens = 'many': should be"),
        ("tokens = 0", "tokens = 0: should be greater than 0"),
        ("tokens = 1.5", "tokens = 1.5: should be"),
        ("tokens = 1000000000000000000000000000000", "tokens = 1000000000000000000000000000000: should be"),
        ("tokens = true", "tokens = True: should be"),
        ("tokens = [1]", "tokens: should be"),
        ("name = 7", "name = 7: should be"),
        ("dtype = 'fp7'", "dtype = 'fp7': should be"),
        ("tokns = 7", "unknown key 'tokns'; did you mean 'tokens'?"),
        ("kind = 'other'", "other"),
    ],
)
def test_a_bad_file_is_told_with_its_key_and_value(
    run_cli: RunCli, tmp_path: Path, line: str, told: str
) -> None:
    file = tmp_path / "mine.toml"
    key = line.partition(" ")[0]
    shipped = (ROOT / "profiles/workloads/fa_a2a/paper.toml").read_text().splitlines()
    kept = [one for one in shipped if one.partition(" ")[0] != key]
    file.write_text("\n".join([line, *kept]))
    result = run_cli("workloads", "show", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    first = result.stderr.splitlines()[0]
    assert first.startswith(f"xstage-tune: error: {file}: ")
    assert told in first
    assert not any(word in result.stderr for word in ("Input should", "Value error", "Traceback", "pydantic"))


def test_a_bug_is_an_internal_error_and_no_traceback(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xstage_tune.platforms.loader.list_platforms", raising(TypeError("broken")))
    result = run_cli("platforms", "list")
    assert result.exit_code == 5
    assert result.stderr.startswith("xstage-tune: error: internal error: TypeError: broken\n")
    assert "Traceback" not in result.stderr


def test_a_bug_shows_its_place_when_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xstage_tune.platforms.loader.list_platforms", raising(TypeError("broken")))
    monkeypatch.setenv("XSTAGE_DEBUG", "1")
    monkeypatch.setattr("sys.argv", ["xstage-tune", "platforms", "list"])
    from xstage_tune import cli

    with pytest.raises(TypeError, match="broken"):
        cli.main()


def test_what_the_system_refuses_is_named(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = OSError(errno.EACCES, "Permission denied", "/etc/shadow")
    monkeypatch.setattr("xstage_tune.platforms.loader.list_platforms", raising(refusal))
    result = run_cli("platforms", "list")
    assert result.exit_code == 3
    assert "/etc/shadow: Permission denied" in result.stderr


def test_an_interrupt_is_said(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xstage_tune.platforms.loader.list_platforms", raising(KeyboardInterrupt()))
    result = run_cli("platforms", "list")
    assert result.exit_code == 130
    assert result.stderr == "xstage-tune: interrupted\n"


@pytest.mark.parametrize(
    ("shell", "code", "complaint"),
    [
        ("{} platforms show h200-host > /dev/full", 3, "No space left on device"),
        ("{} platforms show h200-host --format json | true; exit ${{PIPESTATUS[0]}}", 141, ""),
    ],
)
def test_output_that_nobody_takes(shell: str, code: int, complaint: str) -> None:
    command = shell.format(f"'{sys.executable}' -m xstage_tune")
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_standard_output_is_told() -> None:
    """As a shell's ``>&-`` leaves it: there is nowhere to put a result."""
    command = f"{sys.executable} -m xstage_tune platforms list >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "standard output is closed" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "stderr", "code"),
    [
        ("workloads show none", "2>&-", 2),
        ("workloads show none", "2>/dev/full", 2),
        ("workloads show none", "2>&- <&-", 2),
        ("audit --foo", "2>&-", 2),
        ("platforms show h200-host", "2>&- <&-", 0),
    ],
)
def test_an_error_that_nobody_takes_changes_no_exit_code(arguments: str, stderr: str, code: int) -> None:
    """Neither does it go to stdout, nor into a file that is opened next."""
    command = f"{sys.executable} -m xstage_tune {arguments} {stderr}"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert ("drain" in done.stdout) is (code == 0)
    assert "xstage-tune: error" not in done.stdout


def test_a_warning_that_is_logged_is_a_line_on_stderr_like_any_other() -> None:
    script = (
        "import logging, xstage_tune.cli as cli\n"
        "cli.main = lambda: logging.getLogger('any').warning('disk %s is nearly full', 'A')\n"
        "cli.entry()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "xstage-tune: warning: disk A is nearly full\n")


def test_a_result_in_json_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    text = "red \x9b31m \x7f \u202egnp \x1b[2J"
    emit_json({"description": text})
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"description": text}
