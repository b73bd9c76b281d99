"""xstage-tune: measure how a GPU's remote stores drain, and tune fused kernels by it.

For serving code: :func:`load_bundle`, :func:`lookup` and :func:`choose_schedule`, loaded on first use, and
:class:`XStageError`, which all that they raise is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xstage_tune.base.errors import UsageError, XStageError
from xstage_tune.base.version import __version__

if TYPE_CHECKING:
    from xstage_tune.export.runtime import choose_schedule, load_bundle, lookup

__all__ = ["UsageError", "XStageError", "__version__", "choose_schedule", "load_bundle", "lookup"]


def __getattr__(name: str) -> Any:
    if name in ("choose_schedule", "load_bundle", "lookup"):
        from xstage_tune.export import runtime

        return getattr(runtime, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
