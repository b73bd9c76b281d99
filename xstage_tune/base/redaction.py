"""Passwords do not leave the process: whatever is recorded or printed passes here first."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from xstage_tune.base.text import printable

#: What stands where a password stood.
HIDDEN = "***"

# To the last @: a password may hold one, and hiding too much is no harm.
_IN_URL = re.compile(r"([a-z][a-z0-9+.-]*://[^\s/?#:@]*):\S*@", re.IGNORECASE)
_IN_URL_ARGUMENT = re.compile(_IN_URL.pattern.replace(r"\S", "."), re.IGNORECASE | re.DOTALL)
#: ``password=...`` and ``sslpassword=...``, as PostgreSQL takes them in a URL and in a connection string.
_BY_NAME = re.compile(r"\b(\w*(?:password|secret)=)('(?:[^'\\]|\\.)*'|[^\s&]*)", re.IGNORECASE)


def redacted(text: str) -> str:
    """A text without the passwords in it: those of URLs, and what ``password=`` names."""
    if "://" not in text and "=" not in text:
        return text
    return _BY_NAME.sub(rf"\g<1>{HIDDEN}", _IN_URL.sub(rf"\g<1>:{HIDDEN}@", text))


def redacted_arguments(arguments: Iterable[str]) -> tuple[str, ...]:
    """A command line without passwords, each argument on its own: one may hold spaces.

    All of it is text that prints: the name of a file may have any bytes.
    """
    return tuple(printable(redacted(_IN_URL_ARGUMENT.sub(rf"\g<1>:{HIDDEN}@", one))) for one in arguments)


def command_line() -> tuple[str, ...]:
    """How this program was called, as it is recorded."""
    return ("xstage-tune", *redacted_arguments(sys.argv[1:]))
