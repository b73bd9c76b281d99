"""A config of an own space: a value on each of its axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StrictBool, StrictStr

from xstage_tune.base.field_types import Finite, Whole
from xstage_tune.families.config import KernelConfig

if TYPE_CHECKING:
    from xstage_tune.base.fabric import StoreFlavour

AxisValue = StrictBool | Whole | Finite | Annotated[StrictStr, Field(max_length=200)]
AxisName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]


class OwnConfig(KernelConfig):
    """Values by axis; or a yardstick, which is no config of the space but what it is compared with."""

    if TYPE_CHECKING:  # one of its axes, or none: nobody asks
        store_flavour: StoreFlavour = "st.v4"
    kind: Literal["own"] = Field("own", description="A kernel of one's own")
    values: Mapping[AxisName, AxisValue] = Field({}, description="A value of each axis")
    yardstick: str = Field("", description="What is measured in place of a config; empty for a config")

    def __hash__(self) -> int:
        return hash((self.yardstick, frozenset(self.values.items())))

    @property
    def label(self) -> str:
        return self.yardstick or ", ".join(f"{name}={_shown(value)}" for name, value in self.values.items())


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
