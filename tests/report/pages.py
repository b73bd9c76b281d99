"""Reads HTML pages in tests."""

from __future__ import annotations

from html.parser import HTMLParser

from xstage_tune.report.typeset import typeset


class Page(HTMLParser):
    """Checks nesting, and collects text and the values of attributes that fetch."""

    VOID = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.parts: list[str] = []
        self.feed(text)
        assert self.open == []

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def plain(text: str) -> str:
    """``text`` as a page prints it, without its markup."""
    return "".join(piece for piece, _ in typeset(text))
