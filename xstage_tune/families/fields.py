"""Fields of models that hold a config or a workload of any family."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel

from xstage_tune.base.by_kind import ByKind
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.registry import families, family_of_config_kind, family_of_workload_kind
from xstage_tune.families.workload import Workload


def _config_model(kind: str) -> type[BaseModel] | None:
    family = family_of_config_kind(kind)
    return family.config_model if family else None


def _workload_model(kind: str) -> type[BaseModel] | None:
    family = family_of_workload_kind(kind)
    return family.workload_model if family else None


AnyConfig = Annotated[
    KernelConfig,
    ByKind(KernelConfig, _config_model, lambda: (family.config_kind for family in families())),
]
AnyWorkload = Annotated[
    Workload,
    ByKind(Workload, _workload_model, lambda: (family.workload_kind for family in families())),
]
