"""The state of an event loop, handed to its steps as one pointer.

numba passes a named tuple field by field, an array as seven. The state of a launch has some 70 arrays, and a
step that only hands it on would be compiled with 500 arguments. Of 12 s of processor time that was a fifth.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators, allow-subclassing-any
# numba has no types.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, register_model

State = TypeVar("State", bound=tuple[Any, ...])


class _Pointer(types.CPointer):
    """Points to a named tuple; has its fields as attributes, of a named tuple among them a pointer."""


register_model(_Pointer)(models.PointerModel)


def _pointer_to(_typing: Any, state: Any) -> Any:
    def put_into_frame(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        model = context.data_model_manager[state]
        return cgutils.alloca_once_value(builder, model.as_data(builder, arguments[0]))

    return _Pointer(state)(state), put_into_frame


#: A copy of a named tuple in the frame of the compiled function that asks for it. It must not outlive that.
#: Its arrays are those of the original. LLVM dissolves it, since all steps are inlined into their loop.
pointer_to = cast("Callable[[State], State]", intrinsic(_pointer_to))


def _place_and_type(state: Any, name: str) -> tuple[int, Any]:
    place = state.fields.index(name)
    return place, state.types[place]


@infer_getattr
class _FieldTypes(AttributeTemplate):
    key = _Pointer

    def generic_resolve(self, pointer: _Pointer, name: str) -> Any:  # type: ignore[override]
        if name not in pointer.dtype.fields:
            return None
        _, field = _place_and_type(pointer.dtype, name)
        return _Pointer(field) if isinstance(field, types.BaseNamedTuple) else field


@lower_getattr_generic(_Pointer)
def _field(context: Any, builder: Any, pointer: _Pointer, value: Any, name: str) -> Any:
    place, field = _place_and_type(pointer.dtype, name)
    at = cgutils.gep_inbounds(builder, value, 0, place)
    if isinstance(field, types.BaseNamedTuple):
        return at
    return context.data_model_manager[field].load_from_data_pointer(builder, at)
