"""Writing a user's file: whole or not at all, and never over another one unasked."""

from __future__ import annotations

import os
from pathlib import Path

from xstage_tune.errors import UsageError


def refuse_existing(path: Path, force: bool) -> None:
    """Refuse a target that exists, unless it may be replaced.

    Raises:
        UsageError: it exists and ``force`` is not set.
    """
    if path.exists() and not force:
        raise UsageError(f"{path} exists", "choose another file, or replace it with --force")


def write_text(path: Path, text: str, *, force: bool = False) -> None:
    """Write a file beside its name and rename it there; its folder is made.

    Raises:
        UsageError: the file exists and ``force`` is not set, or it cannot be written (a full disk, say).
    """
    refuse_existing(path, force)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "choose another place") from None
