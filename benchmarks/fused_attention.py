"""The fused attention as a user would deploy it: each shape tuned by ``search``, then timed by ``profile``.

    python benchmarks/fused_attention.py [--path host|peer] [--tokens 8192,16384,32768,65536]
                                         [--shapes all|paper] [--repeats 12] [--limit-s 120] [-o FILE.json]

The paper's attention at each number of tokens, and the other attentions that ship at theirs. Configs come
from the simulator on the platform ``h200-PATH`` alone, for all shapes at a time; then the GPU runs one after
another, in processes that end at the limit. A row is printed as it comes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

PAPER = "fa-a2a/paper"
OTHERS = (
    "fa-a2a/flux.1-1024px", "fa-a2a/cogvideox-5b", "fa-a2a/mochi", "fa-a2a/wan2.1-14b-720p",
    "fa-a2a/step-video", "fa-a2a/open-sora-2.0-768px", "fa-a2a/hunyuanvideo-720p",
)  # fmt: skip
SERIAL = ("serial-direct", "serial-copy", "serial-permute")


def tool(*arguments: str, limit_s: float) -> dict[str, Any] | None:
    """JSON of one command; None where it fails, which is printed."""
    command = [sys.executable, "-m", "xstage_tune", *arguments, "--format", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        print(f"{' '.join(arguments)}: not over after {limit_s:g} s", flush=True)
        return None
    if done.returncode:
        print(f"{' '.join(arguments)}: {done.stderr.strip().splitlines()[-2:]}", flush=True)
        return None
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@dataclass(frozen=True)
class Shape:
    """A workload, at another number of tokens than its own where one is given."""

    workload: str
    tokens: int | None
    folder: Path

    def arguments(self, path: str) -> list[str]:
        """What search and profile have in common."""
        changed = [] if self.tokens is None else ["--set", f"tokens={self.tokens}"]
        name = f"{self.workload.replace('/', '-')}-{self.tokens}.db"
        common = ["--platform", f"h200-{path}", "--store", str(self.folder / name)]
        return ["--workload", self.workload, *changed, *common]


def tune(shape: Shape, options: argparse.Namespace) -> bool:
    """Search on the simulator; whether it found something."""
    arguments = ["search", *shape.arguments(options.path), "--device", "simulator"]
    return tool(*arguments, limit_s=options.limit_s) is not None


def measure(shape: Shape, options: argparse.Namespace) -> dict[str, Any] | None:
    """Profile the answer of :func:`tune`; the only point, with its config."""
    arguments = ["profile", *shape.arguments(options.path), "--config", "study:latest", "--device", "cuda"]
    arguments += ["--path", options.path, "--repeats", str(options.repeats)]
    found = tool(*arguments, limit_s=options.limit_s)
    return found and {"workload": shape.workload, "config": found["config"], **found["points"][0]}


#: Title and width of each column; ``~`` is the simulator's prediction of the one before it.
COLUMNS = (
    ("attention", -20), ("tokens", 7), ("heads", 6), ("config", -26), ("T_FA us", 9), ("fused us", 9),
    ("E_res us", 9), ("~", 7), ("of T_FA", 8), ("H", 7), ("direct", 7), ("copy", 7), ("permute", 8),
    ("T_RS us", 8), ("~", 6),
)  # fmt: skip


def cells(point: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    config, beside = point["config"], point["predicted_beside_measured"]
    residual, issue = beside["residual_ns"], beside["issue_ns"]
    hiding = point["against"]["serial-direct"]["hiding_ratio"]
    return (
        point["workload"].removeprefix("fa-a2a/"),
        f"{point['tokens']}",
        f"{point['heads']}x{point['head_dim']}",
        f"{config['block_m']}x{config['block_n']} {config['output_staging']} {config['store_flavour']}",
        *(f"{point['implementations'][one]['time_ns'] / 1e3:.1f}" for one in ("attention", "fused")),
        *(f"{residual[one] / 1e3:.1f}" for one in ("measured", "simulated")),
        f"{100 * point['residual_of_attention']:.2f}%",
        "-" if hiding is None else f"{100 * hiding:.1f}%",
        *(f"{point['against'][serial]['speedup']:.3f}" for serial in SERIAL),
        *(f"{issue[one] / 1e3:.2f}" for one in ("measured", "simulated")),
    )


def line(of: tuple[str, ...]) -> str:
    widths = (width for _, width in COLUMNS)
    return " ".join(
        cell.ljust(-width) if width < 0 else cell.rjust(width) for cell, width in zip(of, widths, strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", choices=("host", "peer"), default="host")
    parser.add_argument("--tokens", default="8192,16384,32768,65536")
    parser.add_argument("--shapes", choices=("all", "paper"), default="all")
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--limit-s", type=float, default=120.0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    print(f"path {options.path}; direct, copy, permute: speedup of fused over the serial version")
    print(line(tuple(title for title, _ in COLUMNS)), flush=True)
    points = []
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = Path(name)
        shapes = [Shape(PAPER, int(tokens), folder) for tokens in options.tokens.split(",")]
        if options.shapes == "all":
            shapes += [Shape(workload, None, folder) for workload in OTHERS]
        # The first one fills the cache of the compiled simulator, which the others then share.
        tuned = [tune(shapes[0], options), *pool.map(lambda shape: tune(shape, options), shapes[1:])]
        for shape in compress(shapes, tuned):
            point = measure(shape, options)
            if point is not None:
                points.append(point)
                print(line(cells(point)), flush=True)
    if options.output is not None:
        options.output.write_text(json.dumps(points, indent=1) + "\n")


if __name__ == "__main__":
    main()
