"""A user's text files: nothing is parsed that is no file, or beyond what such a file can hold."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xstage_tune.base.errors import UsageError
from xstage_tune.base.parsing import MOST_BYTES, MOST_NESTING, parse_json, parse_toml, read_text
from xstage_tune.base.profile_files import read_profile


@pytest.mark.parametrize("what", ["pipe", "folder", "device"])
def test_only_a_file_is_read(tmp_path: Path, what: str) -> None:
    path = tmp_path / "mine.toml"
    if what == "pipe":
        os.mkfifo(path)  # opening it would block
    elif what == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")  # never ends
    with pytest.raises(UsageError, match=r"cannot read .*mine\.toml: it is a "):
        read_text(path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    with path.open("wb") as file:
        file.truncate(100 * MOST_BYTES)
    tracemalloc.start()
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        read_text(path)
    assert tracemalloc.get_traced_memory()[1] < 8 * MOST_BYTES
    tracemalloc.stop()


def test_a_file_that_is_no_text_is_refused_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b'name = "\xff"')
    with pytest.raises(UsageError, match="not UTF-8 text at byte 8"):
        read_text(path)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_toml, "a." * 30_000 + "a = 1"),
        (parse_toml, '"a" . ' * 30_000 + "a = 1"),
        (parse_toml, f"[{'a.' * 30_000}a]"),
        (parse_toml, "a = " + "[" * 300_000),
        (parse_toml, "a = " + "{a=" * 900 + "1" + "}" * 900),
        (parse_json, "[" * 300_000),
        (parse_json, '{"a":' * 900 + "1" + "}" * 900),
    ],
)
def test_deep_nesting_is_refused_before_it_is_parsed(parse: Callable[[str], Any], text: str) -> None:
    """The second takes 3.6 GB where it is parsed."""
    tracemalloc.start()
    with pytest.raises(ValueError, match="nested too deeply"):
        parse(text)
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        f'a = "{"x." * 100}{"[" * 100}"',
        f"a = '{'x.' * 100}{'[' * 100}'",
        f'a = """\n"{"x." * 100}" ""{"[" * 100}"""',
        f"a = '''\n'{'x.' * 100}' ''{'[' * 100}'''",
        f'# {"x." * 100}{"[" * 100} """\na = 1',
        f'a = ["{chr(92)}"[[[["{", 1.5" * 1000}]',
        "[a]\n" + "\n".join(f"[a.b{number}]\n[[a.c{number}]]" for number in range(100)),
    ],
)
def test_what_stands_in_texts_and_comments_is_no_nesting(text: str) -> None:
    assert parse_toml(text)["a"]


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text("aé\"\\[{.#'", max_size=9),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("a[{\"'", max_size=3), inner),
        max_leaves=30,
    )
)
def test_any_shallow_json_is_read_as_it_is(value: Any) -> None:
    assert parse_json(json.dumps(value)) == value


def test_nesting_up_to_the_limit_is_read() -> None:
    assert parse_json("[" * MOST_NESTING + "]" * MOST_NESTING) is not None
    assert parse_toml("a." * (MOST_NESTING - 1) + "a = 1")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("issue = [" + "{}," * 300_000 + "]", "values, more than the 20,000"),
        (f"name = 0x{'f' * 5000}", "a whole number of 20,000 bits"),
        (f"name = {'9' * 5000}", "4300 digits"),
    ],
)
def test_what_no_such_file_holds_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=problem) as refusal:
        read_profile(path)
    assert "\n" not in refusal.value.message


def test_half_a_character_is_no_text() -> None:
    for text in (r'{"a": "\ud800"}', r'{"\udfff": 1}'):
        with pytest.raises(ValueError, match="surrogates not allowed"):
            parse_json(text)
