"""Fixtures that every area uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from xstage_tune import cli


class CliResult(NamedTuple):
    """How a command ended and what it wrote."""

    exit_code: int
    stdout: str
    stderr: str


RunCli = Callable[..., CliResult]


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
