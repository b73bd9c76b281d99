"""The wheel: what is in it, and that it works away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
DATA_FOLDERS = ("kernels", "profiles", "store")


def run_python(*arguments: str, cwd: Path, **variables: str) -> str:
    """Output of a Python process; its errors are the test's."""
    environment = os.environ | variables
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built offline with the build backend of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    run_python("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=CHECKOUT)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed into it, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    run_python(*pip, "--target", str(folder), str(wheel), cwd=folder)
    return folder


def source_files(folder: str) -> set[str]:
    """Files of a folder of the checkout, relative to the checkout, as they belong into a wheel."""
    files = (path for path in (CHECKOUT / folder).rglob("*") if path.is_file())
    return {path.relative_to(CHECKOUT).as_posix() for path in files if "__pycache__" not in path.parts}


def test_wheel_holds_the_package_its_data_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    data = {f"xstage_tune/_data/{name}" for folder in DATA_FOLDERS for name in source_files(folder)}
    assert names == source_files("xstage_tune") | data
    assert {name.split("/")[2] for name in data} == set(DATA_FOLDERS)


def test_installed_wheel_resolves_its_own_data(installed: Path) -> None:
    code = f"from xstage_tune.base.assets import data_dir\nfor name in {DATA_FOLDERS}: print(data_dir(name))"
    found = run_python("-c", code, cwd=installed, PYTHONPATH=str(installed)).splitlines()
    assert found == [str(installed / "xstage_tune/_data" / name) for name in DATA_FOLDERS]


def test_installed_wheel_runs_its_commands(installed: Path) -> None:
    text = run_python("-m", "xstage_tune", "--help", cwd=installed, PYTHONPATH=str(installed))
    assert "doctor" in text
    scripts = next(installed.glob("xstage_tune-*.dist-info")) / "entry_points.txt"
    assert "xstage-tune = xstage_tune.__main__:entry" in scripts.read_text()


def test_installed_wheel_compiles_its_kernels(installed: Path, tmp_path: Path) -> None:
    code = (
        "from xstage_tune.cuda.cache import cached_kernel\n"
        "from xstage_tune.cuda.variants import VERIFY\n"
        "kernel = cached_kernel(VERIFY.source, 'sm_90a', VERIFY.defines, VERIFY.names)\n"
        "print(len(kernel.cubin))"
    )
    variables = {"PYTHONPATH": str(installed), "XSTAGE_CACHE_DIR": str(tmp_path)}
    assert int(run_python("-c", code, cwd=installed, **variables)) > 0
