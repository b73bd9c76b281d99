"""Workload profiles of one Ulysses self-attention on one group of GPUs.

Strict, as platform profiles are: every problem is an error that names the file and the key.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

from pydantic import Field, field_validator, model_validator

from xstage_tune.base.field_types import Count, refuse_problems
from xstage_tune.families.attention_a2a.ownership import first_token, rows_per_rank
from xstage_tune.families.workload import SchemaVersion, Source, Workload
from xstage_tune.families.workload_fields import (
    OUTPUT_BYTES,
    Columns,
    Heads,
    Name,
    RemoteFraction,
    Tokens,
    receiver_problems,
    remote_fraction_or_default,
)

#: How far a remote fraction times the degree may be from a whole number of ranks.
_WHOLE_RANKS_TOLERANCE = 1e-9


class AttentionWorkload(Workload):
    """One non-causal self-attention under Ulysses sequence parallelism."""

    schema_version: SchemaVersion = 1
    kind: Literal["attention"] = Field(
        "attention", description="A self-attention fused with its All-to-All", examples=["attention"]
    )
    name: Name = Field(examples=["fa-a2a/my-attention"])
    description: str = Field(
        "", description="One line about the attention, for lists", examples=["My attention"]
    )
    source: Source = ""
    heads: Heads = Field(description="Heads over all ranks, a multiple of degree", examples=[40])
    head_dim: Columns = Field(description="Columns of one head, a multiple of 8", examples=[128])
    tokens: Tokens = Field(description="Tokens of the whole sequence (M), over all ranks", examples=[32768])
    degree: Count = Field(8, description="Ranks (GPUs) that the sequence is spread over", examples=[8])
    dtype: Literal["bf16"] = Field("bf16", description="Type of Q, K, V and the output", examples=["bf16"])
    remote_fraction: RemoteFraction | None = Field(
        None,
        description="Share of output bytes that leave the GPU; if left out, that of evenly "
        "spread destination ranks",
        examples=[0.875],
    )

    @field_validator("head_dim")
    @classmethod
    def _head_fits_16_byte_stores(cls, head_dim: int) -> int:
        if head_dim % 8:
            raise ValueError("must be a multiple of 8, so that a row of bf16 is whole 16-byte stores")
        return head_dim

    @model_validator(mode="after")
    def _is_consistent(self) -> AttentionWorkload:
        problems = receiver_problems(self.remote_fraction, "degree", self.degree)
        if self.heads % self.degree:
            problems.append(f"heads = {self.heads} is not divisible by degree = {self.degree}")
        refuse_problems(problems)
        return self

    @property
    def local_heads(self) -> int:
        """Heads that one rank computes."""
        return self.heads // self.degree

    @property
    def rows_per_rank(self) -> int:
        """Tokens that one rank owns after the All-to-All; the last ranks may own fewer."""
        return rows_per_rank(self.tokens, self.degree)

    @property
    def stores_remotely(self) -> bool:
        """Whether any byte goes to another rank; of few tokens the first ranks may own all."""
        return self.remote_bytes > 0

    @property
    def output_remote_fraction(self) -> float:
        """Share of output bytes that go to another rank."""
        return remote_fraction_or_default(self.remote_fraction, self.degree)

    @property
    def remote_ranks(self) -> int | None:
        """How many ranks' rows are remote; None where no whole number of ranks makes the fraction.

        This rank being rank 0, they are the last ones.
        """
        ranks = self.output_remote_fraction * self.degree
        return round(ranks) if abs(ranks - round(ranks)) <= _WHOLE_RANKS_TOLERANCE else None

    @property
    def local_ranks(self) -> int:
        """How many ranks' rows stay on the GPU, from this rank on; 0 where a part of every row does."""
        return 0 if self.remote_ranks is None else self.degree - self.remote_ranks

    @property
    def remote_row_part(self) -> float:
        """Of a row of the other ranks, what is remote: all of it where ranks are whole."""
        return self.output_remote_fraction if self.remote_ranks is None else 1.0

    @property
    def remote_bytes(self) -> float:
        """Of one rank's output."""
        rows = self.tokens - first_token(self.tokens, self.degree, self.local_ranks)
        return self.local_heads * rows * self.remote_row_part * self.head_dim * OUTPUT_BYTES

    @property
    def leaving_fraction(self) -> float:
        """Of the output."""
        return self.output_remote_fraction

    @property
    def layer_key(self) -> tuple[Hashable, ...]:
        """Heads, their size, how many ranks share them, and the type."""
        return self.heads, self.head_dim, self.degree, self.dtype

    @property
    def problem_size(self) -> tuple[int, ...]:
        """Tokens, and the heads of one rank."""
        return self.tokens, self.local_heads, self.head_dim
