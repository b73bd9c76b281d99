"""The reduction behind Combine on a GPU."""

from __future__ import annotations

import numpy as np
from cuda.core import Device, Stream
from numpy.typing import NDArray

from xstage_tune.cuda.driver import launch
from xstage_tune.cuda.fused_loading import compile_fused, load_kernels
from xstage_tune.cuda.moe_arguments import REDUCE_ARGUMENTS
from xstage_tune.cuda.moe_kernel import TIMEOUT_S, MegaMoe
from xstage_tune.cuda.variants import KernelVariant
from xstage_tune.model.checks import NS_PER_S

REDUCE_KERNEL = "reduce_combine"
REDUCE = KernelVariant("megamoe/reduce.cu", (REDUCE_KERNEL,))
#: At most: ``__launch_bounds__`` of the kernel.
_THREADS = 256
_CTAS_PER_SM = 8


class ReduceCombine:
    """Sums every token's rows, weighted by the router, in the order of its choices.

    Queued behind this rank's launch it waits for the other ranks' rows of the same launch. It has read all
    rows when it ends: only then may any rank's next launch store over them, so ranks meet in between, or have
    two buffers of rows in turn.

    Args:
        kernel: whose launches are before it in the stream.
    """

    def __init__(self, device: Device, kernel: MegaMoe, *, timeout_s: float = TIMEOUT_S) -> None:
        self._kernel = load_kernels(device, compile_fused(REDUCE))[REDUCE_KERNEL]
        self._of, self._timeout_ns = kernel, round(timeout_s * NS_PER_S)
        self._ctas = _CTAS_PER_SM * int(device.properties.multiprocessor_count)

    def prepare(
        self, combined: int, weights: int, output: int, tokens: int, top_k: int, words: int = 0
    ) -> NDArray[np.void]:
        """Arguments of :meth:`launch`.

        Args:
            combined: address of ``[tokens, top_k, hidden]`` bf16.
            weights: of ``[tokens, top_k]`` fp32.
            output: of ``[tokens, hidden]`` bf16.
            words: of ``uint32[ranks]``, one of every sender, which have to have ended as many launches as
                this rank; 0 where all of them are before it in the stream.
        """
        arguments = np.zeros(1, REDUCE_ARGUMENTS)
        row = arguments[0]
        row["combined"], row["weights"], row["output"], row["words"] = combined, weights, output, words
        row["state"], row["fault"] = self._of.state, self._of.fault
        row["timeout_ns"], row["ranks"] = self._timeout_ns, self._of.shape.ranks
        row["tokens"], row["top_k"], row["hidden"] = tokens, top_k, self._of.shape.hidden
        return arguments

    def launch(self, arguments: NDArray[np.void], stream: Stream, *, ctas: int | None = None) -> None:
        """Queue it. Allocates and waits for nothing on the host."""
        launch(
            self._kernel,
            stream,
            grid=(ctas or max(1, min(self._ctas, int(arguments["tokens"][0]))), 1),
            threads=_THREADS,
            shared_bytes=0,
            arguments=arguments,
            cooperative=False,
        )
