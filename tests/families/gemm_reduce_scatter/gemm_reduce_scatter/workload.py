"""One tensor-parallel GEMM: every rank has a part of the depth, and owns a part of the reduced rows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Literal

from pydantic import Field, model_validator

from xstage_tune.base.field_types import Count, refuse_problems
from xstage_tune.families.workload import SchemaVersion, Source, Workload
from xstage_tune.families.workload_fields import OUTPUT_BYTES, Columns, Name, Tokens


class GemmWorkload(Workload):
    """``[tokens, depth] x [depth, columns]``; the first rows are of the first rank."""

    schema_version: SchemaVersion = 1
    kind: Literal["gemm-rs"] = Field(
        "gemm-rs", description="A GEMM and its reduce-scatter", examples=["gemm-rs"]
    )
    name: Name = Field(examples=["gemm-rs/my-projection"])
    description: str = Field("", description="One line about it, for lists", examples=["A projection"])
    source: Source = ""
    tokens: Tokens = Field(description="Rows of the output (M)", examples=[8192])
    columns: Columns = Field(description="Columns of the output (N), a multiple of 8", examples=[8192])
    depth: Columns = Field(
        description="Reduction depth over all ranks (K), a multiple of degree", examples=[28672]
    )
    degree: Count = Field(8, description="Ranks that share the depth and the rows", examples=[8])
    dtype: Literal["bf16"] = Field("bf16", description="Type of operands and output", examples=["bf16"])

    @model_validator(mode="after")
    def _is_consistent(self) -> GemmWorkload:
        problems = []
        if self.columns % 8:
            problems.append(
                f"columns = {self.columns} is no multiple of 8: rows are not whole 16-byte stores"
            )
        if self.depth % self.degree:
            problems.append(f"depth = {self.depth} is not divisible by degree = {self.degree}")
        refuse_problems(problems)
        return self

    @property
    def rank_depth(self) -> int:
        """Depth that one rank reduces."""
        return self.depth // self.degree

    @property
    def own_rows(self) -> int:
        """Rows that stay on rank 0."""
        return -(-self.tokens // self.degree)

    @property
    def remote_bytes(self) -> float:
        """Of one rank's output."""
        return float((self.tokens - self.own_rows) * self.columns * OUTPUT_BYTES)

    @property
    def stores_remotely(self) -> bool:
        return self.tokens > self.own_rows

    @property
    def leaving_fraction(self) -> float:
        return 1.0 - self.own_rows / self.tokens

    @property
    def layer_key(self) -> tuple[Hashable, ...]:
        return self.columns, self.depth, self.degree, self.dtype

    @property
    def variant(self) -> Mapping[str, Hashable]:
        """Nothing: what leaves follows from the tokens."""
        return {}

    @property
    def problem_size(self) -> tuple[int, ...]:
        return self.tokens, self.columns, self.rank_depth
