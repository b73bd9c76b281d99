"""What is asked of a calibration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from xstage_tune.base.errors import UsageError
from xstage_tune.base.fabric import StoreFlavour, StorePath

BudgetName = Literal["quick", "full"]


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """One path of one device, for one or more store flavours.

    The first flavour is the primary one: R and the arbitration are measured with it, the others
    add their own T0 and Q.

    Raises:
        UsageError: the path has no remote owner, or no flavour is named.
    """

    path: StorePath
    flavours: tuple[StoreFlavour, ...] = ("st.v4",)
    budget: BudgetName = "full"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.path == "local":
            raise UsageError(
                "path 'local' cannot be calibrated: it is the control, with no remote owner to drain to",
                "use --path host on one GPU, or --path peer on two; the local control runs beside either",
            )
        if not self.flavours:
            raise UsageError("no store flavour was asked for", "use --store-flavour st.v4, tma or all")

    @property
    def primary(self) -> StoreFlavour:
        """The flavour that R and the arbitration are measured with."""
        return self.flavours[0]

    def keys(self) -> dict[str, Any]:
        """As plain keys; :func:`request_from_keys` reads them back."""
        return {**asdict(self), "flavours": list(self.flavours)}


def request_from_keys(keys: Mapping[str, Any], origin: str) -> CalibrationRequest:
    """Keys of :meth:`CalibrationRequest.keys` as a request.

    Raises:
        UsageError: they are of another version.
    """
    try:
        return _REQUEST.validate_python(dict(keys))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"{origin}: not the request of a calibration: {where}: {first['msg']}", "calibrate again"
        ) from None


_REQUEST = TypeAdapter(CalibrationRequest)
