"""What the ranks of a group have to agree on before they call together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xstage_tune.base.errors import UsageError
from xstage_tune.ops.runtime import import_torch


@dataclass(frozen=True, slots=True)
class Offer:
    """What a rank tells the others of its part."""

    agreed: Mapping[str, object]
    gpu: str


def gpu_identity(device: int) -> str:
    """Of torch's GPU of that number."""
    return str(import_torch().cuda.get_device_properties(device).uuid)


def check_offers(offers: list[Offer], rank: int, hint: str) -> None:
    """Refuse what does not fit together, on every rank or on none.

    Args:
        hint: what to do where the ranks disagree.

    Raises:
        UsageError: says in what they disagree, or which share a GPU.
    """
    mine = offers[rank].agreed
    for other, offer in enumerate(offers):
        for name, value in mine.items():
            if offer.agreed[name] != value:
                raise UsageError(
                    f"the ranks disagree: {name} is {offer.agreed[name]} on rank {other}, {value} on {rank}",
                    hint,
                )
    gpus = [offer.gpu for offer in offers]
    for other, gpu in enumerate(gpus):
        if (owner := gpus.index(gpu)) != other:
            raise UsageError(
                f"ranks {owner} and {other} share a GPU",
                "give every rank one of its own: torch.cuda.set_device(local rank)",
            )
