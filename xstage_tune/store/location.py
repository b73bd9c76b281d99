"""Where a store is: an SQLite file or a database URL, and what its file system can do."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from xstage_tune.base.errors import StoreError, UsageError
from xstage_tune.base.redaction import redacted
from xstage_tune.base.user_folders import data_folder, expanded

LOCATION_VARIABLE = "XSTAGE_STORE"

#: File systems whose locks and shared memory cannot carry SQLite's write-ahead log.
_NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs"}
    | {"fuse.sshfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"}
)
_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}


@dataclass(frozen=True, slots=True)
class Location:
    """A store's address; as text, without the password, and printable whatever bytes a path has."""

    url: URL
    path: Path | None  # of the SQLite file; None for a server

    def __str__(self) -> str:
        if self.path is None:
            return redacted(self.url.render_as_string(hide_password=True))
        return os.fsencode(self.path).decode(errors="backslashreplace")


def default_path() -> Path:
    """The user's own store."""
    return data_folder(to_write=True) / "store.db"


def resolve_location(location: str | Path | None) -> Location:
    """Turn a path or URL into a location; None means ``$XSTAGE_STORE``, else the default path.

    Raises:
        StoreError: the URL is malformed, or names neither an SQLite file nor PostgreSQL; or the path begins
            with the ``~`` of no user.
    """
    chosen = str(location or os.environ.get(LOCATION_VARIABLE) or default_path())
    if "://" not in chosen:
        return file_location(Path(chosen))
    if _AT_SIGN.search(chosen):  # the part behind it would be taken for the host, and shown
        raise StoreError(
            "store URL cannot be read: an @ in a user's name or password is written %40", _URL_HINT
        )
    try:
        url = make_url(chosen)
    except (ArgumentError, ValueError):  # what they say may hold a part of the password
        raise StoreError(
            "store URL cannot be read: it should be postgresql://USER@HOST:PORT/DATABASE, the port a number",
            _URL_HINT,
        ) from None
    backend = url.get_backend_name()
    if backend not in _DRIVERS:
        raise StoreError(f"store URL names '{backend}', which is not supported", _URL_HINT)
    if backend != "sqlite":
        return Location(url.set(drivername=_DRIVERS[backend]), None)
    if url.database in (None, "", ":memory:"):
        raise StoreError(f"store URL {chosen} names no file", _URL_HINT)
    return file_location(Path(str(url.database)))


_URL_HINT = "--store PATH, or --store postgresql://USER@HOST/DATABASE and the password in ~/.pgpass"
#: More than one in the part of a URL before its path.
_AT_SIGN = re.compile(r"^[^/]*://[^/?#]*@[^/?#]*@")


def file_location(path: Path) -> Location:
    """Address of an SQLite file.

    Raises:
        StoreError: the path begins with the ``~`` of no user.
    """
    try:
        path = expanded(path).absolute()
    except UsageError as error:
        raise StoreError(f"store {error.message}", "--store PATH") from None
    return Location(URL.create(_DRIVERS["sqlite"], database=str(path)), path)


def network_file_system(path: Path) -> str | None:
    """Type of the network file system that ``path`` is on; None when it is local or unknown."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    kind = _file_system_type(path.resolve(), mounts)
    return kind if kind in _NETWORK_FILE_SYSTEMS else None


def _file_system_type(path: Path, mountinfo: str) -> str:
    """File system type of the innermost mount that holds ``path`` (format of proc(5) mountinfo)."""
    innermost, kind = Path("/"), ""
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), mount.split(" ")[4]))
        if path.is_relative_to(point) and len(point.parts) >= len(innermost.parts):
            innermost, kind = point, source.split(" ")[0]
    return kind
