"""A Triton GEMM whose epilogue stores to pinned host memory, for ``space.toml``. No GPU has run it yet."""

from __future__ import annotations

from functools import cache
from typing import Any

#: H100 and H200.
_SMS, _BF16_FLOP_PER_NS = 132, 9.89e5


def measure(asked: dict[str, Any]) -> dict[str, Any]:
    """Check a config's output against cuBLAS on inputs of the request's seed, then time it."""
    import torch

    keys = asked["keys"]
    rows, columns, depth = keys["tokens"], keys["columns"], keys["depth"] // keys["degree"]
    generator = torch.Generator("cuda").manual_seed(asked["seed"])
    a = torch.randn(rows, depth, device="cuda", dtype=torch.bfloat16, generator=generator)
    b = torch.randn(depth, columns, device="cuda", dtype=torch.bfloat16, generator=generator)
    own_rows = -(-rows // keys["degree"])
    kept, sent = _outputs(rows, columns)
    kept.zero_()
    sent.zero_()
    if "yardstick" in asked:

        def launch() -> None:
            sent.copy_(torch.matmul(a, b), non_blocking=True)

    else:
        launch = _launcher(asked["config"], a, b, kept, sent, own_rows)
    launch()
    torch.cuda.synchronize()
    wanted, found = torch.matmul(a, b), sent.to("cuda")
    if "yardstick" not in asked:
        found[:own_rows] = kept[:own_rows]
    error = ((found - wanted).abs().max() / wanted.abs().max()).item()
    times_us = []
    for _ in range(asked["repeats"]):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        launch()
        end.record()
        end.synchronize()
        times_us.append(1e3 * begin.elapsed_time(end))
    correct: bool | str = True if error < 1e-2 else f"off by {error:.2g} of the largest element"
    return {"times": times_us, "correct": correct, "counters": {"largest_error": error}}


@cache
def _outputs(rows: int, columns: int) -> tuple[Any, Any]:
    """Own memory and the pinned memory that stands for other GPUs'."""
    import torch

    kept = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
    return kept, torch.empty(rows, columns, dtype=torch.bfloat16).pin_memory()


def _launcher(config: dict[str, Any], a: Any, b: Any, kept: Any, sent: Any, own_rows: int) -> Any:
    """What launches a config's kernel, compiled at the first call."""
    from gemm import gemm  # beside this file; bursts are told without Triton

    rows, columns = kept.shape
    row_tiles = -(-rows // config["block_m"])
    grid = (row_tiles * -(-columns // config["block_n"]),)
    first = own_rows // config["block_m"] if config["order"] == "own-last" else 0

    def launch() -> None:
        gemm[grid](
            a, b, kept, sent, rows, columns, a.shape[1], own_rows, first, row_tiles,
            block_m=config["block_m"], block_n=config["block_n"], block_k=64,
            num_stages=config["stages"], num_warps=config["warps"],
        )  # fmt: skip

    return launch


def bursts(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Full tiles of other ranks' rows; the mainloop between two at the Tensor Cores' peak rate."""
    config = asked["config"]
    block_m, block_n = config["block_m"], config["block_n"]
    remote_rows = asked["tokens"] - -(-asked["tokens"] // asked["degree"])
    tiles = remote_rows // block_m * (asked["columns"] // block_n)
    depth = asked["depth"] // asked["degree"]
    full, left = divmod(tiles, _SMS)
    return [
        {
            "burst_bytes": 2 * block_m * block_n,
            "producers": producers,
            "gap_ns": 2.0 * block_m * block_n * depth * _SMS / _BF16_FLOP_PER_NS,
            "rounds": rounds,
        }
        for producers, rounds in ((_SMS, full), (left, 1))
        if producers and rounds
    ]
