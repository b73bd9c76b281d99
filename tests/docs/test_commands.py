"""What the documents say to type works, and prints what they show."""

from __future__ import annotations

import doctest
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from tests.docs.blocks import ROOT, Block, blocks, code_spans, pages
from tests.once import made_once
from tests.processes import start_command
from xstage_tune.base.user_folders import cache_folder
from xstage_tune.commands._app import app

PAGES = {str(page.relative_to(ROOT)): page for page in pages()}
#: Of runs and studies: the time at which they began, and some digits.
_ID = re.compile(r"\b([a-z]{3})-\d{8}-\d{6}-[0-9a-f]{6}\b")
#: What the shell does not just hand on.
_SHELL = re.compile(r"[|&;<>$`*?~#(){}]")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def does_something(block: Block) -> bool:
    """Whether a block is to be run, or written to a file."""
    return block.runs and (block.language in ("console", "python") or block.file is not None)


@pytest.mark.parametrize("name", [name for name in PAGES if any(map(does_something, blocks(PAGES[name])))])
def test_a_page_runs_from_top_to_bottom_and_prints_what_it_shows(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    user = NewUser(tmp_path / "home", tmp_path_factory)
    for block in filter(does_something, blocks(PAGES[name])):
        where = f"{name}:{block.line}"
        if block.file is not None:
            user.write(block.file, block.text)
        elif block.language == "python":
            user.run(python(block), where)
        else:
            for command, shown in block.commands():
                printed = user.run(shell(command), where)
                if shown:
                    assert_shown(shown, printed, f"{where}: {command}")


def python(block: Block) -> list[str]:
    return [sys.executable, "-c", block.text]


def shell(command: str) -> list[str]:
    return ["bash", "-c", command]


def of_several_pages() -> set[str]:
    """Commands and programs that more than one page has."""
    count: Counter[str] = Counter()
    for page in PAGES.values():
        found = list(filter(does_something, blocks(page)))
        consoles = [block.commands() for block in found if block.language == "console"]
        typed = {command for commands in consoles for command, _ in commands}
        count.update(typed | {block.text for block in found if block.language == "python"})
    return {text for text, pages_with_it in count.items() if pages_with_it > 1}


OF_SEVERAL_PAGES = of_several_pages()


class NewUser:
    """Does what a page says, in folders in which nothing was done before.

    What several pages have the same user do in the same folders is done once: each gets what that printed,
    and a copy of the folders that it left.
    """

    def __init__(self, home: Path, factory: pytest.TempPathFactory) -> None:
        self._home, self._factory = home, factory
        (home / "work").mkdir(parents=True)
        #: Names what was done that left something; None where no other page does the same.
        self._done: str | None = ""

    def write(self, name: str, text: str) -> None:
        (self._home / "work" / name).write_text(text, encoding="utf-8")
        self._done = None

    def run(self, command: list[str], where: str) -> str:
        """What the command prints on stdout."""
        if self._done is None or command[-1] not in OF_SEVERAL_PAGES:
            before = self._files()
            printed = run(command, self._home, where)
            if self._files() != before:
                self._done = None
            return printed
        self._done = hashlib.sha256(f"{self._done}\n{command[-1]}".encode()).hexdigest()
        with made_once(self._factory, self._done) as shared:
            home, output = shared / "home", shared / "output"
            if not output.exists():
                shutil.rmtree(home, ignore_errors=True)  # of one that failed
                shutil.copytree(self._home, home)
                output.write_text(run(command, home, where), encoding="utf-8")
        shutil.rmtree(self._home)
        shutil.copytree(home, self._home)
        return output.read_text(encoding="utf-8")

    def _files(self) -> dict[Path, int]:
        """When each was written."""
        return {path: path.stat().st_mtime_ns for path in self._home.rglob("*")}


def fresh_environment(home: Path) -> dict[str, str]:
    """A new user's, who has the tool on the path; what is compiled once stays where it is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XSTAGE_")}
    return kept | {
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / "data"),
        "XSTAGE_CACHE_DIR": str(cache_folder()),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
    }


def run(command: list[str], home: Path, where: str) -> str:
    """What the command of a user prints on stdout; it must end well."""
    environment, at = fresh_environment(home), home / "work"
    words = shlex.split(command[-1]) if command[0] == "bash" and not _SHELL.search(command[-1]) else []
    if words[:1] == ["xstage-tune"]:  # by nothing of the shell's: where all is imported already
        started = start_command(home.parent, *words[1:], at=at, environment=environment)
        stdout, stderr = started.communicate(300)
        code = started.returncode
    else:
        ended = subprocess.run(command, cwd=at, env=environment, capture_output=True, text=True, check=False)
        code, stdout, stderr = ended.returncode, ended.stdout, ended.stderr
    assert code == 0, f"{where}: {command[-1]}\n{stderr}"
    return stdout


def assert_shown(shown: str, printed: str, where: str) -> None:
    """Line by line, blanks at the ends and ids aside; ``...`` in what is shown stands for anything."""
    shown, printed = (_ID.sub(r"\1-ID", text) for text in (shown, printed))
    want, got = (
        "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines()) for text in (shown, printed)
    )
    checker = doctest.OutputChecker()
    if not checker.check_output(want, got, doctest.ELLIPSIS):
        flags = doctest.ELLIPSIS | doctest.REPORT_NDIFF
        difference = checker.output_difference(doctest.Example("", want), got, flags)
        pytest.fail(f"{where} prints something else\n{difference}", pytrace=False)


def options() -> dict[tuple[str, ...], set[str]]:
    """Every command's options, by its words."""

    def walk(
        command: typer.core.TyperCommand | typer.core.TyperGroup, words: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], set[str]]]:
        own = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        yield words, own | {"--help", "-h"}
        for name, child in getattr(command, "commands", {}).items():
            yield from walk(child, (*words, name))

    return dict(walk(typer.main.get_command(app), ()))


OPTIONS = options()


@pytest.mark.parametrize("name", PAGES)
def test_options_that_a_page_names_exist(name: str) -> None:
    known = set().union(*OPTIONS.values())
    for span in code_spans(PAGES[name]):
        if span.startswith(("-", "xstage-tune")):
            assert not set(_OPTION.findall(span)) - known, span
    for line in typed(PAGES[name]):
        for words in invocations(line):
            command = max((path for path in OPTIONS if tuple(words[: len(path)]) == path), key=len)
            given = {word.partition("=")[0] for word in words if _OPTION.match(word)}
            assert not given - OPTIONS[command], line


def typed(page: Path) -> Iterator[str]:
    """Every line of shell that a page gives, whether it runs here or not."""
    for block in blocks(page):
        if block.language == "console":
            yield from (command for command, _ in block.commands())
        elif block.language == "sh":
            yield from block.text.splitlines()


def invocations(line: str) -> Iterator[list[str]]:
    """Words behind each ``xstage-tune`` of a line of shell."""
    for part in re.split(r"&&|;|\||>", line):
        words = shlex.split(part, comments=True)
        for place, word in enumerate(words):
            if Path(word).name == "xstage-tune":
                yield words[place + 1 :]
