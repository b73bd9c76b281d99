"""Kernels to cubin with NVRTC, on any machine: no GPU, driver or CUDA toolkit is needed."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import ClassVar, NoReturn

from xstage_tune.base.errors import DeviceError, ExitCode, Fault, UsageError, XStageError
from xstage_tune.base.user_folders import cache_folder
from xstage_tune.cuda.compiler_log import KernelEntry, first_error, parse_entries, parse_warnings
from xstage_tune.cuda.sources import hash_sources, kernels_root, read_sources

_ARCHITECTURE = re.compile(r"sm_\d{2,3}[af]?")
_MACRO = re.compile(r"[A-Za-z_]\w*")
_STANDARD = "c++17"
#: Report resources, and spills also as warnings.
_ASSEMBLER_OPTIONS = ("-v", "--warn-on-spills")


class KernelCompileError(XStageError):
    """A kernel's source does not compile (exit 5: the kernels are ours)."""

    exit_code: ClassVar[ExitCode] = ExitCode.INTERNAL
    fault: ClassVar[Fault] = "compile"


class UnusableKernelError(UsageError):
    """A variant compiles to a kernel that is right but slow: it spills, or its products are serialised."""

    fault: ClassVar[Fault] = "unusable"


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A compiled file of kernels.

    Args:
        source: path below the kernels folder.
        architecture: e.g. ``sm_90a``; the cubin runs on no other major architecture.
        options: compiler options, macros included.
        compiler: name and version.
        sha256: of the source and every header it includes.
        cubin: machine code in an ELF file.
        entries: by the name asked for.
        warnings: one line each; spills and serialised wgmma (C7510, C7517) are among them.
    """

    source: str
    architecture: str
    options: tuple[str, ...]
    compiler: str
    sha256: str
    cubin: bytes
    entries: dict[str, KernelEntry]
    warnings: tuple[str, ...]


def compile_kernel(
    source: str,
    architecture: str,
    defines: Mapping[str, int | str],
    names: Sequence[str],
    root: Path | None = None,
) -> CompiledKernel:
    """Compile one file.

    Args:
        source: path below ``root``, e.g. ``calibration/bursts.cu``.
        architecture: ``sm_90a``, ...
        defines: macros, the file's tuning knobs.
        names: its kernels to keep: a name, or an instantiation such as ``copy<4>``.
        root: folder of the kernels and root of their includes; the shipped one by default.

    Raises:
        KernelCompileError: the source does not compile; the message is the first error.
        DeviceError: NVRTC is not installed, or does not know ``architecture``.
        UsageError: ``architecture`` or the name of a macro is malformed.
    """
    root = (root or kernels_root()).resolve()
    sources = read_sources(source, root)
    options = compiler_options(architecture, defines)
    compiler = compiler_version()
    symbols, cubin, log = _run_compiler(source, sources[source].decode(), root, architecture, defines, names)
    reported = parse_entries(log)
    unreported = [symbol for symbol in symbols.values() if symbol not in reported]
    if unreported:
        raise KernelCompileError(
            f"{source}: the log of {compiler} does not give the registers of {', '.join(unreported)}",
            _log_hint(source, log),
        )
    return CompiledKernel(
        source=source,
        architecture=architecture,
        options=options,
        compiler=compiler,
        sha256=hash_sources(sources),
        cubin=cubin,
        entries={name: reported[symbol] for name, symbol in symbols.items()},
        warnings=parse_warnings(log, str(root)),
    )


def compiler_options(architecture: str, defines: Mapping[str, int | str]) -> tuple[str, ...]:
    """The options of a compilation as one would type them, macros in order of name.

    Raises:
        UsageError: ``architecture`` or the name of a macro is malformed.
    """
    if not _ARCHITECTURE.fullmatch(architecture):
        raise UsageError(f"architecture '{architecture}' is malformed", "give it as sm_90a")
    for name in defines:
        if not _MACRO.fullmatch(name):
            raise UsageError(f"macro name '{name}' is malformed", "use letters, digits and underscores")
    macros = (f"-D{name}={value}" for name, value in sorted(defines.items()))
    assembler = (f"--ptxas-options={option}" for option in _ASSEMBLER_OPTIONS)
    return (f"-arch={architecture}", f"-std={_STANDARD}", *assembler, *macros)


def compiler_version() -> str:
    """The compiler and what drives it, e.g. ``NVRTC 13.0 (cuda.core 1.2.2)``.

    Raises:
        DeviceError: one of them is not installed.
    """
    major, minor = nvrtc_version()
    try:
        return f"NVRTC {major}.{minor} (cuda.core {version('cuda-core')})"
    except PackageNotFoundError as error:
        raise _no_compiler(error) from None


def nvrtc_version() -> tuple[int, int]:
    """CUDA version (major, minor) of the installed NVRTC.

    Raises:
        DeviceError: NVRTC is not installed.
    """
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:  # RuntimeError: the library is not found or does not load
        raise _no_compiler(error) from None
    return int(major), int(minor)


def _no_compiler(error: Exception) -> DeviceError:
    reason = str(error).splitlines()[0]
    return DeviceError(
        f"the kernel compiler NVRTC is not available: {reason}", "pip install 'xstage-tune[cuda]'"
    )


def _run_compiler(
    source: str,
    text: str,
    root: Path,
    architecture: str,
    defines: Mapping[str, int | str],
    names: Sequence[str],
) -> tuple[dict[str, str], bytes, str]:
    """Symbol of every name, cubin, and log."""
    try:
        from cuda.core import Program, ProgramOptions

        # cuda.core raises this class from public calls but does not export it.
        from cuda.core._utils.cuda_utils import NVRTCError
    except ImportError as error:
        raise _no_compiler(error) from None

    options = ProgramOptions(
        name=source,
        arch=architecture,
        std=_STANDARD,
        include_path=str(root),
        define_macro=[(name, str(value)) for name, value in sorted(defines.items())] or None,
        ptxas_options=list(_ASSEMBLER_OPTIONS),
        no_cache=True,  # NVRTC's own cache returns the code without the log; ours keeps both
    )
    log = io.StringIO()
    try:
        code = Program(text, "c++", options).compile("cubin", name_expressions=tuple(names), logs=log)
    except NVRTCError as error:
        _raise_compile_error(source, root, architecture, str(error).replace("\0", "\n"))
    symbols = {name: _text(code.symbol_mapping[name]) for name in names}
    return symbols, code.code, log.getvalue()


def _raise_compile_error(source: str, root: Path, architecture: str, log: str) -> NoReturn:
    if "NVRTC_ERROR_INVALID_OPTION" in log:
        raise DeviceError(
            f"{compiler_version()} cannot compile for {architecture}",
            "install a newer nvidia-cuda-nvrtc for newer GPUs, an older one for retired GPUs",
        )
    raise KernelCompileError(first_error(log, str(root), source), _log_hint(source, log))


def _log_hint(source: str, log: str) -> str:
    """Write the log where the user can read it, and say where."""
    folder = cache_folder() / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(".log", f"{Path(source).stem}-", folder)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(log)
    except OSError as error:
        return f"set XSTAGE_CACHE_DIR to a writable folder to keep the compiler's log ({error})"
    return f"read the compiler's log: {name}"


def _text(symbol: str | bytes) -> str:
    return symbol.decode() if isinstance(symbol, bytes) else symbol
