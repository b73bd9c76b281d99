"""Checks that need no GPU: packages, compiler and its cache, store, profiles, recordings."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from xstage_tune.base.errors import DeviceError, XStageError
from xstage_tune.base.provenance import Software
from xstage_tune.base.user_folders import nearest_existing
from xstage_tune.cuda.cache import cache_folder
from xstage_tune.cuda.compiler import compile_kernel
from xstage_tune.cuda.variants import VERIFY
from xstage_tune.doctor.report import Check
from xstage_tune.families.workload_files import list_workloads, load_workload
from xstage_tune.launches.recording import Recording, shipped_recordings
from xstage_tune.platforms.loader import list_platforms, load_platform
from xstage_tune.store.facade import Store
from xstage_tune.store.location import resolve_location

#: Checks of the recordings of each command.
_RECORDINGS = {"calibrate": "recording", "emulate": "emulation", "profile": "profile"}
_CUDA_PACKAGES = ("cuda-bindings", "cuda-core")
_INSTALL_CUDA = "to run on a GPU: pip install 'xstage-tune[cuda]'"


def check_packages(software: Software) -> Iterator[Check]:
    """Versions of Python and of the packages that results depend on."""
    versions = ", ".join(f"{name} {version}" for name, version in software.packages.items())
    missing = [name for name in _CUDA_PACKAGES if name not in software.packages]
    seen = f"xstage-tune {software.tool_version}, Python {software.python}, {versions}"
    if missing:
        yield Check("packages", "warn", f"{seen}; without {', '.join(missing)}", _INSTALL_CUDA)
    else:
        yield Check("packages", "ok", seen)


def check_compiler(architecture: str) -> Iterator[Check]:
    """Compile one kernel, outside the cache."""
    try:
        kernel = compile_kernel(VERIFY.source, architecture, VERIFY.defines, VERIFY.names)
    except DeviceError as error:
        yield Check("compiler", "not-run", error.message, error.hint)
        return
    seen = f"{kernel.compiler} compiled {kernel.source} for {architecture}: {len(kernel.cubin)} bytes"
    yield Check("compiler", "ok", seen)


def check_kernel_cache() -> Iterator[Check]:
    """Whether compiled kernels can be kept."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder):
            pass
        kept = sum(1 for _ in folder.rglob("*.kernel"))
    except OSError as error:
        yield Check(
            "kernel-cache",
            "warn",
            f"{folder} cannot be written ({error.strerror}): kernels are compiled anew each time",
            "set XSTAGE_CACHE_DIR to a writable folder",
        )
    else:
        yield Check("kernel-cache", "ok", f"{folder}, {kept} kernels kept")


def check_store(location: str | Path | None) -> Iterator[Check]:
    """Whether the store is whole, or can be made. A store that does not exist yet is not made."""
    try:
        resolved = resolve_location(location)
        if resolved.path is not None and not resolved.path.exists():
            yield _new_store(resolved.path)
            return
        with Store.open(location) as store:
            report = store.check()
    except XStageError as error:
        yield Check("store", "fail", error.message, error.hint)
        return
    if report.problems:
        more = f" and {len(report.problems) - 1} more" if len(report.problems) > 1 else ""
        seen = f"{report.location} is damaged: {report.problems[0]}{more}"
        yield Check("store", "fail", seen, "xstage-tune store check lists all damage")
    else:
        yield Check(
            "store", "ok", f"{report.location}: {report.launches} launches, {report.chunks} chunks, all whole"
        )


def _new_store(path: Path) -> Check:
    folder = nearest_existing(path.parent)
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Check("store", "ok", f"none yet at {path}; the first run makes it")
    return Check(
        "store", "fail", f"{folder} cannot be written, so no store can be made at {path}", "--store FILE"
    )


def check_profiles() -> Iterator[Check]:
    """Whether every platform and workload profile, shipped or the user's own, loads."""
    yield _profiles("platforms", list_platforms(), load_platform)
    yield _profiles("workloads", list_workloads(), load_workload)


def _profiles(name: str, found: Iterable[str], load: Callable[[str], object]) -> Check:
    names = list(found)
    broken: list[XStageError] = []
    for profile in names:
        try:
            load(profile)
        except XStageError as error:
            broken.append(error)
    if broken:
        return Check(
            name, "fail", f"{len(broken)} of {len(names)} do not load: {broken[0].message}", broken[0].hint
        )
    return Check(name, "ok", f"{len(names)} load")


def check_recordings() -> Iterator[Check]:
    """Whether every launch of every shipped calibration, emulation and profile run can be read."""
    if not shipped_recordings("calibrate"):
        yield Check("recordings", "warn", "none is shipped", "pip install --force-reinstall xstage-tune")
    for command, name in _RECORDINGS.items():
        for file in shipped_recordings(command):
            yield _recording(f"{name}.{file.stem}", file, command)


def _recording(name: str, file: Path, command: str) -> Check:
    """Whether a recording is whole."""
    try:
        recording = Recording(file, command)
        launches = len(recording.manifest.launches)
        for number in range(launches):
            recording.check(number)
        recording.close()
    except XStageError as error:
        return Check(name, "fail", error.message, error.hint)
    size = file.stat().st_size
    return Check(name, "ok", f"{launches} launches, {recording.manifest.identity}, {size} bytes, all whole")
