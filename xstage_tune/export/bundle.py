"""Exports in a folder, or one in a file, and the lookup of a workload in them while a model is being served.

The rule of :meth:`Bundle.lookup`: the export of exactly this workload, else the *nearest* export of the same
layer. The same layer means equal hidden and intermediate sizes, experts, top-k, EP degree and precision, or
equal heads, head size, degree and dtype; another layer's config is never given. Nearest are first those that
share most of what else a profile says (routing, shared experts, remote fraction), then those whose tokens are
closest as a ratio; of two as close, the one with more tokens.
"""

from __future__ import annotations

import json
import math
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from numpy.typing import ArrayLike

from xstage_tune.configs.schema import KernelConfig
from xstage_tune.errors import UsageError
from xstage_tune.export.record import FORMAT, TunedConfig, tuned_from_keys
from xstage_tune.export.schedule_choice import ScheduleChoice, choose, whole_tokens
from xstage_tune.profile_files import read_text
from xstage_tune.user_folders import expanded
from xstage_tune.workloads.schema import MoeWorkload, Workload

Match = Literal["exact", "nearest"]

_Key = tuple[Hashable, ...]

_READERS: dict[str, Callable[[str], Any]] = {".json": json.loads, ".toml": tomllib.loads}


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a lookup found: the config to run, how well it fits, and the whole export behind it."""

    config: KernelConfig
    match: Match
    differs: tuple[str, ...]  # keys of the workload that the export was not tuned for
    source: TunedConfig


@dataclass(frozen=True, slots=True)
class _Ladder:
    """Exports that differ only in their tokens, fewest first."""

    tokens: tuple[int, ...]
    exports: tuple[TunedConfig, ...]

    @classmethod
    def of(cls, exports: list[TunedConfig]) -> _Ladder:
        ordered = sorted(exports, key=lambda export: _tokens(export.workload))
        return cls(tuple(_tokens(export.workload) for export in ordered), tuple(ordered))

    def nearest(self, tokens: int) -> TunedConfig:
        above = bisect_left(self.tokens, tokens)
        around = range(max(0, above - 1), min(above + 1, len(self.tokens)))
        return self.exports[min(around, key=lambda rung: _distance(self.tokens[rung], tokens))]


_Variants = Mapping[_Key, _Ladder]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Exports of one platform. Made by :func:`load_bundle`."""

    platform: str
    exports: tuple[TunedConfig, ...]
    _layers: Mapping[_Key, _Variants]
    _moe_layers: tuple[_Variants, ...]

    def lookup(self, workload: Workload) -> Lookup:
        """The config for a workload, by the rule of this module.

        Raises:
            UsageError: the bundle has no export of this layer.
        """
        variants = self._layers.get(_layer_key(workload))
        if variants is None:
            names = ", ".join(sorted({export.workload.name for export in self.exports}))
            raise UsageError(
                f"no export for the layer of '{workload.name}' among those of '{self.platform}'",
                f"tune it: xstage-tune search --workload {workload.name}; there are: {names}",
            )
        asked, tokens = _variant_key(workload), _tokens(workload)
        ladder = variants.get(asked)
        if ladder is not None:
            nearest = ladder.nearest(tokens)
            if _tokens(nearest.workload) == tokens:
                return Lookup(nearest.config, "exact", (), nearest)
        else:
            nearest = _of_nearest_variant(variants, asked, tokens)
        return Lookup(nearest.config, "nearest", _differences(workload, nearest.workload), nearest)

    def choose_schedule(
        self, tokens_per_expert: ArrayLike, workload: Workload | None = None
    ) -> ScheduleChoice:
        """The schedule for a rank's tokens, from the export that :meth:`lookup` gives for ``workload``.

        Without a workload the bundle must hold one MoE layer, and its export for the nearest number of
        tokens is taken.

        Args:
            tokens_per_expert: tokens of each expert on this rank, ``[local_experts]``.

        Raises:
            UsageError: the tokens do not fit the layer, or it is not clear which layer is meant.
        """
        if workload is not None:
            return choose(self.lookup(workload).source, tokens_per_expert)
        if len(self._moe_layers) != 1:
            raise UsageError(
                f"the bundle holds {len(self._moe_layers)} MoE layers, so it is not clear which one is meant",
                "give the workload too",
            )
        tokens = whole_tokens(tokens_per_expert)
        return choose(_of_received(self._moe_layers[0], int(tokens.sum())), tokens)


def load_bundle(path: str | Path, *, platform: str | None = None) -> Bundle:
    """Read the JSON and TOML exports in a folder; files that are none are left out.

    Args:
        path: the folder, or the file of one export.
        platform: take only the exports of the platform of this name.

    Raises:
        UsageError: no export, exports of several platforms or calibrations of one, two exports of one
            workload, or a file that cannot be read.
    """
    place = expanded(Path(path))
    found = {
        file: tuned
        for file in ([place] if place.is_file() else sorted(place.glob("*")))
        if file.suffix in _READERS and (tuned := _read(file)) is not None
    }
    if platform is not None:
        found = {file: tuned for file, tuned in found.items() if tuned.platform.name == platform}
    if not found:
        of = f" of platform '{platform}'" if platform else ""
        raise UsageError(
            f"no export{of} in {path}", "write one: xstage-tune export --study latest --format json -o FILE"
        )
    _require_one_platform(found)
    return _indexed(found)


def _read(path: Path) -> TunedConfig | None:
    """One export; None for a file that is something else."""
    try:
        keys = _READERS[path.suffix](read_text(path))
    except ValueError as error:
        raise UsageError(f"{path}: invalid {path.suffix[1:].upper()}: {error}") from None
    if not isinstance(keys, dict) or keys.get("format") != FORMAT:
        return None
    return tuned_from_keys(keys, path)


def _require_one_platform(found: Mapping[Path, TunedConfig]) -> None:
    """Refuse to mix platforms, calibrations of a platform, or paths.

    Raises:
        UsageError: two exports differ; names both files and what differs.
    """
    (first_path, first), *others = found.items()
    for path, tuned in others:
        if tuned.platform == first.platform:
            continue
        differing = [
            f"{key} {getattr(first.platform, key)} and {getattr(tuned.platform, key)}"
            for key in type(tuned.platform).model_fields
            if getattr(first.platform, key) != getattr(tuned.platform, key)
        ]
        raise UsageError(
            f"{first_path.name} and {path.name} are for different platforms: {'; '.join(differing)}",
            "keep one folder for each, or load one with platform=NAME",
        )


def _indexed(found: Mapping[Path, TunedConfig]) -> Bundle:
    paths: dict[_Key, Path] = {}
    groups: dict[_Key, dict[_Key, list[TunedConfig]]] = {}
    for path, tuned in found.items():
        layer, variant = _layer_key(tuned.workload), _variant_key(tuned.workload)
        other = paths.setdefault((layer, variant, _tokens(tuned.workload)), path)
        if other is not path:
            raise UsageError(
                f"{other.name} and {path.name} both hold a config for '{tuned.workload.name}'",
                "remove the one that is not to be used",
            )
        groups.setdefault(layer, {}).setdefault(variant, []).append(tuned)
    exports = tuple(found.values())
    layers = {
        layer: {variant: _Ladder.of(members) for variant, members in variants.items()}
        for layer, variants in groups.items()
    }
    moe = dict.fromkeys(_layer_key(tuned.workload) for tuned in exports if tuned.schedule_model)
    return Bundle(exports[0].platform.name, exports, layers, tuple(layers[layer] for layer in moe))


def _of_nearest_variant(variants: _Variants, asked: _Key, tokens: int) -> TunedConfig:
    """The nearest tokens among the variants that share most with what was asked."""
    differing = {variant: sum(a != b for a, b in zip(variant, asked, strict=True)) for variant in variants}
    fewest = min(differing.values())
    return _of_nearest_tokens(
        (ladder for variant, ladder in variants.items() if differing[variant] == fewest), tokens
    )


def _of_received(variants: _Variants, received: int) -> TunedConfig:
    """The export whose ranks receive, on average, about as many tokens."""
    ladders = list(variants.values())
    layer = ladders[0].exports[0].workload
    assert isinstance(layer, MoeWorkload)
    return _of_nearest_tokens(ladders, max(1, received // layer.top_k))


def _of_nearest_tokens(ladders: Iterable[_Ladder], tokens: int) -> TunedConfig:
    nearest = (ladder.nearest(tokens) for ladder in ladders)
    return min(nearest, key=lambda export: _distance(_tokens(export.workload), tokens))


def _distance(found: int, asked: int) -> tuple[float, int]:
    """As a ratio; of two as close the one with more tokens comes first."""
    return abs(math.log(found / asked)), -found


def _layer_key(workload: Workload) -> _Key:
    """What a config cannot be carried over from one value to another of."""
    if isinstance(workload, MoeWorkload):
        return (
            workload.hidden,
            workload.intermediate,
            workload.experts,
            workload.top_k,
            workload.ep_degree,
            workload.precision,
        )
    return (workload.heads, workload.head_dim, workload.degree, workload.dtype)


def _variant_key(workload: Workload) -> _Key:
    """What else, beside the tokens, a config was tuned for; in the order of ``_VARIANT_NAMES``."""
    if isinstance(workload, MoeWorkload):
        routing = workload.routing
        spread = (routing.kind, routing.alpha, routing.seed or 0, routing.histogram)
        return (spread, workload.shared_experts, workload.combine_remote_fraction)
    return (workload.output_remote_fraction,)


_VARIANT_NAMES = {"moe": ("routing", "shared_experts", "remote_fraction"), "attention": ("remote_fraction",)}


def _tokens(workload: Workload) -> int:
    return workload.tokens_per_rank if isinstance(workload, MoeWorkload) else workload.tokens


def _differences(asked: Workload, found: Workload) -> tuple[str, ...]:
    tokens = "tokens_per_rank" if isinstance(asked, MoeWorkload) else "tokens"
    pairs = zip(_VARIANT_NAMES[asked.kind], _variant_key(asked), _variant_key(found), strict=True)
    differing = tuple(name for name, a, b in pairs if a != b)
    return (*differing, tokens) if _tokens(asked) != _tokens(found) else differing
