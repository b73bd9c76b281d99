"""JSON on stdout."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pydantic import BaseModel

from xstage_tune.base.json_output import emit_json, to_json
from xstage_tune.base.spans import SpanKind


@dataclass(frozen=True, slots=True)
class Result:
    ratio: float
    counts: tuple[int, ...]


class Section(BaseModel):
    ns: float


def test_keys_are_sorted_and_the_text_ends_in_one_newline() -> None:
    assert to_json({"b": 1, "a": {"d": None, "c": True}}) == (
        '{\n  "a": {\n    "c": true,\n    "d": null\n  },\n  "b": 1\n}\n'
    )


def test_the_same_result_gives_the_same_bytes_whatever_its_order() -> None:
    assert to_json({"a": 0.1, "b": 2}) == to_json({"b": 2, "a": 0.1})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float64("nan"), np.float32("inf")])
def test_a_number_that_is_not_finite_is_null(value: float) -> None:
    assert json.loads(to_json([value])) == [None]


def test_takes_dataclasses_models_arrays_enums_and_paths() -> None:
    value = {
        "result": Result(0.5, (1, 2)),
        "section": Section(ns=1.5),
        "array": np.array([[1, 2]]),
        "scalar": np.float32(0.25),
        "flag": np.bool_(True),
        "kind": SpanKind.ISSUE,
        "path": Path("a/b"),
        3: "integer key",
    }
    assert json.loads(to_json(value)) == {
        "result": {"ratio": 0.5, "counts": [1, 2]},
        "section": {"ns": 1.5},
        "array": [[1, 2]],
        "scalar": 0.25,
        "flag": True,
        "kind": 1,
        "path": "a/b",
        "3": "integer key",
    }


def test_floats_read_back_exactly() -> None:
    assert json.loads(to_json({"x": 0.1 + 0.2})) == {"x": 0.1 + 0.2}


def test_refuses_what_has_no_json_form() -> None:
    with pytest.raises(TypeError, match="object"):
        to_json({"x": object()})


def test_emit_writes_to_stdout_alone(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json({"a": 1})
    assert capsys.readouterr() == ('{\n  "a": 1\n}\n', "")
