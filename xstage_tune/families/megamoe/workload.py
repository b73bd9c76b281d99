"""Workload profiles of one MoE layer on one group of GPUs.

Strict, as platform profiles are: every problem is an error that names the file and the key.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from xstage_tune.base.field_types import Count, NonNegative, Strict, Tally, refuse_problems
from xstage_tune.families.workload import SchemaVersion, Source, Workload
from xstage_tune.families.workload_fields import (
    MOST_EXPERTS,
    MOST_TOKENS,
    Columns,
    Experts,
    Name,
    RemoteFraction,
    Tokens,
    receiver_problems,
    remote_fraction_or_default,
)

Precision = Literal["bf16", "w8a8", "w4a8"]
#: Operand type whose Tensor Core rate a precision runs at (a platform's ``compute.tensor``).
TensorDtype = Literal["bf16", "fp8"]


_WEIGHT_BYTES: dict[Precision, float] = {"bf16": 2.0, "w8a8": 1.0, "w4a8": 0.5}
_ACTIVATION_BYTES: dict[Precision, float] = {"bf16": 2.0, "w8a8": 1.0, "w4a8": 1.0}
_TENSOR_DTYPE: dict[Precision, TensorDtype] = {"bf16": "bf16", "w8a8": "fp8", "w4a8": "fp8"}


class Routing(Strict):
    """How a layer's (token, expert) assignments spread over its experts.

    ``balanced``: evenly. ``zipf``: the i-th hottest expert draws by ``i**-alpha``, and ``seed`` (0 unless
    given) decides which expert that is. ``histogram``: as listed for each expert, token counts or shares
    of 1.
    """

    kind: Literal["balanced", "zipf", "histogram"] = Field(
        "balanced",
        description="How assignments spread over experts: evenly, by Zipf's law, or as listed in histogram",
        examples=["balanced"],
    )
    alpha: Annotated[NonNegative, Field(le=100)] | None = Field(
        None,
        description="Exponent of Zipf's law: the i-th hottest expert draws by i**-alpha; kind zipf needs it",
        examples=[1.0],
    )
    seed: Tally | None = Field(
        None, description="Decides which experts are the hot ones; of kind zipf, 0 if left out", examples=[0]
    )
    histogram: tuple[NonNegative, ...] | None = Field(
        None,
        description="Token counts of each expert, or shares of 1; kind histogram needs it, or in its "
        "place the key file: the path of a CSV or JSON file of the same, relative to this one",
        examples=[[0.125] * 8],
    )

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> Routing:
        needed = {"balanced": None, "zipf": "alpha", "histogram": "histogram"}[self.kind]
        problems = []
        if needed is not None and getattr(self, needed) is None:
            problems.append(f"kind '{self.kind}' needs the key '{needed}'")
        for key, kind in (("alpha", "zipf"), ("seed", "zipf"), ("histogram", "histogram")):
            if getattr(self, key) is not None and self.kind != kind:
                problems.append(f"key '{key}' is for kind '{kind}', not '{self.kind}'")
        refuse_problems(problems)
        return self


class MoeWorkload(Workload):
    """One MoE layer under expert parallelism; expert ``e`` lives on rank ``e // local_experts``."""

    TOKENS_KEY: ClassVar[str] = "tokens_per_rank"
    RANKS_KEY: ClassVar[str] = "ep_degree"

    schema_version: SchemaVersion = 1
    kind: Literal["moe"] = Field("moe", description="A fused MoE layer", examples=["moe"])
    name: Name = Field(examples=["megamoe/my-layer"])
    description: str = Field("", description="One line about the layer, for lists", examples=["My MoE layer"])
    source: Source = ""
    hidden: Columns = Field(description="Columns of the hidden state", examples=[4096])
    intermediate: Columns = Field(description="Intermediate columns of one expert", examples=[14336])
    experts: Experts = Field(
        description="Routed experts over all ranks, a multiple of ep_degree", examples=[8]
    )
    top_k: Count = Field(description="Routed experts that a token visits", examples=[2])
    shared_experts: Annotated[Tally, Field(le=MOST_EXPERTS)] = Field(
        0, description="Experts that every token visits, on its own rank", examples=[1]
    )
    ep_degree: Count = Field(8, description="Ranks (GPUs) that the experts are spread over", examples=[8])
    tokens_per_rank: Tokens = Field(description="Tokens of one rank in a call of the layer", examples=[4096])
    precision: Precision = Field(
        "w8a8", description="Bits of weights (w) and of activations (a)", examples=["w8a8"]
    )
    routing: Routing = Field(Routing(), description="How tokens spread over experts")
    remote_fraction: RemoteFraction | None = Field(
        None,
        description="Share of Combine bytes that leave the GPU; if left out, that of evenly "
        "spread source ranks",
        examples=[0.875],
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> MoeWorkload:
        problems = receiver_problems(self.remote_fraction, "ep_degree", self.ep_degree)
        if self.experts % self.ep_degree:
            problems.append(f"experts = {self.experts} is not divisible by ep_degree = {self.ep_degree}")
        if self.top_k > self.experts:
            problems.append(f"top_k = {self.top_k} is more than experts = {self.experts}")
        if self.group_tokens > MOST_TOKENS:
            problems.append(
                f"tokens_per_rank = {self.tokens_per_rank} on ep_degree = {self.ep_degree} ranks is more "
                f"than {MOST_TOKENS} tokens"
            )
        if self.routing.histogram is not None and (wrong := _histogram_problem(self.routing.histogram, self)):
            problems.append(wrong)
        refuse_problems(problems)
        return self

    @property
    def local_experts(self) -> int:
        """Routed experts on one rank."""
        return self.experts // self.ep_degree

    @property
    def group_tokens(self) -> int:
        """Tokens of all ranks together."""
        return self.tokens_per_rank * self.ep_degree

    @property
    def assignments(self) -> int:
        """(token, expert) pairs of all ranks together."""
        return self.group_tokens * self.top_k

    @property
    def stores_remotely(self) -> bool:
        """Whether any byte goes to another rank."""
        return self.combine_remote_fraction > 0

    @property
    def combine_remote_fraction(self) -> float:
        """Share of Combine bytes that go to another rank."""
        return remote_fraction_or_default(self.remote_fraction, self.ep_degree)

    @property
    def linear1_shape(self) -> tuple[int, int]:
        """Columns (gate and up side by side) and reduction depth of an expert's Linear-1."""
        return 2 * self.intermediate, self.hidden

    @property
    def linear2_shape(self) -> tuple[int, int]:
        """Columns and reduction depth of an expert's Linear-2."""
        return self.hidden, self.intermediate

    @property
    def weight_bytes(self) -> float:
        """Bytes of one weight; block scales not counted."""
        return _WEIGHT_BYTES[self.precision]

    @property
    def activation_bytes(self) -> float:
        """Bytes of one activation that a Linear reads."""
        return _ACTIVATION_BYTES[self.precision]

    @property
    def tensor_dtype(self) -> TensorDtype:
        """Operand type whose Tensor Core rate applies; 4-bit weights run at the 8-bit rate."""
        return _TENSOR_DTYPE[self.precision]

    @property
    def leaving_fraction(self) -> float:
        """Of Combine."""
        return self.combine_remote_fraction

    @property
    def layer_key(self) -> tuple[Hashable, ...]:
        """The shape of its experts, how many ranks share them, and the types."""
        return (
            self.hidden, self.intermediate, self.experts, self.top_k, self.ep_degree, self.precision,
        )  # fmt: skip

    @property
    def variant(self) -> Mapping[str, Hashable]:
        """Routing, shared experts and what leaves the GPU."""
        routing = self.routing
        return {
            "routing": (routing.kind, routing.alpha, routing.seed or 0, routing.histogram),
            "shared_experts": self.shared_experts,
            "remote_fraction": self.combine_remote_fraction,
        }

    def variant_words(self, key: str) -> str:
        """Of a routing its kind and what that takes."""
        if key != "routing":
            return super().variant_words(key)
        given = (f"{name} {getattr(self.routing, name)}" for name in ("alpha", "seed"))
        return " ".join([self.routing.kind, *(text for text in given if not text.endswith("None"))])

    @property
    def problem_size(self) -> tuple[int, ...]:
        """Tokens of a rank, and the columns of both Linears."""
        return self.tokens_per_rank, self.hidden, self.intermediate


def _histogram_problem(histogram: tuple[float, ...], layer: MoeWorkload) -> str | None:
    """Why no routing of this layer can have a histogram; None if one can.

    Its length or sum is wrong, or an expert has more tokens than there are.
    """
    if len(histogram) != layer.experts:
        return f"routing.histogram has {len(histogram)} entries for {layer.experts} experts"
    total = sum(histogram)
    shares = abs(total - 1.0) <= 1e-6
    if not shares and total != layer.assignments:
        return (
            f"routing.histogram sums to {total:g}, not to 1 (shares) nor to {layer.assignments} (tokens: "
            f"{layer.ep_degree} ranks x {layer.tokens_per_rank} x top-{layer.top_k})"
        )
    if not shares and any(count != int(count) for count in histogram):
        return "routing.histogram has a token count that is not whole"
    most = max(histogram) * (layer.assignments if shares else 1)
    if most > layer.group_tokens * (1 + 1e-9):
        expert = max(range(layer.experts), key=histogram.__getitem__)
        return (
            f"routing.histogram gives expert {expert} {most:.0f} tokens of {layer.group_tokens}: "
            "a token visits an expert at most once"
        )
    return None
