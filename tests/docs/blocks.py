"""Fenced blocks of a Markdown page, and what is to be done with each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
#: Above a fence: it cannot run here.
NOT_RUN = "<!-- needs a GPU -->"


@dataclass(frozen=True, slots=True)
class Block:
    """A fence: ``console`` and ``python`` run, ``toml`` that begins with a file's name is that file."""

    page: Path
    line: int
    language: str
    text: str
    runs: bool

    @property
    def file(self) -> str | None:
        """The name in the first line of a TOML block, a comment."""
        first = self.text.splitlines()[0]
        return first.removeprefix("# ") if self.language == "toml" and first.endswith(".toml") else None

    def commands(self) -> list[tuple[str, str]]:
        """(command, printed text below it) of a console block."""
        found: list[tuple[str, str]] = []
        lines = self.text.splitlines()
        while lines:
            line = lines.pop(0)
            if not line.startswith("$ "):
                raise ValueError(f"{self.page}:{self.line}: not a command: {line}")
            command = line[2:]
            while command.endswith("\\"):
                command = command[:-1] + lines.pop(0).lstrip("> ")
            printed = []
            while lines and not lines[0].startswith("$ "):
                printed.append(lines.pop(0))
            found.append((command, "\n".join(printed)))
        return found


def pages() -> list[Path]:
    """The README and every page of the documents."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The fences of a page, in order."""
    found: list[Block] = []
    before = ""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "fence":
            line = token.map[0] + 1 if token.map else 0
            found.append(Block(page, line, token.info.strip(), token.content, before != NOT_RUN))
        if token.type in ("fence", "html_block", "paragraph_open", "heading_open"):
            before = token.content.strip()
    return found


def code_spans(page: Path) -> list[str]:
    """What of a page's text is set as code."""
    tokens = MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8"))
    return [
        child.content for token in tokens for child in token.children or () if child.type == "code_inline"
    ]
