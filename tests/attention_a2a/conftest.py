"""The attention kernel's tests: most need no GPU; those marked ``gpu`` need a Hopper GPU and torch."""

from __future__ import annotations

import importlib.util

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs a Hopper GPU and torch; skipped where there is none")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _no_gpu() if marked else ""
    for item in marked:
        item.add_marker(pytest.mark.filterwarnings("default"))  # torch's are not ours to fix
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def _no_gpu() -> str:
    """Why the GPU tests cannot run here; empty where they can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    if not torch.cuda.is_available():
        return "no GPU"
    if torch.cuda.get_device_capability()[0] != 9:
        return f"{torch.cuda.get_device_name()} is no Hopper GPU"
    return ""
