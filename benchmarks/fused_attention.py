"""The fused attention as a user would deploy it: each shape tuned by ``search``, then timed by ``profile``.

    python benchmarks/fused_attention.py tune -o FOLDER [--path host|peer] [--shapes all|paper]
                                              [--tokens 8192,16384,32768,65536] [--heads 24,32,40,48]
                                              [--remote-fraction 1.0,0.875] [--platform NAME|FILE]
    python benchmarks/fused_attention.py measure FOLDER [--repeats 12] [-o FILE.json]
    python benchmarks/fused_attention.py both [options of either] [-o FILE.json]

``tune`` needs no GPU: configs come from the simulator on a platform alone, ``h200-PATH`` by default. It keeps
a file a shape, which ``--config`` of any command reads, of the paper's attention at each number of tokens and
of heads and each remote fraction, and of the other attentions that ship. ``measure`` runs what a folder holds
on a GPU, one after another, in processes that end at the limit; a row is printed, and kept in the file, as it
comes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAPER = "fa-a2a/paper"
OTHERS = (
    "fa-a2a/flux.1-1024px", "fa-a2a/cogvideox-5b", "fa-a2a/mochi", "fa-a2a/wan2.1-14b-720p",
    "fa-a2a/step-video", "fa-a2a/open-sora-2.0-768px", "fa-a2a/hunyuanvideo-720p",
)  # fmt: skip
SERIAL = ("serial-direct", "serial-copy", "serial-permute")


def tool(*arguments: str, limit_s: float, name: str = "") -> str | None:
    """Output of one command; None where it fails, which is printed under the name, or the arguments."""
    command = [sys.executable, "-m", "xstage_tune", *arguments]
    name = name or " ".join(arguments)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        print(f"{name}: not over after {limit_s:g} s", flush=True)
        return None
    if done.returncode:
        print(f"{name}: {done.stderr.strip().splitlines()[-2:]}", flush=True)
        return None
    return done.stdout


@dataclass(frozen=True)
class Shape:
    """A workload with changed keys, on the platform of a path."""

    workload: str
    changes: tuple[str, ...]
    platform: str

    @property
    def file_name(self) -> str:
        parts = (self.workload.replace("/", "-"), *self.changes, Path(self.platform).stem)
        return f"{'-'.join(parts).replace('=', '-')}.toml"

    def arguments(self) -> list[str]:
        """What search and profile have in common."""
        changed = itertools.chain.from_iterable(("--set", change) for change in self.changes)
        return ["--workload", self.workload, *changed, "--platform", self.platform]


def shapes_of(options: argparse.Namespace) -> list[Shape]:
    """The shapes to tune."""
    platform = options.platform or f"h200-{options.path}"
    points = itertools.product(
        options.remote_fraction.split(","), options.heads.split(","), options.tokens.split(",")
    )
    shapes = [
        Shape(PAPER, (f"tokens={tokens}", f"heads={heads}", f"remote_fraction={fraction}"), platform)
        for fraction, heads, tokens in points
    ]
    return shapes + [Shape(name, (), platform) for name in OTHERS if options.shapes == "all"]


def tune(shapes: Sequence[Shape], folder: Path, limit_s: float) -> None:
    """Search every shape on the simulator, and keep its config in the folder."""

    def tune_one(shape: Shape) -> None:
        target = folder / shape.file_name
        target.unlink(missing_ok=True)  # an earlier run's config must not pass for this one's
        with tempfile.TemporaryDirectory() as kept:
            store = ("--store", str(Path(kept) / "studies.db"))
            if tool("search", *shape.arguments(), "--device", "simulator", *store, limit_s=limit_s) is None:
                return
            said = tool("export", "--format", "toml", "-o", str(target), *store, limit_s=limit_s)
            if said is not None:
                print(said.strip(), flush=True)

    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # The first one fills the cache of the compiled simulator, which the others then share.
        tune_one(shapes[0])
        list(pool.map(tune_one, shapes[1:]))


def measure(folder: Path, repeats: int, limit_s: float, output: Path | None) -> None:
    """Profile every config of the folder on a GPU."""
    points: list[dict[str, Any]] = []
    path = None
    for file, tuned in tuned_configs(folder):
        if tuned["platform"]["path"] != path:
            path = tuned["platform"]["path"]
            print(f"path {path}; direct, copy, permute: speedup of fused over the serial version")
            print(line(tuple(title for title, _ in COLUMNS)), flush=True)
        point = measure_one(file, tuned, repeats, limit_s)
        if point is None:
            continue
        points.append(point)
        print(line(cells(point)), flush=True)
        if output is not None:
            output.write_text(json.dumps(points, indent=1) + "\n")


def tuned_configs(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Files of :func:`tune` with what they hold: by path, the paper's attention first, then by size."""

    def place(entry: tuple[Path, dict[str, Any]]) -> tuple[str, bool, float, int, int]:
        path, workload = entry[1]["platform"]["path"], entry[1]["workload"]
        remote = workload.get("remote_fraction", 0)
        return path, workload["name"] != PAPER, -remote, workload["heads"], workload["tokens"]

    return sorted(((file, tomllib.loads(file.read_text())) for file in folder.glob("*.toml")), key=place)


def measure_one(file: Path, tuned: dict[str, Any], repeats: int, limit_s: float) -> dict[str, Any] | None:
    """The only point of one profile run, with its workload's name and its config."""
    workload, platform = tuned["workload"], tuned["platform"]
    keys = ("tokens", "heads", "remote_fraction")
    changes = tuple(f"{key}={workload[key]}" for key in keys if key in workload)
    arguments = Shape(workload["name"], changes, platform["name"]).arguments()
    with tempfile.TemporaryDirectory() as kept:
        arguments += ["--store", str(Path(kept) / "runs.db"), "--config", str(file), "--device", "cuda"]
        arguments += ["--path", platform["path"], "--repeats", str(repeats), "--format", "json"]
        said = tool("profile", *arguments, limit_s=limit_s)
    if said is None:
        return None
    found = json.loads(said)
    return {"workload": workload["name"], "config": found["config"], **found["points"][0]}


#: Title and width of each column; ``~`` is the simulator's prediction of the one before it.
COLUMNS = (
    ("attention", -20), ("tokens", 7), ("heads", 6), ("remote", 7), ("config", -37), ("T_FA us", 9),
    ("fused us", 9), ("E_res us", 9), ("~", 7), ("of T_FA", 8), ("H", 7), ("direct", 7), ("copy", 7),
    ("permute", 8), ("T_RS us", 8), ("~", 6),
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
        f"{point['remote_ranks']}/{point['ranks']}",
        f"{config['block_m']}x{config['block_n']}{'/2' if config['kv_splits'] == 2 else ''} "
        f"{config['output_staging']} {config['tile_order']} {config['store_flavour']}",
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


def parsed() -> argparse.Namespace:
    """The command line."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--limit-s", type=float, default=120.0, help="of one search or profile run")
    tuning = argparse.ArgumentParser(add_help=False, parents=[common])
    tuning.add_argument("--path", choices=("host", "peer"), default="host")
    tuning.add_argument("--tokens", default="8192,16384,32768,65536", help="of the paper's attention")
    tuning.add_argument("--heads", default="32", help="of all ranks, of the paper's attention")
    tuning.add_argument("--remote-fraction", default="1.0", help="of the paper's attention, one or several")
    tuning.add_argument("--platform", help="of the searches, in place of h200-PATH")
    tuning.add_argument("--shapes", choices=("all", "paper"), default="all")
    measuring = argparse.ArgumentParser(add_help=False)
    measuring.add_argument("--repeats", type=int, default=12)
    measuring.add_argument("-o", "--output", type=Path, metavar="FILE.json")

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    tune_command = commands.add_parser("tune", parents=[tuning], help="search on the simulator")
    tune_command.add_argument("-o", "--folder", type=Path, required=True, help="where the configs go")
    measure_command = commands.add_parser("measure", parents=[common, measuring], help="profile on a GPU")
    measure_command.add_argument("folder", type=Path, help="of a tune command")
    commands.add_parser("both", parents=[tuning, measuring], help="one after the other")
    return parser.parse_args()


def main() -> None:
    options = parsed()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if options.command == "both" else options.folder
        if options.command != "measure":
            tune(shapes_of(options), folder, options.limit_s)
        if options.command != "tune":
            measure(folder, options.repeats, options.limit_s, options.output)


if __name__ == "__main__":
    main()
