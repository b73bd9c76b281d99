"""What a command is asked: checked as it is made, kept with the run as JSON, read back by the same model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from xstage_tune.base.errors import UsageError
from xstage_tune.base.profile_files import file_error
from xstage_tune.base.schema_problems import describe_problems


class Request(BaseModel):
    """Base of the requests of all commands; a subclass's fields carry the limits of the command's options.

    Keys that it does not know are ignored: a run keeps others beside them, and newer versions may have more.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    #: Whose request it is, as errors name it: "an emulation".
    OF: ClassVar[str]

    def keys(self) -> dict[str, Any]:
        """As plain keys for JSON; :meth:`read` reads them back."""
        return dict.fromkeys(type(self).model_fields) | self.model_dump(mode="json", exclude_none=True)

    def changed(self, **values: Any) -> Self:
        """With other values, checked as a whole."""
        return type(self).model_validate({**vars(self), **values})

    @classmethod
    def read(cls, keys: Mapping[str, Any], origin: str) -> Self:
        """Keys of :meth:`keys`, of this version or an earlier one, as a request.

        Args:
            origin: where they come from, as errors name it.

        Raises:
            UsageError: they are of another version, break a schema, or do not go together.
        """
        try:
            return cls.model_validate(cls.completed(keys))
        except ValidationError as error:
            where = f"{origin}: not the request of {cls.OF}"
            raise file_error(where, *describe_problems(error, cls)) from None
        except UsageError as error:
            raise UsageError(f"{origin}: {error.message}", error.hint) from None

    @classmethod
    def completed(cls, keys: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keys with what earlier versions did not write, where that is not the default."""
        return keys
