"""What is fuzzed: each makes an input by a random generator in a folder, and uses it as the product does."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from tests.devices import test_replay as bursts
from tests.emulation import test_recording as skeletons
from tests.export.cases import FLASH, WAN, tuned
from tests.fuzz.harness import BrokenError, Target, command, program
from tests.fuzz.kills import kills
from tests.fuzz.mutations import HOSTILE, mutated_bytes, mutated_keys
from tests.fuzz.powercuts import power_cuts
from tests.fuzz.stops import stops
from tests.fuzz.stores import stores
from tests.spans.files import chrome_file, nsight_file
from tests.spans.recorded import recorded
from xstage_tune.audit.run import audit
from xstage_tune.base.assets import data_dir
from xstage_tune.base.errors import XStageError
from xstage_tune.base.json_output import to_json
from xstage_tune.export.bundle import load_bundle
from xstage_tune.export.record import sealed
from xstage_tune.families.binding import bind, default_config
from xstage_tune.families.config_files import config_keys, load_config
from xstage_tune.families.workload import Workload
from xstage_tune.families.workload_files import load_workload
from xstage_tune.launches.recording import MEMBER
from xstage_tune.launches.replay import ReplayedDevice
from xstage_tune.platforms.loader import load_platform
from xstage_tune.report.imported_tables import imported_tables
from xstage_tune.spans import save_buffer
from xstage_tune.spans.bursts import bursts_of
from xstage_tune.spans.importing import read_spans

_LAYERS = (FLASH, WAN, "megamoe/glm-4.5", "fa-a2a/paper")


def platforms(random: Random, folder: Path) -> None:
    """A platform file, loaded and audited with."""
    path = _profile(random, folder, "platforms")
    platform = load_platform(str(path))
    for name in random.sample(_LAYERS, 2):
        audit(_layer(name), platform)
    if random.random() < 0.05:
        command("platforms", "show", str(path), *_form(random))


def workloads(random: Random, folder: Path) -> None:
    """A workload file or overrides of one, loaded and audited."""
    overrides: list[str] = []
    if random.random() < 0.3:
        name = random.choice(_LAYERS)
        keys = list(_layer(name).model_dump(exclude_none=True))
        overrides = [f"{random.choice(keys)}={_text(random)}" for _ in range(random.choice((1, 2)))]
    else:
        name = str(_profile(random, folder, "workloads"))
    workload = load_workload(name, overrides)
    audit(workload, _platform(random.choice(("h200-host", "paper-nvlink5"))))
    if random.random() < 0.05:
        command("workloads", "show", name, *(f"--set={override}" for override in overrides), *_form(random))


def configs(random: Random, folder: Path) -> None:
    """A config file, loaded and audited with."""
    layer = random.choice(_LAYERS)
    workload, platform = _layer(layer), _platform("h200-host")
    keys: dict[str, Any] = config_keys(default_config(workload, platform))
    path = _written(random, folder, keys if random.random() < 0.5 else {"config": keys})
    config = load_config(path)
    bound = bind(workload, platform, config)
    if bound.check(config).feasible:
        audit(workload, platform, config)
    if random.random() < 0.05:
        command("audit", "-w", layer, "-p", "h200-host", "--config", str(path), *_form(random))


def recordings(random: Random, folder: Path) -> None:
    """A recording, replayed; what comes back of damage is what was recorded."""
    of_bursts = random.random() < 0.5
    members, whole = _recorded(of_bursts)
    file = folder / ("run.xsrec" if of_bursts else "run.xsemu")
    meant = random.random() < 0.5  # by who makes a valid zip of it, whose checksums tell nothing
    if meant:
        file.write_bytes(_zipped(random, _with_another_member(random, members)))
    else:
        file.write_bytes(mutated_bytes(random, whole))
    if random.random() < 0.03:
        command("calibrate" if of_bursts else "emulate", "--device", f"replay:{file}", *_form(random))
    launches: Sequence[Any] = [run.launch for run in bursts.RUNS] if of_bursts else skeletons.ORDER
    runs: Sequence[Any] = bursts.RUNS if of_bursts else skeletons.RUNS
    with closing(ReplayedDevice(file, "calibrate" if of_bursts else "emulate")) as device:
        replayed = list(device.run(launches))
        for outcome in replayed:
            if len(outcome.table.lanes):
                outcome.table.end_ns()
    if not meant and any(one.figures != other.figures for one, other in zip(replayed, runs, strict=True)):
        raise BrokenError("a damaged recording gives other figures")


def spans(random: Random, folder: Path) -> None:
    """A file of spans of any kind, read and taken as bursts."""
    file = folder / "spans"
    file.write_bytes(mutated_bytes(random, random.choice(_span_files())))
    timeline = read_spans(file)
    imported_tables(timeline.about, timeline.table)
    name = timeline.about.names[timeline.table.spans["kind"][0]]
    bursts_of(timeline.about, timeline.table, [name])
    if random.random() < 0.03:
        command("import", str(file), "--store", str(folder / "store.db"), *_form(random))


@cache
def _span_files() -> tuple[bytes, ...]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace = chrome_file(folder / "trace.json").read_bytes()
        save_buffer(recorded(), folder / "own.spans", {1: "work", 2: "store"}, roles=("math",))
        export = nsight_file(folder / "report.sqlite").read_bytes()
        return trace, gzip.compress(trace), export, (folder / "own.spans").read_bytes()


def bundles(random: Random, folder: Path) -> None:
    """Exports in a folder of which one is wrong; none serves another config than was exported."""
    exports = random.sample(_exports(), random.choice((1, 2, 3)))
    suffix = random.choice((".json", ".toml"))
    write: Callable[[Any], str] = json.dumps if suffix == ".json" else tomli_w.dumps
    meant = random.random() < 0.3  # with a hash that fits
    for number, keys in enumerate(exports):
        path = folder / f"{number}{suffix}"
        if number:
            path.write_text(write(sealed(keys)))
        elif meant:
            path.write_text(write(sealed(mutated_keys(random, keys))))
        elif random.random() < 0.5:
            path.write_text(write(mutated_keys(random, sealed(keys))), errors="surrogatepass")
        else:
            path.write_bytes(mutated_bytes(random, write(sealed(keys)).encode()))
    bundle = load_bundle(folder)
    for export in () if meant else bundle.exports:
        if export.keys() not in exports:
            text = (folder / f"0{suffix}").read_text()
            if "sha256" in (json.loads if suffix == ".json" else tomllib.loads)(text):
                raise BrokenError("an export that was changed is taken for whole")
    for name in (FLASH, WAN):
        workload = _layer(name, random.choice(("", "tokens=1", "tokens=300", "tokens=1000000")))
        gpu = random.choice((None, "NVIDIA H200"))
        try:
            found = bundle.lookup(workload, gpu=gpu)
            if name == FLASH:
                bundle.choose_schedule([random.randrange(300)] * workload.local_experts, workload, gpu=gpu)  # type: ignore[attr-defined]
        except XStageError:
            continue
        to_json(found)


def options(random: Random, folder: Path) -> None:
    """A command line."""
    name = random.choice(list(_COMMANDS))
    arguments = [*name.split(), *_COMMANDS[name]]
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        option, values = random.choice(_OPTIONS)
        value = random.choice(values) if values and random.random() < 0.6 else _text(random)
        arguments += [option] if values is None else [option, value.replace("FOLDER", str(folder))]
    if random.random() < 0.1:
        random.shuffle(arguments)
    if random.random() < 0.1:
        arguments.insert(random.randrange(len(arguments) + 1), _text(random))
    run = program if random.random() < 0.05 else command
    run(*(one.replace("\0", "") for one in arguments))


#: What ends soon by itself; a search and a simulation are of few tiles.
_SMALL = ("-w", FLASH, "-p", "h200-host", "--set", "tokens_per_rank=8")
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "audit": ("-w", "fa-a2a/paper", "-p", "h200-host", "--closed-forms"),
    "emulate": (*_SMALL, "--device", "simulator", "--repeats", "1"),
    "search": (*_SMALL, "--trials", "2"),
    "calibrate": ("--device", "replay:nowhere.xsrec"),
    "profile": ("--device", "replay:nowhere.xsprof"),
    "export": ("-o", "/proc/nowhere/a.json"),
    "import": ("/dev/zero",),
    "report": ("-o", "/proc/nowhere/a.html"),
    "trace": ("-o", "/proc/nowhere/a.json.gz"),
    "platforms list": (),
    "platforms show": ("h200-host",),
    "platforms new": ("mine",),
    "platforms gpu": (),
    "workloads list": (),
    "workloads show": ("fa-a2a/paper",),
    "workloads new": ("mine",),
    "store info": (),
    "store list": (),
    "store show": ("latest",),
    "store check": (),
    "store rm": ("latest",),
    "doctor --help": (),
}
_NUMBERS = tuple(str(one) for one in HOSTILE if isinstance(one, int | float) and len(str(one)) < 40)
_OPTIONS: tuple[tuple[str, tuple[str, ...] | None], ...] = (
    ("-w", (*_LAYERS, "megamoe/mixtral-8x7b", "FOLDER", "FOLDER/none.toml")),
    ("-p", ("h200-host", "paper-nvlink5", "h200-peer", "FOLDER")),
    ("--set", ("tokens_per_rank=16", "tokens=64", "experts=8", "heads=1", "remote_fraction=0.5", "a.b.c=1")),
    ("--config", ("default", "study:latest", "FOLDER", "/dev/zero", "/dev/null")),
    ("--schedule", ("all", "wave", "interleaved", "sequential")),
    ("--placement", ("even", "share", "both")),
    (
        "--store",
        ("FOLDER/a.db", "FOLDER", "/dev/null", "sqlite:///FOLDER/b.db", "postgresql://u:p@localhost:1/x"),
    ),
    ("--format", ("table", "json", "toml", "header", "t4", "kernel-tuner")),
    ("--device", ("simulator", "cuda", "cuda:99", "replay:FOLDER", "auto", "emulate", "replay:/dev/zero")),
    ("--tile-ns", ("l1=1,l2=1", "q=5", "l1=1e308,l2=1", "l1=0,l2=0", "l1=nan,l2=1")),
    ("--sweep", ("lead=1..32", "tokens=64,128", "lead=1..99999999", "remote_fraction=0,0.5,1", "lead=9..1")),
    ("--path", ("host", "peer", "local")),
    ("--store-flavour", ("st.v4", "tma", "all")),
    ("--objective", ("latency", "stall")),
    ("--sampler", ("tpe", "gp", "random", "exhaustive")),
    ("--study", ("latest", "latest-any", "x")),
    ("--run", ("latest", "x")),
    ("--from", ("latest", "x")),
    ("--burst-bytes", ("32KiB", "0", "7", "1e9GiB", "FOLDER")),
    ("--suite", ("paper-84", "latest")),
    ("--resume", ("latest", "x")),
    ("-o", ("FOLDER/out.json", "FOLDER/a/b/c.html", "FOLDER", "/dev/null", "/dev/full", "/proc/1/x")),
    ("--output", ("FOLDER/out.html",)),
    ("--out", ("FOLDER/out.toml",)),
    ("--record", ("FOLDER/r.xsemu", "FOLDER")),
    *((name, _NUMBERS) for name in ("--staging-depth", "--repeats", "--seed", "--tolerance", "--timeout")),
    ("--trials", ("1", "2", "0", "-1", "x")),
    ("--launch", _NUMBERS),
    ("--max-events", _NUMBERS),
    *(
        (name, None)
        for name in ("--force", "--unfinished", "--strict", "--closed-forms", "--no-dependencies")
    ),
    *((name, None) for name in ("--retry-failed", "--completion-coupled", "-h", "--all", "-q", "--version")),
)

TARGETS: tuple[Target, ...] = (
    platforms,
    workloads,
    configs,
    recordings,
    spans,
    bundles,
    stores,
    kills,
    power_cuts,
    stops,
    options,
)


_platform = cache(load_platform)


@cache
def _layer(name: str, override: str = "") -> Workload:
    return load_workload(name, [override] if override else [])


def _form(random: Random) -> tuple[str, ...]:
    return ("--format", random.choice(("json", "table")))


def _text(random: Random) -> str:
    """An argument."""
    value = random.choice(HOSTILE)
    text = value if isinstance(value, str) else json.dumps(value)
    return random.choice((text, f"tokens={text}", f"lead={text}", f"{text}=1", "\udcff" + text, text[:50]))


def _profile(random: Random, folder: Path, kind: str) -> Path:
    keys, data = random.choice(_shipped(kind))
    if random.random() < 0.6:
        return _written(random, folder, keys, ".toml")
    path = folder / "mine.toml"
    path.write_bytes(mutated_bytes(random, data))
    return path


def _written(random: Random, folder: Path, keys: dict[str, Any], suffix: str = "") -> Path:
    """A file of changed keys, or changed in its bytes."""
    suffix = suffix or random.choice((".toml", ".json"))
    path = folder / f"mine{suffix}"
    changed = mutated_keys(random, keys, plain=suffix == ".toml")
    try:
        data = (tomli_w.dumps(changed) if suffix == ".toml" else json.dumps(changed)).encode()
    except (ValueError, TypeError):  # a number of more digits than Python prints, a key that is none
        data = json.dumps(keys).encode()
    path.write_bytes(mutated_bytes(random, data) if random.random() < 0.2 else data)
    return path


@cache
def _shipped(kind: str) -> list[tuple[dict[str, Any], bytes]]:
    files = sorted((data_dir("profiles") / kind).rglob("*.toml"))
    return [(tomllib.loads(file.read_text()), file.read_bytes()) for file in files]


@cache
def _exports() -> list[dict[str, Any]]:
    return [tuned(FLASH).keys(), tuned(WAN).keys(), tuned(FLASH, "tokens_per_rank=1024").keys()]


@cache
def _recorded(of_bursts: bool) -> tuple[dict[str, bytes], bytes]:
    """Members of a small recording, and the file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run"
        with bursts.recorded(file) if of_bursts else skeletons.recorded(file) as writer:
            for run in (bursts.COPIED, *bursts.RUNS) if of_bursts else skeletons.RUNS:
                writer.keep(run)
        with zipfile.ZipFile(file) as archive:
            return {name: archive.read(name) for name in archive.namelist()}, file.read_bytes()


def _with_another_member(random: Random, members: Mapping[str, bytes]) -> dict[str, bytes]:
    name = random.choice((*members, MEMBER))
    if name != MEMBER or random.random() < 0.2:
        return {**members, name: mutated_bytes(random, members[name])}
    keys = mutated_keys(random, json.loads(members[MEMBER]), plain=False)
    try:
        return {**members, MEMBER: json.dumps(keys).encode()}
    except ValueError:
        return {**members, MEMBER: b"{}"}


def _zipped(random: Random, members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    how = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    with zipfile.ZipFile(buffer, "w", how) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()
