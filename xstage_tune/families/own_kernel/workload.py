"""Space files: a kernel of one's own, what of it may be chosen, and the process that measures a choice.

Strict, as other profiles are: every problem is an error that names the file and the key.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from xstage_tune.base.field_types import Count, Finite, Positive, refuse_problems
from xstage_tune.families.own_kernel.config import AxisName, AxisValue
from xstage_tune.families.workload import SchemaVersion, Source, Workload
from xstage_tune.families.workload_fields import Name, Tokens

Unit = Literal["ns", "us", "ms", "s"]
UNIT_NS: Mapping[Unit, float] = dict(zip(get_args(Unit), (1.0, 1e3, 1e6, 1e9), strict=True))
#: Combinations of the axes; each is checked and ranked.
MOST_COMBINATIONS = 200_000
_MOST_DEADLINE_S = 86_400.0

FunctionName = Annotated[
    str, Field(pattern=r"^([A-Za-z_][\w]*(\.[A-Za-z_][\w]*)*:[A-Za-z_][\w]*)?$", examples=["bench:measure"])
]
Values = Mapping[AxisName, AxisValue]


class OwnSpace(Workload):
    """A kernel of one's own: axes, constraints, a default, and what measures a config."""

    schema_version: SchemaVersion = 1
    kind: Literal["own"] = Field("own", description="A kernel of one's own", examples=["own"])
    name: Name = Field(examples=["own/my-kernel"])
    description: str = Field("", description="One line about the kernel, for lists", examples=["My kernel"])
    source: Source = ""
    command: tuple[str, ...] = Field(
        (),
        description="Program and arguments that answer a line of JSON with a line of JSON, run in the file's "
        "folder; or give function",
        examples=[["python", "bench.py"]],
    )
    function: FunctionName = Field(
        "", description="A Python function in place of a command: MODULE:FUNCTION, found in the file's folder"
    )
    bursts: FunctionName = Field(
        "",
        description="A Python function from a config to its bursts, by which the space is bounded and ranked",
    )
    objective: str = Field(
        "latency", description="What the times are of, to read", examples=["latency of a step"]
    )
    unit: Unit = Field("us", description="Unit of the times that are answered", examples=["us"])
    repeats: Annotated[Count, Field(le=10_000)] = Field(
        5, description="Times that one request asks for", examples=[5]
    )
    in_turn: bool = Field(
        True, description="Whether a config is timed in turn with the best so far", examples=[True]
    )
    deadline_s: Annotated[Positive, Field(le=_MOST_DEADLINE_S)] = Field(
        120.0, description="Seconds that one answer may take, compilation included", examples=[120.0]
    )
    yardstick: str = Field(
        "",
        description="Name of something else that the process can time, which results are shown beside",
        examples=["cublas"],
    )
    tokens: Tokens = Field(
        1, description="The size that a lookup may differ in: tokens, or rows of a GEMM", examples=[8192]
    )
    degree: Count = Field(1, description="GPUs that the kernel is spread over", examples=[8])
    constraints: tuple[str, ...] = Field(
        (),
        description="Expressions of axes and keys that hold of every config",
        examples=[["block_m * block_n <= 32768"]],
    )
    keys: Mapping[AxisName, AxisValue] = Field(
        {}, description="What else a config is tuned for, which a lookup must have alike"
    )
    axes: Mapping[AxisName, Annotated[tuple[AxisValue, ...], Field(min_length=1)]] = Field(
        description="Values of each axis, in order"
    )
    default: Values = Field(description="The config that a tuned one has to beat: a value of each axis")
    folder: str = Field("", description="Where command and functions are found; by default the file's folder")

    def __hash__(self) -> int:
        return hash((self.name, self.tokens, self.folder, self.command, self.function))

    @model_validator(mode="after")
    def _is_consistent(self) -> OwnSpace:
        refuse_problems(self._problems())
        return self

    def _problems(self) -> Iterator[str]:
        if bool(self.command) == bool(self.function):
            yield f"command = {list(self.command)} and function = '{self.function}': give one of the two"
        if not self.axes:
            yield "axes has no axis"
        combinations = math.prod(map(len, self.axes.values()))
        if combinations > MOST_COMBINATIONS:
            yield f"axes has {combinations:,} combinations, more than {MOST_COMBINATIONS:,}"
        for name, values in self.axes.items():
            if len({(type(value), value) for value in values}) < len(values):
                yield f"axes.{name} has a value twice"
            if len({type(value) for value in values}) > 1:
                yield f"axes.{name} mixes whole numbers, numbers, texts or true and false"
            if name in self.keys:
                yield f"axes.{name} is one of keys too"
        for name in dict.fromkeys((*self.axes, *self.default)):
            if name not in self.axes:
                yield f"default.{name} is no axis"
            elif name not in self.default:
                yield f"default.{name} is missing"
            elif self.default[name] not in self.axes[name]:
                yield f"default.{name} = {self.default[name]} is no value of axes.{name}"

    @property
    def place(self) -> Path:
        """The folder of the command and the functions."""
        return Path(self.folder or ".")

    @property
    def known(self) -> Mapping[str, Finite | int | str | bool]:
        """What constraints and functions know beside the axes."""
        return {**self.keys, "tokens": self.tokens, "degree": self.degree}

    @property
    def stores_remotely(self) -> bool:
        """Its bursts tell, where it has a function of them."""
        return True

    @property
    def leaving_fraction(self) -> float:
        """Of what it counts as stores."""
        return 1.0

    @property
    def layer_key(self) -> tuple[Hashable, ...]:
        return (self.name, self.ranks, *sorted(self.keys.items()))

    @property
    def variant(self) -> Mapping[str, Hashable]:
        """Nothing: keys must be alike."""
        return {}

    @property
    def problem_size(self) -> tuple[int, ...]:
        numbers = (value for _, value in sorted(self.keys.items()) if type(value) is int)
        return (self.tokens, *numbers)
