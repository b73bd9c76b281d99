"""What ``--sweep`` takes."""

from __future__ import annotations

import pytest

from tests.configs.cases import attention, moe
from xstage_tune.base.errors import UsageError
from xstage_tune.experiments.emulation.sweep import parse_sweep, swept_by_emulation

#: Of a MoE layer.
KEYS = swept_by_emulation(moe())


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("lead=1..4", "lead", (1, 2, 3, 4)),
        ("lead=2,8..10", "lead", (2, 8, 9, 10)),
        ("remote_fraction=0,0.25,1", "remote_fraction", (0, 0.25, 1)),
        (" tokens = 1024, 4096 ", "tokens", (1024, 4096)),
        ("staging_depth=3", "staging_depth", (3,)),
        ("tokens=1e3", "tokens", (1000,)),
    ],
)
def test_values_and_ranges(text: str, key: str, values: tuple[float, ...]) -> None:
    sweep = parse_sweep(text, KEYS)
    assert (sweep.key, sweep.values) == (key, values)


def test_a_moe_layer_s_tokens_go_by_their_key_too() -> None:
    assert parse_sweep("tokens_per_rank=512,1024", KEYS, "tokens_per_rank") == parse_sweep(
        "tokens=512,1024", KEYS
    )
    with pytest.raises(UsageError, match="'tokens_per_rank' cannot be swept, only lead"):
        parse_sweep("tokens_per_rank=512", KEYS)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("lead", "not of the form key=values"),
        ("lead=", "not of the form key=values"),
        ("=3", "'' cannot be swept, only lead"),
        ("depth=3", "'depth' cannot be swept, only lead"),
        ("lead=8..2", "runs backwards"),
        ("lead=1..2000000000", "more than 64 values"),
        ("lead=1..40,41..80", "80 values, more than 64"),
        ("lead=0", "whole number from 1 up"),
        ("lead=0..3", "whole number from 1 up"),
        ("lead=1.5", "whole number from 1 up"),
        ("staging_depth=-1", "whole number from 1 up"),
        ("lead=a", "'a' is no number"),
        ("lead=1,,2", "'' is no number"),
        ("lead=1,2,1", "1 is there twice"),
        ("lead=nan", "must be a whole number"),
        (f"lead=1..{'9' * 5000}", "is no number"),
        ("tokens=inf", "out of range"),
        ("tokens=2147483648", "out of range"),
        ("remote_fraction=1.5", "must be in 0 to 1"),
        ("remote_fraction=-0.1", "must be in 0 to 1"),
        ("remote_fraction=nan", "must be in 0 to 1"),
    ],
)
def test_what_is_no_sweep_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=r"^--sweep ") as refusal:
        parse_sweep(text, KEYS)
    assert complaint in refusal.value.message


@pytest.mark.parametrize(
    ("text", "keys", "hint"),
    [
        ("tokens=a", ("tokens",), "for example --sweep tokens=1024,2048,4096"),
        ("tokens=a", ("lead", "tokens"), "for example --sweep tokens=1024,2048,4096"),
        ("lead=1..3", ("tokens",), "for example --sweep tokens=1024,2048,4096"),
        ("lead", ("lead", "tokens"), "for example --sweep lead=1..32 or --sweep tokens=1024,2048,4096"),
    ],
)
def test_the_hint_is_of_what_can_be_swept(text: str, keys: tuple[str, ...], hint: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_sweep(text, {key: KEYS[key] for key in keys})
    assert refusal.value.hint == hint


def test_what_can_be_swept_is_the_family_s() -> None:
    assert set(KEYS) == {"lead", "staging_depth", "remote_fraction", "tokens"}
    assert set(swept_by_emulation(attention())) == {"remote_fraction", "tokens"}
