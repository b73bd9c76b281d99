"""Folders of a user's own: data and caches, also where no home folder is known or it cannot be written.

Containers often run as a user without passwd entry and without ``HOME``, or with a ``HOME`` that belongs to
someone else. A private folder below the temporary one takes its place then, the same for all commands of a
user, and whoever writes there says so.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import platformdirs

from xstage_tune.base.errors import UsageError

_LOG = logging.getLogger(__name__)
_APP = "xstage-tune"
_NAME_ANOTHER = "set HOME, or XDG_DATA_HOME and XDG_CACHE_HOME, to folders that you may write"


def data_folder(*, to_write: bool = False) -> Path:
    """Folder of the user's store, platforms and workloads; it may not exist.

    Args:
        to_write: something will be kept there, so say where that is if it is not the usual place.

    Raises:
        UsageError: there is no usual place, and none below the temporary folder either.
    """
    path = _usual(platformdirs.user_data_path)
    if path is not None and (path.is_dir() or _can_be_made(path)):
        return path
    return _instead_of(path, say=to_write) / "data"


def cache_folder() -> Path:
    """Folder of what can be made again: ``$XSTAGE_CACHE_DIR``, else the user's cache folder.

    Raises:
        UsageError: as :func:`data_folder`.
    """
    if chosen := os.environ.get("XSTAGE_CACHE_DIR"):
        return Path(chosen)
    path = _usual(platformdirs.user_cache_path)
    if path is not None and _can_be_made(path):
        return path
    return _instead_of(path, say=True) / "cache"


def expanded(path: Path) -> Path:
    """A path that a user gave, its ``~`` replaced.

    Raises:
        UsageError: it begins with the ``~`` of no user, or with ``~`` and no home folder is known.
    """
    try:
        return path.expanduser()
    except RuntimeError:
        home = path.parts[0]
        reason = "no home folder is known" if home == "~" else "there is no such user"
        raise UsageError(f"{path}: {reason}", f"write out the folder that {home} stands for") from None


def nearest_existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that can be seen."""
    places = (path, *path.absolute().parents)
    return next(place for place in places if os.path.exists(place))  # noqa: PTH110 - Path's may be refused


def _usual(find: Callable[[str], Path]) -> Path | None:
    """Where such folders are by custom; None where that is below a home folder that is not known."""
    try:
        path = find(_APP)
    except RuntimeError:
        return None
    return None if path.parts[:1] == ("~",) else path  # older platformdirs do not raise


def _can_be_made(path: Path) -> bool:
    """Whether the folder, or else the nearest above it that there is, can be written."""
    nearest = nearest_existing(path)
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK, effective_ids=True)


def _instead_of(usual: Path | None, *, say: bool) -> Path:
    """A folder that this user alone can write, below the temporary folder."""
    reason = "no home folder is known" if usual is None else f"{usual} cannot be written"
    try:
        path = Path(tempfile.gettempdir()) / f"{_APP}-{os.geteuid()}"
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise UsageError(f"{reason}, and no temporary folder either: {error}", _NAME_ANOTHER) from None
    # Others may have been here first: the name is no secret, and everyone may write the temporary folder.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise UsageError(f"{reason}, and others can write {path}, which would replace it", _NAME_ANOTHER)
    if say:
        _say(reason, path)
    return path


@cache
def _say(reason: str, path: Path) -> None:
    """Once a process."""
    _LOG.warning("%s: what is kept goes to %s; to have it elsewhere, %s", reason, path, _NAME_ANOTHER)
