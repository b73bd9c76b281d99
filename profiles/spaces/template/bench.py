"""Times a config of a kernel for xstage-tune: put your own in the place of the blocked product."""

import os
from time import perf_counter

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # the stand-in's; before NumPy is loaded

import numpy as np


def measure(asked):
    """Answer one request: config, keys, repeats and seed in; times in the space's unit out.

    Build the kernel for the config, run it once on inputs made from the seed, and compare the output with a
    reference; then time it. What this prints goes to stderr.
    """
    keys, random = asked["keys"], np.random.default_rng(asked["seed"])
    a = random.random((keys["tokens"], keys["depth"]), np.float32)
    b = random.random((keys["depth"], keys["columns"]), np.float32)
    out = np.zeros((keys["tokens"], keys["columns"]), np.float32)
    run = (lambda: np.matmul(a, b, out=out)) if "yardstick" in asked else kernel(asked["config"], a, b, out)
    run()
    error = float(np.abs(out - a @ b).max())
    times_us = []
    for _ in range(asked["repeats"]):
        begin = perf_counter()
        run()
        times_us.append(1e6 * (perf_counter() - begin))
    return {
        "times": times_us,
        "correct": True if error < 1e-2 else f"an element differs by {error:g}",
        "counters": {"largest_error": error},
    }


def kernel(config, a, b, out):
    """What runs one launch of a config."""
    rows = range(0, a.shape[0], config["block_m"])
    columns = range(0, b.shape[1], config["block_n"])
    tiles = [(m, n) for m in rows for n in columns]
    if config["order"] == "columns":
        tiles.sort(key=lambda tile: tile[1])

    def run():
        for m, n in tiles:
            tile = slice(m, m + config["block_m"]), slice(n, n + config["block_n"])
            out[tile] = a[tile[0]] @ b[:, tile[1]]

    return run


def bursts(asked):
    """A config's bursts: here each tile is stored to another GPU as soon as it is computed.

    A phase has burst_bytes (of one SM), producers (SMs that store together), gap_ns (work between two
    bursts), rounds (bursts of an SM), and if known flops and memory_bytes of all SMs.
    """
    config, sms = asked["config"], 132
    tiles = -(-asked["tokens"] // config["block_m"]) * -(-asked["columns"] // config["block_n"])
    area = config["block_m"] * config["block_n"]
    flops_per_ns = 5000.0  # of one SM
    return [
        {
            "burst_bytes": 2 * area,
            "producers": min(sms, tiles),
            "gap_ns": 2 * area * asked["depth"] / flops_per_ns,
            "rounds": -(-tiles // sms),
        }
    ]
