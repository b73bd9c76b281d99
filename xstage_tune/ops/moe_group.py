"""MoE layers over the ranks of a torch process group: what the ranks agree on, and each layer's memory."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from xstage_tune.base.errors import UsageError
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.ops.agreement import Offer, check_offers, gpu_identity
from xstage_tune.ops.collective import ProcessGroup, collectively
from xstage_tune.ops.launching import Ordered
from xstage_tune.ops.runtime import current_gpu, import_torch
from xstage_tune.ops.symmetric import SymmetricMemory

if TYPE_CHECKING:
    from xstage_tune.cuda.moe_layer import MoeLayer
    from xstage_tune.cuda.moe_routing import RoutedShape

_MOST_CALLS = 1024
_DISAGREE = "call mega_moe with equal sizes of the layer, max_tokens and config on all ranks"


class GroupLayer:
    """One kind of layer over a group, which all layers of these sizes share. All ranks make it at once.

    The ranks meet behind the last memory that one of them takes, which may wait for a GPU: where two ranks
    share one, it may wait for a call that waits for this rank.
    """

    def __init__(self, group: ProcessGroup, shape: RoutedShape, config: MegaMoeConfig) -> None:
        from xstage_tune.cuda.moe_routing import published_layout

        self.shape = shape
        self.memory = SymmetricMemory(group, published_layout(shape).nbytes)
        with ExitStack() as opened:
            collectively(group, lambda: self._open(opened, config))
            self._opened = opened.pop_all()

    def _open(self, opened: ExitStack, config: MegaMoeConfig) -> None:
        from xstage_tune.cuda.moe_layer import MoeLayer

        layer = MoeLayer(current_gpu(), self.shape, config, self.memory.starts)
        opened.callback(layer.close)
        self.ordered: Ordered[MoeLayer] = Ordered(layer)

    def close(self) -> None:
        """Free what this rank has, but for memory that a late sender may store to; the GPU is idle."""
        if self.ordered.exchange.fault() is not None:
            _STORED_TO_LATE.append(self.memory)
        self._opened.close()


class GroupLayers:
    """All kinds of layers of this rank over one group."""

    def __init__(self, group: ProcessGroup, device: int) -> None:
        self._group, self._device = group, device
        #: That were made ready, by all that they depend on.
        self.calls: dict[Hashable, Any] = {}
        self._layers: dict[tuple[RoutedShape, MegaMoeConfig], GroupLayer] = {}

    def layer(self, shape: RoutedShape, config: MegaMoeConfig) -> GroupLayer:
        """The layer of these sizes; the first call waits for all ranks.

        Raises:
            UsageError: a graph is being captured and the ranks have to meet first; they disagree, or two of
                them share a GPU.
            DeviceError: a GPU is no Hopper, lacks memory or cannot address another's; or another rank failed.
        """
        torch = import_torch()
        if torch.cuda.current_device() != self._device:
            raise UsageError(
                f"tensors on cuda:{torch.cuda.current_device()}, and the group's layers are on "
                f"cuda:{self._device}",
                "use one GPU a rank",
            )
        key = (shape, config)
        if key not in self._layers:
            if torch.cuda.is_current_stream_capturing():
                raise UsageError(
                    "the ranks have not met for this layer yet, and a graph is being captured",
                    "call mega_moe once on every rank before the capture",
                )
            offers = collectively(self._group, lambda: self._offer(shape, config))
            check_offers(offers, shape.rank, _DISAGREE)
            self._layers[key] = GroupLayer(self._group, shape, config)
        return self._layers[key]

    def keep(self, key: Hashable, call: Any) -> None:
        """Keep a call; the oldest go first."""
        if len(self.calls) >= _MOST_CALLS:
            self.calls.pop(next(iter(self.calls)))
        self.calls[key] = call

    def check(self) -> None:
        """Wait for the GPU.

        Raises:
            DeviceError: a call had a fault.
        """
        import_torch().cuda.synchronize(self._device)
        for layer in self._layers.values():
            if (fault := layer.ordered.exchange.fault()) is not None:
                raise fault

    def close(self) -> None:
        """Wait for the GPU and free all layers."""
        torch = import_torch()
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()
            for layer in self._layers.values():
                layer.close()
        self._layers.clear()
        self.calls.clear()

    def _offer(self, shape: RoutedShape, config: MegaMoeConfig) -> Offer:
        from xstage_tune.cuda.moe_variants import moe_variant

        moe_variant(config, shape.precision, dispatch=True)  # refuses what there is no kernel of
        agreed = {
            "hidden": shape.hidden,
            "intermediate": shape.intermediate,
            "experts": shape.experts,
            "top_k": shape.top_k,
            "max_tokens": shape.most_tokens,
            "max_rows": shape.most_rows,
            "precision": shape.precision,
            "config": config.label,
        }
        return Offer(agreed, gpu_identity(self._device))


#: Of every group, made by the first call and kept until it is closed.
LAYERS: dict[ProcessGroup, GroupLayers] = {}
#: Memory whose late senders may still store to it: never to be used for anything else.
_STORED_TO_LATE: list[SymmetricMemory] = []
