"""A password in ``--store`` is in nothing that a command prints, writes or keeps."""

from __future__ import annotations

import gzip
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xstage_tune import cli
from xstage_tune.base.errors import StoreError
from xstage_tune.base.redaction import HIDDEN, redacted, redacted_arguments
from xstage_tune.store.location import resolve_location

SECRET = "s3cr3t-Pa55"
SMALL = ("-w", "megamoe/glm-4.5", "-p", "h200-host", "--set", "tokens_per_rank=128", "--repeats", "1")


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process; gives its exit code and all that it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def command(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["xstage-tune", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    return command


def everything_in(folder: Path) -> bytes:
    contents = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    return b"".join(gzip.decompress(one) if one.startswith(b"\x1f\x8b") else one for one in contents)


def test_no_output_of_any_command_holds_the_password(tmp_path: Path, run: Run, recording: Path) -> None:
    """An SQLite file may be named by a URL with a password too, so that no server is needed here."""
    store = ("--store", f"sqlite://user:{SECRET}@host/{tmp_path}/store.db?password={SECRET}")
    commands = [
        (
            "calibrate",
            "--device",
            f"replay:{recording}",
            "--out",
            "platform.toml",
            "--format",
            "json",
            *store,
        ),
        ("report", "--run", "latest", "-o", "calibration.html", *store),
        ("emulate", *SMALL, "--device", "simulator", *store),
        ("search", *SMALL[:6], "--trials", "3", *store),
        ("export", "-o", "config.json", *store),
        ("export", "--format", "header", "-o", "config.h", *store),
        ("report", "--study", "latest", "-o", "study.html", *store),
        ("report", "--run", "latest", "-o", "run.html", *store),
        ("platforms", "show", "platform.toml", "--format", "json"),
        ("trace", "--run", "latest", "-o", "trace.json.gz", *store),
        ("doctor", "--device", "replay", "--format", "json", *store),
        ("store", "path", *store),
        ("store", "info", *store),
        ("store", "list", "--format", "json", *store),
        ("store", "check", *store),
    ]
    said = ""
    for command in commands:
        code, told = run(*command)
        assert code == 0, (command, told)
        said += told
    assert HIDDEN in said
    assert SECRET not in said
    kept = everything_in(tmp_path)
    assert HIDDEN.encode() in kept
    assert SECRET.encode() not in kept


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{SECRET}@127.0.0.1:1/db",
        f"postgresql://127.0.0.1:1/db?user=me&password={SECRET}",
        f"postgresql://user:{SECRET}@127.0.0.1:port/db",
        f"postgresql://user:a@{SECRET}@127.0.0.1:1/db",
        f"postgresql://user:a b {SECRET}@127.0.0.1:1/db",
        f"mysql://user:{SECRET}@127.0.0.1/db",
        f"sqlite://user:{SECRET}@host",
    ],
)
def test_a_refused_url_is_shown_without_its_password(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, told = run("store", "info", "--store", url)
    _, path = run("store", "path", "--store", url)
    misplaced, usage = run("store", "info", url)
    monkeypatch.setenv("XSTAGE_STORE", url)
    by_variable, again = run("store", "info")
    assert (refused, misplaced, by_variable) == (4, 2, 4)
    assert SECRET not in told + path + usage + again


@given(
    user=st.text("abcxyz-_.%", max_size=8),
    password=st.text(
        st.characters(codec="utf-8", exclude_categories=("Zs", "Zl", "Zp", "Cc"), exclude_characters="@"),
    ),
)
def test_no_password_of_a_url_is_left_in_a_text(user: str, password: str) -> None:
    url = f"postgresql://{user}:{password}@host/db"
    (argument,) = redacted_arguments([url])
    assert argument == f"postgresql://{user}:{HIDDEN}@host/db"
    if not any(character.isspace() for character in password):
        assert redacted(f"store {url} is damaged") == f"store {argument} is damaged"


@pytest.mark.parametrize(
    "text",
    ["--set tokens=4096", "http://host:80/path", "see https://a.b/c and mail d@e.f", "--seed=3", "user@host"],
)
def test_what_holds_no_password_stays(text: str) -> None:
    assert redacted(text) == text


def test_errors_are_redacted_wherever_they_are_raised() -> None:
    error = StoreError(f"x://u:{SECRET}@h", f"password={SECRET}", [f"x://u:{SECRET}@h"])
    assert SECRET not in f"{error}{error.message}{error.hint}{error.others}"


def test_the_connection_itself_keeps_its_password() -> None:
    location = resolve_location(f"postgresql://user:{SECRET}@host/db")
    assert location.url.password == SECRET
    assert SECRET not in str(location)


def test_long_texts_without_an_end_take_no_time() -> None:
    """Each of these took minutes, or would have."""
    for text in ("://a:" * 20_000, "x" * 100_000 + "=", "password=" * 10_000, "a://" * 20_000):
        begun = time.process_time()
        redacted(text)
        redacted_arguments([text])
        assert time.process_time() - begun < 1
