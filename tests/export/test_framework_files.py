"""What a framework looks up in a file is what the studies found; readers here follow the documented formats.

None of the frameworks installs without a GPU's libraries, so these readers were written from what
:mod:`xstage_tune.export.framework_files` cites: the names that are looked for, and which keys are refused.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.conftest import RunCli
from tests.export.cases import FLASH, WAN, changed, tuned
from tests.own_kernel.cases import space_file
from xstage_tune.base.errors import UsageError
from xstage_tune.export.framework_files import framework_file, read_template
from xstage_tune.export.names import ExportFormat
from xstage_tune.export.record import TunedConfig
from xstage_tune.families.own_kernel.config import OwnConfig
from xstage_tune.families.own_kernel.workload import OwnSpace
from xstage_tune.platforms.loader import load_platform
from xstage_tune.search.journal import studied_workload
from xstage_tune.store.facade import Store

VLLM, SGLANG, DEEPEP = (
    ExportFormat.VLLM_FUSED_MOE,
    ExportFormat.SGLANG_FUSED_MOE,
    ExportFormat.SGLANG_DEEPEP,
)
MOE_KEYS = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages"}
AXES = {"size": [1, 2, 3, 4], "warps": [4, 8], "order": ["rows", "columns"]}
ENTRY = {
    "BLOCK_SIZE_M": "size",
    "BLOCK_SIZE_N": "columns",
    "BLOCK_SIZE_K": 64,
    "GROUP_SIZE_M": 1,
    "num_warps": "warps",
    "num_stages": 3,
    "ORDER": "order",
}
FILE = {"E": 8, "N": "columns", "dtype": "fp8_w8a8", "block_shape": [128, 64], "triton_version": "3.4.0"}
MOE = {"kernel": "own/test", "file": FILE, "entry": ENTRY}
LINKS = {
    f"num_max_{link}_chunked_{way}_tokens": tokens
    for link in ("nvl", "rdma")
    for way, tokens in (("send", 8), ("recv", 256))
}
PART = {"num_sms": "sms", **LINKS}
DEEP = {
    "kernel": "own/test",
    "normal_dispatch": PART | {"num_max_nvl_chunked_send_tokens": "chunk"},
    "normal_combine": PART,
}
DEEP_AXES = {"sms": [20, 21, 24], "chunk": [8, 300]}


def found(tokens: int, values: dict[str, Any], axes: Any = None, study: str = "", **keys: Any) -> TunedConfig:
    """An export of an own space, as if a search had found ``values`` for these tokens."""
    space = OwnSpace.model_validate(
        {
            "name": "own/test",
            "command": ["measure"],
            "axes": axes or AXES,
            "default": values,
            "tokens": tokens,
            "keys": {"columns": 768, **keys},
        }
    )
    export = tuned(WAN, platform=load_platform("h200-host")).model_copy(
        update={"workload": space, "config": OwnConfig(values=values)}
    )
    return changed(export, provenance={"study_id": study or f"study-{tokens}"})


def written(folder: Path, to: ExportFormat, keys: dict[str, Any], *exports: TunedConfig) -> Path:
    """The file in a framework's folder."""
    file = folder / "keys.toml"
    file.write_text(tomli_w.dumps(keys))
    place, text = framework_file(to, read_template(to, file), "keys.toml", exports)
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_text(text)
    return folder / place


def of_nearest(entries: dict[str, Any], tokens: int) -> dict[str, Any]:
    """As both fused-MoE readers choose: every key is a number of tokens, and the nearest is taken."""
    by_tokens = {int(key): entry for key, entry in entries.items()}
    assert all(entry.keys() >= MOE_KEYS for entry in by_tokens.values())
    entry: dict[str, Any] = by_tokens[min(by_tokens, key=lambda one: abs(one - tokens))]
    return entry


def looked_up(to: ExportFormat, folder: Path, tokens: int) -> dict[str, Any]:
    """What the framework runs for ``tokens`` of E = 8, N = 768 in fp8 by blocks of 128 x 64 on an H200."""
    start = "E=8,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape="
    place = f"{start}[128,64].json" if to == VLLM else f"configs/triton_3_4_0/{start}[128, 64].json"
    return of_nearest(json.loads((folder / place).read_text()), tokens)


@pytest.mark.parametrize("to", [VLLM, SGLANG])
def test_what_is_looked_up_for_each_size_is_what_its_study_found(to: ExportFormat, tmp_path: Path) -> None:
    answers = {
        tokens: {"size": 1 + place, "warps": 4 + 4 * (place % 2), "order": AXES["order"][place % 2]}
        for place, tokens in enumerate((1024, 2, 64, 300))
    }
    written(tmp_path, to, MOE, *(found(tokens, values) for tokens, values in answers.items()))
    for tokens, values in answers.items():
        entry = looked_up(to, tmp_path, tokens + 1)
        read = {"size": entry["BLOCK_SIZE_M"], "warps": entry["num_warps"], "order": entry["ORDER"]}
        assert read == values
        assert (entry["BLOCK_SIZE_N"], entry["BLOCK_SIZE_K"], entry["GROUP_SIZE_M"]) == (768, 64, 1)


def test_each_reader_finds_the_gpu_and_the_projection_by_its_own_name(tmp_path: Path) -> None:
    values = {"size": 1, "warps": 4, "order": "rows"}
    other = changed(found(64, values), platform={"gpu": "NVIDIA H200 NVL"})
    plain = {"E": 8, "N": 768, "triton_version": "3.4.0"}
    assert written(tmp_path, VLLM, MOE | {"file": plain}, other).name == (
        "E=8,N=768,device_name=NVIDIA_H200.json"
    )
    down = plain | {"down": True, "per_channel_quant": True}
    assert written(tmp_path, SGLANG, MOE | {"file": down}, other).name == (
        "E=8,N=768,device_name=NVIDIA_H200_NVL,per_channel_quant=True_down.json"
    )


def test_deepep_reads_both_parts_as_they_were_found(tmp_path: Path) -> None:
    file = written(tmp_path, DEEPEP, DEEP, found(64, {"sms": 24, "chunk": 8}, DEEP_AXES))
    read = json.loads(file.read_text())
    assert read == {"normal_dispatch": {"num_sms": 24, **LINKS}, "normal_combine": {"num_sms": 24, **LINKS}}


SOME = {"size": 2, "warps": 4, "order": "rows"}
WITHOUT_ORDER = {key: source for key, source in ENTRY.items() if key != "ORDER"}
WITHOUT_WARPS = {key: source for key, source in ENTRY.items() if key != "num_warps"}


@pytest.mark.parametrize(
    ("to", "keys", "exports", "named"),
    [
        (VLLM, {"entry": WITHOUT_WARPS}, [found(8, SOME)], "entry.num_warps"),
        (VLLM, {"entry": ENTRY | {"num_warps": 1.5}}, [found(8, SOME)], "entry.num_warps"),
        (VLLM, {"entry": ENTRY | {"num_warps": "order"}}, [found(8, SOME)], "entry.num_warps"),
        (VLLM, {"entry": ENTRY | {"num_warps": "wraps"}}, [found(8, SOME)], "'wraps'"),
        (VLLM, {"entry": WITHOUT_ORDER}, [found(8, SOME)], "axes.order"),
        (VLLM, {"file": FILE | {"N": "size"}}, [found(8, SOME)], "file.N"),
        (VLLM, {"file": FILE | {"down": True}}, [found(8, SOME)], "file.down"),
        (SGLANG, {"file": {"E": 8, "N": 768}}, [found(8, SOME)], "file.triton_version"),
        (VLLM, {"kernel": "own/other"}, [found(8, SOME)], "own/other"),
        (VLLM, {}, [tuned(FLASH)], FLASH),
        (VLLM, {}, [tuned(WAN)], WAN),
        (VLLM, {}, [found(8, SOME), found(8, SOME, study="again")], "study-8 and again"),
        (VLLM, {}, [found(8, SOME), found(9, SOME, rows=4)], "study-8 and study-9"),
        (VLLM, {}, [found(8, SOME), changed(found(9, SOME), objective={"device": "an edited kernel"})],
         "measured"),
        (VLLM, {}, [changed(found(8, SOME), platform={"other_gpu": "no H200"})], "no H200"),
        (DEEPEP, {}, [found(8, {"sms": 21, "chunk": 8}, DEEP_AXES)], "normal_combine.num_sms"),
        (DEEPEP, {}, [found(8, {"sms": 20, "chunk": 300}, DEEP_AXES)], "300"),
        (DEEPEP, {"normal_combine": PART | {"num_sms": 20}},
         [found(8, {"sms": 24, "chunk": 8}, DEEP_AXES)], "num_sms"),
        (DEEPEP, {}, [found(size, {"sms": 20, "chunk": 8}, DEEP_AXES) for size in (8, 9)], "2 studies"),
    ],
)  # fmt: skip
def test_what_would_not_be_true_is_refused(
    to: ExportFormat, keys: dict[str, Any], exports: list[TunedConfig], named: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        written(tmp_path, to, (DEEP if to == DEEPEP else MOE) | keys, *exports)
    assert any(named in text for text in (refused.value.message, *refused.value.others))


def test_a_ladder_becomes_one_file_that_is_not_written_over(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSTAGE_STORE", str(tmp_path / "store.db"))
    monkeypatch.setattr("xstage_tune.devices.process_kernels.present_gpu", lambda: None)
    space = space_file(tmp_path, keys={"columns": 768})
    steps = ("--tokens", "8,16", "--trials", "2", "-p", "h200-host")
    assert run_cli("search", "--space", str(space), *steps).exit_code == 0
    entry = ENTRY | {"num_warps": 4, "ORDER": True}
    (tmp_path / "keys.toml").write_text(tomli_w.dumps(MOE | {"entry": entry}))
    asked = ("export", "--suite", "latest", "--template", str(tmp_path / "keys.toml"))
    asked += ("--format", VLLM, "-o", str(tmp_path / "vllm"))
    made = run_cli(*asked)
    assert made.exit_code == 0, made.stderr
    assert "NVIDIA H200, which did not measure it" in made.stderr
    (said,) = (tmp_path / "vllm").glob("*.provenance.json")
    provenance = json.loads(said.read_text())
    file = said.with_name(provenance["file"])
    assert hashlib.sha256(file.read_bytes()).hexdigest() == provenance["sha256"]
    sizes = {one["workload"]["tokens"]: one["config"]["values"]["size"] for one in provenance["exports"]}
    assert {key: looked_up(VLLM, file.parent, key)["BLOCK_SIZE_M"] for key in (8, 16)} == sizes
    again = run_cli(*asked)
    assert (again.exit_code, again.stderr.count("error:")) == (2, 1)
    assert run_cli(*asked, "--force").exit_code == 0
    with Store.open() as store:
        (larger,) = (one.id for one in store.studies.all() if studied_workload(one).token_count == 16)
        store.studies.take(larger)
        store.studies.end(larger, "interrupted")
    so_far = ("export", "--suite", "latest-any", *asked[3:], "--force")
    for options, marks in (((), [None]), (("--unfinished",), [None, "it is interrupted"])):
        assert run_cli(*so_far, *options).exit_code == 0
        exports = json.loads(said.read_text())["exports"]
        assert [one["objective"].get("unfinished") for one in exports] == marks
        assert json.loads(file.read_text()).keys() == {str(one["workload"]["tokens"]) for one in exports}
    assert run_cli(*asked[:3], "--format", VLLM, "-o", str(tmp_path / "other")).exit_code == 2
    assert not (tmp_path / "other").exists()
