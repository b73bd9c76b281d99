"""``--help`` of every command: whole at 80 columns, in a pipe and a terminal, with examples that parse."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.conftest import RunCli
from tests.terminal import in_terminal
from xstage_tune.commands._app import app

pytestmark = pytest.mark.usefixtures("own_store")
WIDTH = 80


def commands(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *path, name)


COMMANDS = dict(commands(typer.main.get_command(app)))


def option_names(command: Any) -> list[str]:
    return [
        name for one in command.params for name in (*one.opts, *one.secondary_opts) if name.startswith("-")
    ]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_whole_at_80_columns(run_cli: RunCli, path: tuple[str, ...], option: str) -> None:
    code, out, err = run_cli(*path, option)
    assert (code, err) == (0, "")
    for name in (*option_names(COMMANDS[path]), "-h", "--help"):
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", out)
    assert not re.search(r"\w\.\.\.|…", out)
    assert [line for line in out.splitlines() if len(line) > WIDTH and " " in line.strip()] == []


@pytest.mark.parametrize("path", [(), ("emulate",), ("search",), ("workloads", "new")], ids=" ".join)
def test_a_narrow_terminal_shows_the_same_as_a_pipe(run_cli: RunCli, path: tuple[str, ...]) -> None:
    shown = [in_terminal((*path, "-h"), WIDTH), run_cli(*path, "-h").stdout]
    terminal, pipe = (text.split("\n", 1)[1] for text in shown)  # the first line has the program's own name
    assert terminal == pipe


@pytest.mark.parametrize("path", [path for path in COMMANDS if path], ids=" ".join)
def test_examples_are_commands_that_parse(run_cli: RunCli, path: tuple[str, ...]) -> None:
    shown = run_cli(*path, "--help").stdout.partition("Examples:\n")[2]
    examples = re.findall(r"xstage-tune ([^)\n]*)", shown.partition("\n\n")[0])
    assert len(examples) >= 2
    for example in examples:
        context, words = typer.main.get_command(app), shlex.split(example.rstrip('"'))
        assert tuple(words[: len(path)]) == path
        parsed = context.make_context("xstage-tune", list(words))
        while (rest := [*parsed._protected_args, *parsed.args]) and hasattr(parsed.command, "commands"):
            name, inner, left = parsed.command.resolve_command(parsed, rest)
            parsed = inner.make_context(name, left, parent=parsed)


@pytest.mark.parametrize("path", [(), ("workloads",), ("platforms",)], ids=" ".join)
def test_the_folders_of_ones_own_files_are_told(
    run_cli: RunCli, own_store: Path, path: tuple[str, ...]
) -> None:
    data = own_store.parent / "data" / "xstage-tune"
    lines = [line.strip() for line in run_cli(*path, "--help").stdout.splitlines()]
    assert {str(data / "workloads"), str(data / "platforms")} <= set(lines)
