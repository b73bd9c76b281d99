"""Fields that hold one of several models, told by its key ``kind`` and looked up when a value is read.

A discriminated union needs all its models when it is defined; here they may be those of other packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, ValidationError
from pydantic_core import (
    CoreSchema,
    InitErrorDetails,
    PydanticCustomError,
    PydanticKnownError,
    core_schema,
)


@dataclass(frozen=True)
class ByKind:
    """In ``Annotated[Base, ByKind(...)]``: the field holds a model of its kind.

    Errors name the kind behind the field, as those of a discriminated union do.

    Args:
        base: of all the models.
        model_of: the model of a kind; None where there is none.
        kinds: all that there are, for an error to name.
    """

    base: type[BaseModel]
    model_of: Callable[[str], type[BaseModel] | None]
    kinds: Callable[[], Iterable[str]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A value is read by its kind, and written as what it is."""
        return core_schema.no_info_plain_validator_function(self._read)

    def _read(self, value: object) -> BaseModel:
        if isinstance(value, self.base):
            return value
        if not isinstance(value, Mapping):
            raise PydanticKnownError("dict_type")
        if "kind" not in value:
            raise _problem_of_kind(PydanticCustomError("missing", "Field required"), value)
        kind = str(value["kind"])
        model = self.model_of(kind)
        if model is None:
            known = PydanticCustomError(
                "kind", "should be one of {kinds}", {"kinds": ", ".join(self.kinds())}
            )
            raise _problem_of_kind(known, value["kind"])
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise _behind(kind, error) from None


def _problem_of_kind(problem: PydanticCustomError, value: object) -> ValidationError:
    details = InitErrorDetails(type=problem, loc=("kind",), input=value)
    return ValidationError.from_exception_data("kind", [details])


def _behind(kind: str, error: ValidationError) -> ValidationError:
    """The same problems, each with the kind before its place."""
    problems = []
    for found in error.errors():
        context = {**found.get("ctx", {}), "message": found["msg"]}
        same = PydanticCustomError(found["type"], "{message}", context)
        problems.append(InitErrorDetails(type=same, loc=(kind, *found["loc"]), input=found["input"]))
    return ValidationError.from_exception_data(error.title, problems)
