"""What workload profiles of every family are made of: names, sizes, and what leaves the GPU."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from xstage_tune.base.field_types import Count, Finite

#: Combine and attention outputs leave in bf16.
OUTPUT_BYTES = 2

#: Far above any layer's, and low enough that products of them are exact in int64 and float64.
MOST_TOKENS = 2**31 - 1  # of all ranks
MOST_EXPERTS = 2**16
MOST_HEADS = 2**12
MOST_COLUMNS = 2**20

Tokens = Annotated[Count, Field(le=MOST_TOKENS)]
Columns = Annotated[Count, Field(le=MOST_COLUMNS)]
Experts = Annotated[Count, Field(le=MOST_EXPERTS)]
Heads = Annotated[Count, Field(le=MOST_HEADS)]
Name = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9][a-z0-9._/-]*$",
        description="What results call it: lower case letters, digits and . _ - /",
    ),
]
RemoteFraction = Annotated[Finite, Field(ge=0, le=1)]


def receiver_problems(remote_fraction: float | None, key: str, ranks: int) -> list[str]:
    """That there are remote bytes where there is no other rank, if so."""
    if ranks > 1 or not remote_fraction:
        return []
    return [
        f"remote_fraction = {remote_fraction:g} with {key} = 1: one rank has no other to store to; "
        "set it to 0, or give more ranks"
    ]


def remote_fraction_or_default(given: float | None, ranks: int) -> float:
    return (ranks - 1) / ranks if given is None else given
