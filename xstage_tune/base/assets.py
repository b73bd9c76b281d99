"""Where the data folders (``kernels``, ``profiles``, ``store``) are: packaged, or in the checkout."""

from __future__ import annotations

from pathlib import Path

from xstage_tune.base.errors import XStageError

_PACKAGE = Path(__file__).resolve().parents[1]


def data_dir(name: str) -> Path:
    """Folder ``name`` of the project's data: inside an installed wheel, else beside ``pyproject.toml``.

    Raises:
        XStageError: neither place has it, so the installation is broken.
    """
    packaged = _PACKAGE / "_data" / name
    if packaged.is_dir():
        return packaged
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    raise XStageError(
        f"data folder '{name}' is missing from the installation at {_PACKAGE}",
        "reinstall: pip install --force-reinstall xstage-tune",
    )
