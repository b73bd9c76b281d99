"""Field types and the base of every profile section."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)


def _python_int(value: object) -> object:
    """NumPy integers as ``int``; anything else is left to the strict check of the field."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def _of_64_bits(value: int) -> int:
    """What NumPy and other programs can hold too."""
    if not -(2**63) <= value < 2**63:
        raise ValueError("should be a number of at most 64 bits")
    return value


def _of_some_size(value: float) -> float:
    """Products and ratios of a few such numbers are numbers."""
    if value and not 1e-60 <= abs(value) <= 1e60:
        raise ValueError("should be 0, or of a size from 1e-60 to 1e60")
    return value


# Strict numbers: a number in quotes or a boolean is a mistake in a profile, not a spelling of it.
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False), AfterValidator(_of_some_size)]
Positive = Annotated[Finite, Field(gt=0)]
NonNegative = Annotated[Finite, Field(ge=0)]
Fraction = Annotated[Finite, Field(gt=0, le=1)]
Whole = Annotated[int, Field(strict=True), BeforeValidator(_python_int), AfterValidator(_of_64_bits)]
Count = Annotated[Whole, Field(gt=0)]
Tally = Annotated[Whole, Field(ge=0)]


class InconsistentError(ValueError):
    """Keys that do not go together, with every reason: each names the keys and their values."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


def refuse_problems(problems: Iterable[str]) -> None:
    """Raises:
    InconsistentError: there are any.
    """
    if found := tuple(problems):
        raise InconsistentError(found)


class Strict(BaseModel):
    """A frozen section that knows all its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Grown(Strict):
    """A section that gained keys after files of it were written.

    A key of ``gained`` is written only where it is not its default: what was written before keeps its hash,
    by which studies know it.
    """

    gained: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_gained_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        keys: dict[str, Any] = serialize(self)
        for name in self.gained:
            if getattr(self, name) == type(self).model_fields[name].default:
                keys.pop(name, None)
        return keys
