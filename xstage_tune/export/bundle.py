"""Exports in a folder, or one in a file, and the lookup of a workload in them while a model is being served.

The rule of :meth:`Bundle.lookup`, whose answer always says which of these it is:

1. Only exports of the same layer are looked at: equal hidden and intermediate sizes, experts, top-k, EP
   degree and precision, or equal heads, head size, degree and dtype. Without one it is an error: another
   layer's config is never given.
2. Of these the nearest: first those that share most of what else a profile says (routing, shared experts,
   remote fraction), then those whose tokens are closest as a ratio; of two as close, that with more tokens.
3. ``default``: the default config of the layer for the asked tokens, where the nearest was tuned on another
   GPU (its times say nothing of this one), for tokens further off than the limit, could not run for this
   workload, or is expected to be slower than the default there. On another GPU it is the default for that
   GPU's SMs, where their number is known, within the limits of an SM of the export's architecture.
4. ``stale``: the nearest, but found by another version of the tool, or for other kernel sources. The GPU is
   the one that it was tuned on, and it fits the limits that the installed version knows, so it is given;
   whether it is still the best nobody measured: tune again.
5. ``nearest``: the nearest, of other tokens within the limit, or other routing and so on.
6. ``forced``: its platform was forced on another GPU, which ran it: this one, or nobody knows which this is.
   On any other, its platform's own among them, it is the default.
7. ``exact``: tuned for this workload, here, by this version, for these kernels, as far as each is known.
   What is not known of either side is not compared, and listed as ``unchecked``.

An export that cannot be read, or contradicts itself (:mod:`.consistency`), is left out and named; the others
serve.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from numpy.typing import ArrayLike

from xstage_tune.base.errors import UsageError
from xstage_tune.base.parsing import parse_json, parse_toml, read_text
from xstage_tune.base.profile_files import file_error
from xstage_tune.base.user_folders import expanded
from xstage_tune.export.consistency import contradictions
from xstage_tune.export.default_terms import Defaults
from xstage_tune.export.identity import compare_gpu, compare_tool, identified
from xstage_tune.export.match import Lookup, Match, ScheduleChoice
from xstage_tune.export.record import FORMAT, TunedConfig, tuned_from_keys
from xstage_tune.export.schedule_choice import choose, whole_tokens
from xstage_tune.export.token_distance import (
    MAX_TOKEN_RATIO,
    distance,
    require_ratio,
    token_ratio,
)
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.identity import GpuIdentity

_log = logging.getLogger(__name__)

_Key = tuple[Hashable, ...]

#: Of a platform; what more is known of its GPU depends on the version that exported.
_TELLS_PLATFORMS_APART = ("name", "sha256", "gpu", "architecture", "path")

_READERS: dict[str, Callable[[str], Any]] = {".json": parse_json, ".toml": parse_toml}


@dataclass(frozen=True, slots=True)
class _Ladder:
    """Exports that differ only in their tokens, fewest first."""

    tokens: tuple[int, ...]
    exports: tuple[TunedConfig, ...]

    @classmethod
    def of(cls, exports: list[TunedConfig]) -> _Ladder:
        ordered = sorted(exports, key=lambda export: export.workload.token_count)
        return cls(tuple(export.workload.token_count for export in ordered), tuple(ordered))

    def nearest(self, tokens: int) -> TunedConfig:
        above = bisect_left(self.tokens, tokens)
        around = range(max(0, above - 1), min(above + 1, len(self.tokens)))
        return self.exports[min(around, key=lambda rung: distance(self.tokens[rung], tokens))]


_Variants = Mapping[_Key, _Ladder]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Exports of one platform. Made by :func:`load_bundle`."""

    platform: str
    exports: tuple[TunedConfig, ...]
    #: Files that were not taken, each with why and what to do.
    left_out: tuple[str, ...]
    _layers: Mapping[_Key, _Variants]
    _moe_layers: tuple[_Variants, ...]
    _defaults: Defaults

    @property
    def gpu(self) -> GpuIdentity:
        """The GPU that the exports were tuned on, as far as they say."""
        known = (export.platform for export in self.exports if export.platform.gpu_identity)
        return next(known, self.exports[0].platform).identity

    def lookup(
        self,
        workload: Workload,
        *,
        gpu: GpuIdentity | str | None = None,
        max_token_ratio: float | None = None,
    ) -> Lookup:
        """The config for a workload, by the rule of this module.

        Args:
            gpu: to run on, or the driver's name of it; by default the one that this process sees.
            max_token_ratio: how many times the tokens asked for may be those of a tuned config, or the other
                way round; by default :data:`~xstage_tune.export.token_distance.MAX_TOKEN_RATIO`.

        Raises:
            UsageError: the bundle has no export of this layer, or the limit is below 1; or the default is to
                be returned, and none fits, or exports of an older version do not carry what it rests on.
        """
        return self._judged(workload, self._nearest(workload), gpu, max_token_ratio)

    def default_config(self, workload: Workload) -> KernelConfig:
        """The default config of a layer on the bundle's platform, whether it has an export or not.

        Raises:
            UsageError: none fits, or exports of an older version do not carry what it rests on.
        """
        return self._defaults.config(workload)

    def choose_schedule(
        self,
        tokens_per_expert: ArrayLike,
        workload: Workload | None = None,
        *,
        gpu: GpuIdentity | str | None = None,
        max_token_ratio: float | None = None,
    ) -> ScheduleChoice:
        """The schedule for a rank's tokens, from the export that :meth:`lookup` gives for ``workload``.

        Without a workload the bundle must hold one MoE layer, and is asked for as many tokens a rank as this
        rank received, over top-k.

        Args:
            tokens_per_expert: tokens of each expert on this rank, ``[local_experts]``.
            gpu, max_token_ratio: as of :meth:`lookup`.

        Raises:
            UsageError: the tokens do not fit the layer, it is not clear which layer is meant, or as
                :meth:`lookup`.
        """
        tokens = whole_tokens(tokens_per_expert)
        if workload is None:
            nearest, workload = self._of_received(int(tokens.sum()))
        else:
            nearest = self._nearest(workload)
        found = self._judged(workload, nearest, gpu, max_token_ratio)
        weighed = choose(nearest, tokens)
        if found.match == "default":
            return ScheduleChoice(cast(MegaMoeConfig, found.config).schedule, None, None, found)
        return ScheduleChoice(weighed.schedule, weighed.stall_saved_ns, weighed.locality_cost_ns, found)

    def _nearest(self, workload: Workload) -> TunedConfig:
        variants = self._layers.get(workload.layer_key)
        if variants is None:
            names = ", ".join(sorted({export.workload.name for export in self.exports}))
            raise UsageError(
                f"no export for the layer of '{workload.name}' among those of '{self.platform}'",
                f"tune it: xstage-tune search --workload {workload.name}; there are: {names}",
                [f"left out of the bundle: {one}" for one in self.left_out],
            )
        asked = _variant_key(workload)
        ladder = variants.get(asked)
        if ladder is not None:
            return ladder.nearest(workload.token_count)
        return _of_nearest_variant(variants, asked, workload.token_count)

    def _of_received(self, received: int) -> tuple[TunedConfig, Workload]:
        """The export whose ranks receive, on average, about as many tokens; its layer with that many."""
        if len(self._moe_layers) != 1:
            raise UsageError(
                f"the bundle holds {len(self._moe_layers)} MoE layers, so it is not clear which one is meant",
                "give the workload too",
            )
        ladders = list(self._moe_layers[0].values())
        layer = cast(MoeWorkload, ladders[0].exports[0].workload)
        tokens = max(1, received // layer.top_k)
        nearest = _of_nearest_tokens(ladders, tokens)
        return nearest, nearest.workload.model_copy(update={layer.TOKENS_KEY: tokens})

    def _judged(
        self,
        asked: Workload,
        nearest: TunedConfig,
        gpu: GpuIdentity | str | None,
        max_token_ratio: float | None,
    ) -> Lookup:
        """The answer that the nearest export allows."""
        here = identified(gpu)
        on, by = compare_gpu(nearest.platform, here), compare_tool(nearest)
        differs = _differences(asked, nearest.workload)
        too_far = _too_far(asked, nearest.workload, max_token_ratio)
        unfit = [*on.differences, *too_far]
        if not unfit:
            problem = self._defaults.problem(nearest.config, asked)
            unfit += [f"the tuned config cannot run: {problem}"] if problem else []
        if differs and not unfit:
            slower = self._defaults.slower(nearest.config, asked)
            unfit += [f"the tuned config is {slower}"] if slower else []
        others = [key for key in differs if not too_far or key != asked.TOKENS_KEY]
        so_far = nearest.objective.unfinished
        ended = () if so_far is None else (f"the best so far of a search that had not ended: {so_far}",)
        other_gpu = nearest.platform.other_gpu
        forced = () if other_gpu is None else (f"its platform was forced on another GPU: {other_gpu}",)
        reasons = (*unfit, *by.differences, *_tuned_for(others, asked, nearest.workload), *forced, *ended)
        left_out = (f"left out of the bundle: {one}" for one in self.left_out)
        unchecked = (*on.unchecked, *by.unchecked, *left_out)
        if unfit:
            sms = here.sm_count if here is not None and on.differences else None
            config = self._defaults.config(asked, sms)
            return Lookup(config, "default", differs, reasons, unchecked, nearest)
        match: Match = "exact"
        if by.differences:
            match = "stale"
        elif differs:
            match = "nearest"
        elif forced:
            match = "forced"
        elif ended:
            match = "unfinished"
        return Lookup(nearest.config, match, differs, reasons, unchecked, nearest)


def load_bundle(path: str | Path, *, platform: str | None = None) -> Bundle:
    """Read the JSON and TOML exports in a folder; files that are none are left out.

    An export that cannot be read or contradicts itself is left out too: ``left_out`` of the bundle and a
    logged warning name it.

    Args:
        path: the folder, or the file of one export.
        platform: take only the exports of the platform of this name.

    Raises:
        UsageError: no export that can be taken, exports of several platforms or calibrations of one, or two
            exports of one workload.
    """
    place = expanded(Path(path))
    found: dict[Path, TunedConfig] = {}
    refused: list[UsageError] = []
    for file in [place] if place.is_file() else sorted(place.glob("*")):
        try:
            tuned = read_export(file) if file.suffix in _READERS else None
        except UsageError as error:
            refused.append(error)
        else:
            found |= {} if tuned is None else {file: tuned}
    if not found and refused:
        first, *others = refused
        raise UsageError(first.message, first.hint, [*first.others, *(other.message for other in others)])
    left_out = tuple("; ".join(filter(None, (error.message, error.hint))) for error in refused)
    for one in left_out:
        _log.warning("left out of the bundle: %s", one)
    if platform is not None:
        found = {file: tuned for file, tuned in found.items() if tuned.platform.name == platform}
    if not found:
        of = f" of platform '{platform}'" if platform else ""
        raise UsageError(
            f"no export{of} in {path}", "write one: xstage-tune export --study latest --format json -o FILE"
        )
    _require_one_platform(found)
    return _indexed(found, left_out)


def read_export(path: Path) -> TunedConfig | None:
    """One export; None for a file that is something else.

    Raises:
        UsageError: it cannot be read, breaks the schema, or contradicts itself.
    """
    try:
        keys = _READERS[path.suffix](read_text(path))
    except ValueError as error:
        raise UsageError(f"{path}: invalid {path.suffix[1:].upper()}: {error}") from None
    if not isinstance(keys, dict) or keys.get("format") != FORMAT:
        return None
    tuned = tuned_from_keys(keys, path)
    if problems := list(contradictions(tuned)):
        raise file_error(str(path), problems, "export its study again: xstage-tune export")
    return tuned


def _require_one_platform(found: Mapping[Path, TunedConfig]) -> None:
    """Refuse to mix platforms, calibrations of a platform, or paths.

    Raises:
        UsageError: two exports differ; names both files and what differs.
    """
    (first_path, first), *others = found.items()
    for path, tuned in others:
        differing = [
            f"{key} {getattr(first.platform, key)} and {getattr(tuned.platform, key)}"
            for key in _TELLS_PLATFORMS_APART
            if getattr(first.platform, key) != getattr(tuned.platform, key)
        ]
        if not differing:
            continue
        raise UsageError(
            f"{first_path.name} and {path.name} are for different platforms: {'; '.join(differing)}",
            "keep one folder for each, or load one with platform=NAME",
        )


def _indexed(found: Mapping[Path, TunedConfig], left_out: tuple[str, ...]) -> Bundle:
    paths: dict[_Key, Path] = {}
    groups: dict[_Key, dict[_Key, list[TunedConfig]]] = {}
    for path, tuned in found.items():
        layer, variant = tuned.workload.layer_key, _variant_key(tuned.workload)
        other = paths.setdefault((layer, variant, tuned.workload.token_count), path)
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
    moe = dict.fromkeys(tuned.workload.layer_key for tuned in exports if tuned.schedule_model)
    platform = exports[0].platform
    terms = next((tuned.default_terms for tuned in exports if tuned.default_terms), None)
    moe_layers = tuple(layers[layer] for layer in moe)
    return Bundle(platform.name, exports, left_out, layers, moe_layers, Defaults(platform, terms))


def _of_nearest_variant(variants: _Variants, asked: _Key, tokens: int) -> TunedConfig:
    """The nearest tokens among the variants that share most with what was asked."""
    differing = {variant: sum(a != b for a, b in zip(variant, asked, strict=True)) for variant in variants}
    fewest = min(differing.values())
    return _of_nearest_tokens(
        (ladder for variant, ladder in variants.items() if differing[variant] == fewest), tokens
    )


def _of_nearest_tokens(ladders: Iterable[_Ladder], tokens: int) -> TunedConfig:
    nearest = (ladder.nearest(tokens) for ladder in ladders)
    return min(nearest, key=lambda export: distance(export.workload.token_count, tokens))


def _variant_key(workload: Workload) -> _Key:
    return tuple(workload.variant.values())


def _differences(asked: Workload, found: Workload) -> tuple[str, ...]:
    ours, theirs = asked.variant, found.variant
    differing = tuple(key for key in ours if ours[key] != theirs[key])
    return (*differing, asked.TOKENS_KEY) if asked.token_count != found.token_count else differing


def _too_far(asked: Workload, found: Workload, max_token_ratio: float | None) -> tuple[str, ...]:
    """That the tokens are too far off; nothing where they are not.

    Raises:
        UsageError: the limit is below 1.
    """
    most = MAX_TOKEN_RATIO if max_token_ratio is None else max_token_ratio
    require_ratio(most)
    ours, theirs = found.token_count, asked.token_count
    ratio = token_ratio(ours, theirs)
    if ratio <= most:
        return ()
    limit = f"{ratio:.4g} times off, beyond the limit of {most:g} times"
    return (f"tuned for {found.TOKENS_KEY} {ours}, asked for {theirs}: {limit}",)


def _tuned_for(differs: Iterable[str], asked: Workload, found: Workload) -> Iterator[str]:
    """What each differing key was tuned for."""
    for key in differs:
        yield f"tuned for {key} {found.variant_words(key)}, asked for {asked.variant_words(key)}"
