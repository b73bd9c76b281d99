"""What is asked of a calibration."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import model_validator

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StoreFlavour, StorePath
from xstage_tune.base.field_types import Whole
from xstage_tune.base.limits import SEED, BudgetName
from xstage_tune.base.request import Request


class CalibrationRequest(Request):
    """One path of one device, for one or more store flavours.

    The first flavour is the primary one: R and the arbitration are measured with it, the others
    add their own T0 and Q.

    Raises:
        UsageError: the path has no remote owner, or no flavour is named.
    """

    OF: ClassVar[str] = "a calibration"

    path: StorePath
    flavours: tuple[StoreFlavour, ...] = ("st.v4",)
    budget: BudgetName = "full"
    seed: Annotated[Whole, SEED] = 0

    @model_validator(mode="after")
    def _can_be_measured(self) -> CalibrationRequest:
        if self.path == "local":
            raise UsageError(
                "path 'local' cannot be calibrated: it is the control, with no remote owner to drain to",
                "use --path host on one GPU, or --path peer on two; the local control runs beside either",
            )
        if not self.flavours:
            raise UsageError("no store flavour was asked for", "use --store-flavour st.v4, tma or all")
        return self

    @property
    def primary(self) -> StoreFlavour:
        """The flavour that R and the arbitration are measured with."""
        return self.flavours[0]
