"""What the workload of any family says of itself."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from xstage_tune.base.field_types import Strict
from xstage_tune.families.workload_fields import Name

SchemaVersion = Annotated[Literal[1], Field(description="Version of this form of file", examples=[1])]
Source = Annotated[
    str, Field(description="Where the numbers come from", examples=["config.json of the model"])
]


class Workload(Strict):
    """A workload profile; each family's own has the keys of its layer beside these."""

    #: The key of its number of tokens.
    TOKENS_KEY: ClassVar[str] = "tokens"
    #: The key of the number of ranks that the layer is spread over.
    RANKS_KEY: ClassVar[str] = "degree"

    schema_version: SchemaVersion = 1
    kind: str
    name: Name
    description: str = ""
    source: Source = ""

    @property
    def stores_remotely(self) -> bool:
        """Whether any byte goes to another rank."""
        raise NotImplementedError

    @property
    def token_count(self) -> int:
        """Its tokens, by the key of :attr:`TOKENS_KEY`."""
        return int(getattr(self, self.TOKENS_KEY))

    @property
    def ranks(self) -> int:
        """Ranks that the layer is spread over."""
        return int(getattr(self, self.RANKS_KEY))

    @property
    def leaving_fraction(self) -> float:
        """Share of the bytes stored that go to another rank."""
        raise NotImplementedError

    @property
    def layer_key(self) -> tuple[Hashable, ...]:
        """What a config cannot be carried over from one value to another of."""
        raise NotImplementedError

    @property
    def variant(self) -> Mapping[str, Hashable]:
        """What else, beside the tokens, a config is tuned for, by key."""
        return {"remote_fraction": self.leaving_fraction}

    def variant_words(self, key: str) -> str:
        """The value of a key of :attr:`variant`, or of the tokens, to read."""
        return str(self.token_count if key == self.TOKENS_KEY else self.variant[key])

    @property
    def problem_size(self) -> tuple[int, ...]:
        """The sizes that name it in other tuners' files, tokens first."""
        raise NotImplementedError
