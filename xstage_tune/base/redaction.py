"""Passwords do not leave the process: whatever is recorded or printed passes here first."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from xstage_tune.base.text import printable

#: What stands where a password stood.
HIDDEN = "***"

#: Up to the password of a URL; its last @ ends that: it may hold one, and hiding too much is no harm.
_BEFORE_PASSWORD = re.compile(r"://[^\s/?#:@]*+:")
#: ``password=...`` and ``sslpassword=...``, as PostgreSQL takes them in a URL and in a connection string.
_BY_NAME = re.compile(r"\b(\w*(?:password|secret)=)('(?:[^'\\]|\\.)*'|[^\s&]*)", re.IGNORECASE)


def redacted(text: str) -> str:
    """A text without the passwords in it: those of URLs, and what ``password=`` names."""
    if "://" not in text and "=" not in text:
        return text
    without = re.sub(r"\S+", lambda word: _without_password(word[0]), text)
    return _BY_NAME.sub(rf"\g<1>{HIDDEN}", without)


def _without_password(url: str) -> str:
    """A text without the password of the first URL in it."""
    before, end = _BEFORE_PASSWORD.search(url), url.rfind("@")
    if before is None or end < before.end():
        return url
    return f"{url[: before.end()]}{HIDDEN}{url[end:]}"


def redacted_arguments(arguments: Iterable[str]) -> tuple[str, ...]:
    """A command line without passwords, each argument on its own: one may hold spaces.

    All of it is text that prints: the name of a file may have any bytes.
    """
    return tuple(printable(redacted(_without_password(one))) for one in arguments)


def command_line() -> tuple[str, ...]:
    """How this program was called, as it is recorded."""
    return ("xstage-tune", *redacted_arguments(sys.argv[1:]))
