"""Disk cache of compiled kernels, shared by all processes of a user.

One file an entry: a line with the hash of the rest, a line of JSON, the cubin. It is written in a temporary
folder and renamed into place, so that a reader sees a whole entry or none, however many processes write.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from xstage_tune.base import user_folders
from xstage_tune.cuda.compiler import (
    CompiledKernel,
    compile_kernel,
    compiler_options,
    compiler_version,
)
from xstage_tune.cuda.compiler_log import KernelEntry
from xstage_tune.cuda.sources import hash_sources, installed_sha256, read_sources

_LOG = logging.getLogger(__name__)
#: Part of every key: raise it when the format of an entry changes.
_FORMAT = 1


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    return user_folders.cache_folder() / "kernels"


def cached_kernel(
    source: str,
    architecture: str,
    defines: Mapping[str, int | str],
    names: Sequence[str],
    root: Path | None = None,
) -> CompiledKernel:
    """:func:`~xstage_tune.cuda.compiler.compile_kernel`, from the cache where it has the kernel.

    A damaged entry is compiled again. Where the cache cannot be written, a warning is logged and the kernel
    returned all the same.

    Raises:
        As ``compile_kernel``.
    """
    sha256 = _sources_sha256(source, root)
    path = _entry(cache_key(source, architecture, defines, names, sha256))
    kernel = _load(path)
    if kernel is None:
        kernel = compile_kernel(source, architecture, defines, names, root)
        if kernel.sha256 == sha256:  # else somebody has edited the sources since
            _store(kernel, path)
    return kernel


def is_cached(
    source: str,
    architecture: str,
    defines: Mapping[str, int | str],
    names: Sequence[str],
    root: Path | None = None,
) -> bool:
    """Whether the cache has an entry, damaged or not, of what :func:`cached_kernel` would return."""
    return _entry(cache_key(source, architecture, defines, names, _sources_sha256(source, root))).exists()


def _sources_sha256(source: str, root: Path | None) -> str:
    return installed_sha256(source) if root is None else hash_sources(read_sources(source, root))


def _entry(key: str) -> Path:
    return cache_folder() / key[:2] / f"{key}.kernel"


def cache_key(
    source: str, architecture: str, defines: Mapping[str, int | str], names: Sequence[str], sha256: str
) -> str:
    """Hash of all that the compiled bytes depend on: sources, options, kernel names and compiler.

    Args:
        sha256: of the sources.

    Raises:
        DeviceError: NVRTC is not installed.
    """
    parts = {
        "format": _FORMAT,
        "source": source,
        "sources_sha256": sha256,
        "options": compiler_options(architecture, defines),
        "names": list(names),
        "compiler": compiler_version(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _load(path: Path) -> CompiledKernel | None:
    """The entry at ``path``; None where there is none, or a damaged one."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        _LOG.warning("kernel cache entry %s cannot be read (%s); compiling", path, error.strerror)
        return None
    digest, _, body = data.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        _LOG.warning("kernel cache entry %s is damaged; compiling again", path)
        return None
    header, _, cubin = body.partition(b"\n")
    return _decode(header, cubin)


def _store(kernel: CompiledKernel, path: Path) -> None:
    values = asdict(kernel)
    cubin = values.pop("cubin")
    body = json.dumps(values).encode() + b"\n" + cubin
    entry = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="writing-") as folder:
            written = Path(folder) / path.name
            written.write_bytes(entry)
            written.replace(path)
    except OSError as error:
        _LOG.warning(
            "compiled kernels cannot be kept in %s (%s); set XSTAGE_CACHE_DIR to a writable folder",
            cache_folder(),
            error.strerror,
        )


def _decode(header: bytes, cubin: bytes) -> CompiledKernel:
    values = json.loads(header)
    entries = {name: KernelEntry(**entry) for name, entry in values["entries"].items()}
    lists = {key: tuple(values[key]) for key in ("options", "warnings")}
    return CompiledKernel(**(values | lists | {"cubin": cubin, "entries": entries}))
