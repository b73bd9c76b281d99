"""Every key of a file that users write explains itself: templates and references are made from that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from xstage_tune.base.schema_problems import section_model
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload_files import load_workload
from xstage_tune.platforms.gpus import KnownGpu
from xstage_tune.platforms.loader import load_platform
from xstage_tune.platforms.schema import PlatformProfile

SCHEMAS = (MoeWorkload, AttentionWorkload, PlatformProfile, KnownGpu)


def keys(model: type[BaseModel], place: str) -> Iterator[tuple[str, FieldInfo]]:
    """Every key of a schema and of its sections, by its dotted name."""
    for name, field in model.model_fields.items():
        yield f"{place}.{name}", field
        section = section_model(field.annotation)
        if section is not None:
            yield from keys(section, f"{place}.{name}")


KEYS = dict(found for schema in SCHEMAS for found in keys(schema, schema.__name__))


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_described_and_its_example_is_valid(key: str) -> None:
    field = KEYS[key]
    assert field.description
    if section_model(field.annotation) is None:
        assert field.examples
        for example in field.examples:
            TypeAdapter(field.rebuild_annotation()).validate_python(example)


def test_a_source_may_be_left_out() -> None:
    layer = load_workload("megamoe/mixtral-8x7b").model_dump(exclude={"source"})
    assert MoeWorkload.model_validate(layer).source == ""
    platform = load_platform("paper-nvlink5").model_dump(mode="json", exclude_none=True)
    for section in (platform["drain"], platform["compute"], *platform["issue"], *platform["capacity"]):
        del section["source"]
    assert PlatformProfile.model_validate(platform).drain.source == ""
