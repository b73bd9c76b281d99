"""Files that no one meant to give: odd names, no regular files, texts that parsers give up on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from xstage_tune.base.errors import UsageError
from xstage_tune.base.profile_files import (
    apply_overrides,
    check_profile,
    read_profile,
    read_text,
    resolve_profile,
)
from xstage_tune.families.config_files import load_config
from xstage_tune.families.megamoe.histogram import read_histogram
from xstage_tune.families.megamoe.workload import Routing
from xstage_tune.families.workload_files import load_workload

DEEP = "[" * 100_000
LONG_NUMBER = "9" * 6000


def refusal(call: Any, *arguments: Any) -> str:
    """The one line that a user is told."""
    with pytest.raises(UsageError) as caught:
        call(*arguments)
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a" * 5000 + ".toml", "File name too long"),
        ("~no-such-user/x.toml", "there is no such user"),
        ("pyproject.toml/x.toml", "does not exist"),
        (os.fsdecode(b"\xff.toml"), "does not exist"),
        (os.fsdecode(b"\xff"), "unknown platform"),
        ("a" * 5000, "unknown platform"),
    ],
)
def test_a_name_that_cannot_be_a_profile_is_refused(name: str, told: str) -> None:
    assert told in refusal(resolve_profile, "platform", name, [])


def test_a_folder_and_a_pipe_are_called_so_and_not_waited_for(tmp_path: Path) -> None:
    folder, pipe = tmp_path / "folder.toml", tmp_path / "pipe.toml"
    folder.mkdir()
    os.mkfifo(pipe)
    for path, what in ((folder, "a folder"), (pipe, "a pipe or device")):
        assert resolve_profile("platform", str(path), []) == path
        assert refusal(read_profile, path) == f"cannot read {path}: it is {what}, not a file"


def test_a_name_with_a_nul_cannot_be_read() -> None:
    assert "null byte" in refusal(read_text, Path("a\0.csv"))


@pytest.mark.parametrize(("text", "told"), [(DEEP, "nested too deeply"), (LONG_NUMBER, "6000 digits")])
def test_what_a_parser_gives_up_on_is_refused(tmp_path: Path, text: str, told: str) -> None:
    toml, config, histogram = (tmp_path / name for name in ("a.toml", "config.json", "histogram.json"))
    toml.write_text(f"a = {text}")
    config.write_text(f'{{"kind": {text}}}')
    histogram.write_text(f"[{text}]")
    for read, path in ((read_profile, toml), (load_config, config), (read_histogram, histogram)):
        message = refusal(read, path)
        assert message.startswith(f"{path}: invalid ")
        assert told in message
    message = refusal(apply_overrides, {}, [f"experts={text}"])
    assert message.startswith("--set experts: ")
    assert told in message


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    toml, table, array = (tmp_path / name for name in ("a.toml", "a.csv", "a.json"))
    toml.write_text("experts = 8", encoding="utf-8-sig")
    table.write_text("expert,tokens\n0,3\n1,5\n", encoding="utf-8-sig")
    array.write_text(json.dumps([3, 5]), encoding="utf-8-sig")
    assert read_profile(toml) == {"experts": 8}
    assert read_histogram(table) == read_histogram(array) == [3, 5]


def test_a_value_where_a_list_belongs_is_told_how_one_is_written() -> None:
    message = refusal(check_profile, Routing, {"kind": "histogram", "histogram": "h.json"}, "mine.toml")
    assert message == "mine.toml: histogram = 'h.json': should be a list, as in [1, 2]"


def test_a_value_where_a_section_belongs_is_told_how_to_name_its_keys() -> None:
    told = refusal(load_workload, "megamoe/deepseek-v4-flash", ["routing=zipf"])
    assert "key 'routing' is a section: give one of its keys, routing.KEY" in told
