"""What typer says of options that it cannot take, as the tool says all else: what, where, what to do."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from xstage_tune.base.errors import UsageError
from xstage_tune.base.redaction import redacted_arguments

#: Of the click that typer brings along, which it exports under no name.
_UsageError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "UsageError")
#: How its messages are worded, and how ours are.
_WORDS = (
    (r"^Invalid value for '([^']+)'(?: / '[^']+')*: ", r"\1: "),
    (r"Input should be a valid integer", "should be a whole number"),
    (r"Input should be a valid ", "should be a "),
    (r", unable to parse string as .*$", ""),
    (r"\bInput should be ", "should be "),
    (r"\bValue error, ", ""),
    (r"^Missing (option|argument) ", r"missing \1 "),
    (r"^No such (option|command):? ", r"no \1 "),
    (r"\. Did you mean ", "; did you mean "),
    (r"\((?:Possible options|Did you mean):? ", "(did you mean "),
)


@contextmanager
def own_words() -> Iterator[None]:
    """Raise the tool's own error for what typer refuses on the command line, without passwords.

    Raises:
        UsageError: with the message in one line; the hint names the help of that command.
    """
    try:
        yield
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # it is the help
            raise
        for given in sys.argv[1:]:
            error.message = error.message.replace(given, *redacted_arguments([given]))
        names: list[str] = []
        context = error.ctx
        while context is not None and context.parent is not None:  # the root is the program, however called
            names.insert(0, context.info_name)
            context = context.parent
        text = " ".join(error.format_message().split()).removesuffix(".")
        for theirs, ours in _WORDS:
            text = re.sub(theirs, ours, text)
        where = f"{' '.join(names)}: " if names else ""
        help_of_it = " ".join(("xstage-tune", *names, "-h"))
        raise UsageError(f"{where}{text[0].lower()}{text[1:]}", help_of_it) from None
