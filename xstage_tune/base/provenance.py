"""The software that a result was made with."""

from __future__ import annotations

import platform
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from xstage_tune.base.redaction import redacted_arguments
from xstage_tune.base.version import __version__

#: Packages whose version can change a result.
PACKAGES = (
    "cuda-bindings",
    "cuda-core",
    "numba",
    "numpy",
    "nvidia-cuda-nvrtc",
    "nvidia-ml-py",
    "optuna",
    "pydantic",
    "scipy",
    "sqlalchemy",
    "torch",
)


@dataclass(frozen=True, slots=True)
class Software:
    """Versions of everything between the user's command and the GPU."""

    argv: tuple[str, ...]  # without passwords
    tool_version: str
    git_state: str  # commit of the checkout, "-dirty" when changed; empty when installed or not asked for
    host: str
    system: str
    python: str
    packages: dict[str, str]  # installed ones of PACKAGES


def collect_software(argv: Sequence[str], *, with_git: bool = False) -> Software:
    """What runs now.

    Args:
        argv: the command as it was given.
        with_git: also ask git for the state of the checkout, which starts a process.
    """
    return Software(
        argv=redacted_arguments(argv),
        tool_version=__version__,
        git_state=git_state() if with_git else "",
        host=socket.gethostname(),
        system=platform.platform(),
        python=platform.python_version(),
        packages={name: found for name in PACKAGES if (found := installed_version(name))},
    )


def git_state() -> str:
    """Commit of the checkout this tool runs from, with ``-dirty`` when changed; empty when installed."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return ""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def installed_version(package: str) -> str | None:
    """Version of an installed package; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
