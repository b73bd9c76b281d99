"""Kernel sources: where they are, which headers they include, and the hash that identifies them."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path

from xstage_tune.base.assets import data_dir
from xstage_tune.base.errors import XStageError
from xstage_tune.families.attention_a2a.family import FAMILY

#: The fused kernels, and what an emulation runs in place of one.
ATTENTION_SOURCE = FAMILY.kernel_source
MEGAMOE_SOURCE = "megamoe/megamoe.cu"
SKELETON_SOURCE = "emulation/skeleton.cu"

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def kernels_root() -> Path:
    """Folder of the shipped kernels, which is also the include root."""
    return data_dir("kernels")


def read_sources(source: str, root: Path) -> dict[str, bytes]:
    """The file ``source`` and every header below ``root`` that it includes, by path relative to ``root``.

    Follows ``#include "..."`` whatever ``#if`` it is under: a superset of what one set of macros uses.
    A header that is not below ``root`` is the compiler's own, and changes with the compiler's version.

    Raises:
        XStageError: ``source`` cannot be read.
    """
    root = root.resolve()
    try:
        found = {source: (root / source).read_bytes()}
    except OSError as error:
        raise XStageError(
            f"kernel source {source} cannot be read from {root}: {error.strerror}",
            "reinstall: pip install --force-reinstall xstage-tune",
        ) from None
    pending = [source]
    while pending:
        including = pending.pop()
        for match in _INCLUDE.finditer(found[including]):
            header = _resolve(match[1].decode(), including, root)
            if header and header not in found:
                found[header] = (root / header).read_bytes()
                pending.append(header)
    return dict(sorted(found.items()))


def hash_sources(sources: dict[str, bytes]) -> str:
    """SHA-256 over names and contents of the sources of one kernel."""
    digest = hashlib.sha256()
    for name, content in sources.items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


@lru_cache
def installed_sha256(*kernels: str) -> str:
    """Hash of all sources of these installed kernels together, read once in a process; empty for none.

    To find a kernel's forty headers takes 20 ms, and a search asks for several hundred kernels.

    Raises:
        XStageError: a source cannot be read.
    """
    root = kernels_root()
    sources = {name: content for kernel in kernels for name, content in read_sources(kernel, root).items()}
    return hash_sources(dict(sorted(sources.items()))) if sources else ""


def _resolve(header: str, including: str, root: Path) -> str | None:
    """``header`` relative to ``root``: beside the including file first, as the compiler looks it up."""
    for folder in ((root / including).parent, root):
        path = (folder / header).resolve()
        if path.is_file() and path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return None
