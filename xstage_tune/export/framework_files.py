"""Files of serving frameworks for a kernel of one's own, by a template that says what goes under which key.

What of a space is which key of a framework nobody but its author knows, so nothing is guessed: the template
names the space, and for each key an axis, a key of the space, or a number. Keys, names of files and what
readers demand are those of

- ``vllm-fused-moe``: vllm-project/vllm, ``vllm/model_executor/layers/fused_moe/fused_moe.py``
  (``get_config_file_name``, ``get_moe_configs``) and ``configs/README`` beside it. The reader takes the file
  by its name, every key but ``triton_version`` as a number of tokens M, and the entry of the nearest M;
- ``sglang-fused-moe``: sgl-project/sglang, ``fused_moe_triton_config.py`` under
  ``python/sglang/srt/layers/moe/moe_runner/triton_utils``. The same, in a folder for each Triton version,
  with no key but M;
- ``sglang-deepep``: sgl-project/sglang, ``python/sglang/srt/layers/moe/token_dispatcher/deepep.py``
  (``DeepEPConfig``: two parts of equal ``num_sms``). Each becomes a ``Config`` of deepseek-ai/DeepEP:
  ``csrc/config.hpp`` wants room for more than is sent at once, ``csrc/deep_ep.cpp`` an even ``num_sms``.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, cast

from pydantic import Field, PlainValidator, StrictBool, model_validator

from xstage_tune.base.errors import UsageError
from xstage_tune.base.field_types import Count, Strict, refuse_problems
from xstage_tune.base.profile_files import check_profile, file_error, read_profile
from xstage_tune.export.names import ExportFormat
from xstage_tune.export.record import TunedConfig
from xstage_tune.families.binding import family_of
from xstage_tune.families.own_kernel.config import AxisName, AxisValue, OwnConfig
from xstage_tune.families.own_kernel.workload import OwnSpace
from xstage_tune.families.workload_fields import Name


def _source(value: object) -> object:
    if not isinstance(value, bool | int | str):
        raise ValueError("should be a whole number, true or false, or the name of an axis or key")
    return value


#: A value, or the axis or key of the space that has it.
Source = Annotated[bool | int | str, PlainValidator(_source)]

_MOE_KEYS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")


class MoeFile(Strict):
    """What the name of a fused-MoE file says beside the GPU."""

    E: Source = Field(description="Experts of a rank")
    N: Source = Field(description="Columns between the two GEMMs, of a rank")
    dtype: Annotated[str, Field(pattern=r"^\w*$")] = ""
    block_shape: Annotated[tuple[Count, ...], Field(min_length=2, max_length=2)] | None = None
    #: Of SGLang alone.
    triton_version: Annotated[str, Field(pattern=r"^(\d+(\.\d+)*)?$")] = ""
    per_channel_quant: StrictBool = False
    down: StrictBool = False


class MoeTemplate(Strict):
    """A fused-MoE file; ``entry`` may have further keys, which the framework hands to the kernel."""

    kernel: Name
    file: MoeFile
    entry: Mapping[AxisName, Source]

    @model_validator(mode="after")
    def _has_every_key(self) -> MoeTemplate:
        refuse_problems(f"entry.{key} is missing" for key in _MOE_KEYS if key not in self.entry)
        return self

    def tables(self) -> Mapping[str, Mapping[str, Source]]:
        """The tables that hold what was tuned, by name."""
        return {"entry": self.entry}


class DeepEpPart(Strict):
    """How DeepEP dispatches, or combines."""

    num_sms: Source
    num_max_nvl_chunked_send_tokens: Source
    num_max_nvl_chunked_recv_tokens: Source
    num_max_rdma_chunked_send_tokens: Source
    num_max_rdma_chunked_recv_tokens: Source


class DeepEpTemplate(Strict):
    """What ``--deepep-config`` of SGLang names."""

    kernel: Name
    normal_dispatch: DeepEpPart
    normal_combine: DeepEpPart

    def tables(self) -> Mapping[str, Mapping[str, Source]]:
        """The tables that hold what was tuned, by name."""
        return {"normal_dispatch": dict(self.normal_dispatch), "normal_combine": dict(self.normal_combine)}


Template = MoeTemplate | DeepEpTemplate


def read_template(to: ExportFormat, path: Path) -> Template:
    """The template of a format.

    Raises:
        UsageError: it cannot be read, or breaks the schema; names the file and the key.
    """
    keys = read_profile(path)
    if to == ExportFormat.SGLANG_DEEPEP:
        return check_profile(DeepEpTemplate, keys, str(path))
    template = check_profile(MoeTemplate, keys, str(path))
    if to == ExportFormat.SGLANG_FUSED_MOE and not template.file.triton_version:
        raise file_error(
            str(path), ["file.triton_version is missing"], "SGLang has a folder for each: triton.__version__"
        )
    if to == ExportFormat.VLLM_FUSED_MOE and (template.file.per_channel_quant or template.file.down):
        raise file_error(str(path), ["file.per_channel_quant and file.down: vLLM's names say neither"])
    return template


def framework_file(
    to: ExportFormat, template: Template, origin: str, exports: Sequence[TunedConfig]
) -> tuple[PurePosixPath, str]:
    """The file's place in the framework's folder, and its text.

    Args:
        origin: the template's file, as errors name it.
        exports: of one space, a number of tokens each.

    Raises:
        UsageError: an export is of another kernel, GPU or keys than the others or the template; two are of
            the same tokens; the template names what the space lacks, or leaves out an axis; or the reader
            would refuse a value.
    """
    for tuned in exports:
        _require_of(template, origin, tuned)
    ordered = sorted(exports, key=lambda tuned: tuned.workload.token_count)
    for one, other in itertools.pairwise(ordered):
        _require_together(one, other)
    filled = {tuned.workload.token_count: _filled(template, origin, tuned) for tuned in ordered}
    if isinstance(template, MoeTemplate):
        entries = {str(tokens): tables["entry"] for tokens, tables in filled.items()}
        return _moe_place(to, template.file, origin, ordered[0]), json.dumps(entries, indent=4) + "\n"
    if len(ordered) > 1:
        raise UsageError(
            f"{to} holds one config, and these are {len(ordered)} studies, of other tokens each",
            "choose one: --study ID",
        )
    (parts,) = filled.values()
    if problems := list(_deepep_problems(parts)):
        raise file_error(origin, problems, "constrain the space so, and search it again")
    return PurePosixPath("deepep.json"), json.dumps(parts, indent=4) + "\n"


def _require_of(template: Template, origin: str, tuned: TunedConfig) -> None:
    study, name = tuned.provenance.study_id, tuned.workload.name
    if family_of(tuned.workload).process_of(tuned.workload) is None:
        raise UsageError(
            f"study {study} is of {name}, whose kernel no framework runs under these keys",
            "only a space of your own goes into such a file; for this one: --format json",
        )
    if name != template.kernel:
        raise UsageError(f"{origin}: kernel = '{template.kernel}', but study {study} is of '{name}'")
    if tuned.platform.other_gpu:
        raise UsageError(
            f"study {study} was forced on another GPU than its platform's: {tuned.platform.other_gpu}",
            "such a file is found by the GPU's name: search on a platform of that GPU",
        )


def _require_together(one: TunedConfig, other: TunedConfig) -> None:
    """Raises: UsageError: two exports, neighbours by their tokens, cannot stand in one file."""
    both = f"studies {one.provenance.study_id} and {other.provenance.study_id}"
    for what, first, second in (
        ("keys or degree", one.workload.layer_key, other.workload.layer_key),
        ("platform", one.platform.sha256, other.platform.sha256),
        ("what measured them", one.objective.device, other.objective.device),  # with the kernel's hash
    ):
        if first != second:
            raise UsageError(f"{both} differ in {what}: a file is of one", "choose one: --study ID")
    if one.workload.token_count == other.workload.token_count:
        raise UsageError(
            f"{both} are both of {one.workload.token_count} tokens: which is to be written?",
            "choose one: --study ID",
        )


def _filled(template: Template, origin: str, tuned: TunedConfig) -> dict[str, dict[str, AxisValue]]:
    """The template's tables with the values of one export."""
    space, config = cast(OwnSpace, tuned.workload), cast(OwnConfig, tuned.config)
    tables = template.tables()
    known = {**space.known, **config.values}
    required = _MOE_KEYS if isinstance(template, MoeTemplate) else tuple(DeepEpPart.model_fields)
    filled = {
        table: {
            key: _value(source, f"{origin}: {table}.{key}", space, known, whole=key in required)
            for key, source in sources.items()
        }
        for table, sources in tables.items()
    }
    named = {source for sources in tables.values() for source in sources.values()}
    varied = [name for name, values in space.axes.items() if len(values) > 1]
    if left := [f"axes.{name}" for name in varied if name not in named]:
        raise UsageError(
            f"{origin}: no key takes {', '.join(left)} of {space.name}, so another config would run",
            "name each under a key that the kernel reads; an axis of one value may stay out",
        )
    return filled


def _value(
    source: Source, where: str, space: OwnSpace, known: Mapping[str, AxisValue], *, whole: bool
) -> AxisValue:
    if isinstance(source, str) and source not in known:
        raise UsageError(f"{where} = '{source}' is nothing of {space.name}", f"there are: {', '.join(known)}")
    value = known[source] if isinstance(source, str) else source
    if whole and (type(value) is not int or value <= 0):
        raise UsageError(f"{where}: {value!r} is no whole number above 0")
    return value


def _moe_place(to: ExportFormat, file: MoeFile, origin: str, tuned: TunedConfig) -> PurePosixPath:
    """Where the reader looks; both differ in how they write a block shape and join a GPU's names."""
    vllm = to == ExportFormat.VLLM_FUSED_MOE
    space = cast(OwnSpace, tuned.workload)
    experts, columns = (
        _value(source, f"{origin}: file.{key}", space, space.known, whole=True)
        for key, source in (("E", file.E), ("N", file.N))
    )
    gpu = re.sub(r"[\s/\\]+" if vllm else r"[ /\\]", "_", tuned.platform.gpu)
    if vllm and "H200" in gpu.split("_"):
        gpu = "NVIDIA_H200"  # for the whole family
    shape = file.block_shape and str(list(file.block_shape))
    name = f"E={experts},N={columns},device_name={gpu}"
    name += f",dtype={file.dtype}" if file.dtype else ""
    name += f",block_shape={shape.replace(' ', '') if vllm else shape}" if shape else ""
    name += ",per_channel_quant=True" if file.per_channel_quant else ""
    name += "_down" if file.down else ""
    version = file.triton_version.replace(".", "_")
    folder = PurePosixPath() if vllm else PurePosixPath("configs", f"triton_{version}")
    return folder / f"{name}.json"


def _deepep_problems(parts: Mapping[str, Mapping[str, AxisValue]]) -> Iterator[str]:
    sms = {name: part["num_sms"] for name, part in parts.items()}
    if len(set(sms.values())) > 1:
        yield f"num_sms should be the same in both parts, not {sms}"
    for name, part in parts.items():
        numbers = cast(Mapping[str, int], part)
        if numbers["num_sms"] % 2:
            yield f"{name}.num_sms = {numbers['num_sms']} should be even: a channel takes two SMs"
        for link in ("nvl", "rdma"):
            send, receive = (numbers[f"num_max_{link}_chunked_{way}_tokens"] for way in ("send", "recv"))
            if send >= receive:
                yield f"{name}: over {link} it would send {send} tokens at once and have room for {receive}"
