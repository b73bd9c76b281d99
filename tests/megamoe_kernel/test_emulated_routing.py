"""The kernels that publish tokens and find a launch's tables, on emulated CTAs beside plain counting."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.attention_a2a.emulation import EMULATOR_OPTIONS
from tests.host_library import host_library
from xstage_tune.base.bf16 import from_bf16, to_bf16
from xstage_tune.base.e4m3 import from_e4m3
from xstage_tune.cuda.moe_arguments import LAUNCH_STATE, MOE_FAULT, PULL, ROW_SOURCE
from xstage_tune.cuda.moe_kernel import fault_words
from xstage_tune.cuda.moe_routing import ROUTING_ARGUMENTS, RoutedShape, choice_bytes, published_layout
from xstage_tune.families.megamoe.dispatch import rank_tables
from xstage_tune.families.megamoe.workload import Precision

#: Tokens of each rank; in tables one has more choices than a CTA takes at once.
SIZES, LARGE = (19, 0, 37), (2100, 0, 37)
EXPERTS, TOP_K, HIDDEN, BLOCK_M = 9, 4, 192, 64
SHAPE: dict[str, Any] = {
    "hidden": HIDDEN, "intermediate": 128, "experts": EXPERTS, "top_k": TOP_K, "ranks": len(SIZES),
    "most_tokens": 2200,
}  # fmt: skip


@pytest.fixture(scope="module", params=["bf16", "w8a8"])
def precision(request: pytest.FixtureRequest) -> Precision:
    found: Precision = request.param
    return found


@pytest.fixture(scope="module")
def library(precision: Precision) -> ctypes.CDLL:
    return built(precision)


def built(precision: Precision) -> ctypes.CDLL:
    """The kernels of a precision."""
    here = Path(__file__).parent / "emulator"
    defined = f"-DFORMAT={int(precision == 'w8a8')}"
    loaded = host_library(here / "routing.cpp", f"-I{here}", *EMULATOR_OPTIONS, defined)
    for name in ("run_publish", "run_route", "run_settle"):
        getattr(loaded, name).restype = ctypes.c_char_p
    return loaded


class Rank:
    """One rank's memory, and the arguments of its kernels."""

    def __init__(self, shape: RoutedShape, choices: NDArray[Any], seed: int) -> None:
        self.shape, self.choices = shape, choices
        self.layout, self.moe = published_layout(shape), shape.moe(BLOCK_M)
        self.region = np.zeros(self.layout.nbytes, np.uint8)
        self.tokens = to_bf16(
            np.random.default_rng(seed).normal(size=(len(choices), HIDDEN)).astype(np.float32)
        )
        pool_rows, most = self.moe.pool_rows(BLOCK_M), shape.ranks * shape.most_tokens
        self.held = {
            "state": np.zeros(1, LAUNCH_STATE),
            "fault": np.zeros(1, MOE_FAULT),
            "record": np.zeros(1, MOE_FAULT),
            "finished": np.zeros(1, np.uint32),
            "counts": np.zeros(shape.local_experts, np.uint32),
            "firsts": np.zeros(shape.local_experts, np.uint32),
            "tokens_per_expert": np.full(shape.local_experts, 77, np.uint32),
            "first_row": np.full(shape.local_experts + 1, 77, np.uint32),
            "pull_count": np.full(1, 77, np.uint32),
            "sources": np.zeros(pool_rows, ROW_SOURCE),
            "row_of": np.zeros(most * TOP_K, np.uint32),
            "pulls": np.zeros(most, PULL),
            "pull_rows": np.zeros(most * TOP_K, np.uint32),
            "output": np.zeros((max(1, len(choices)), HIDDEN), np.uint16),
            "tokens": self.tokens,
            "choices": self.choices,
        }

    def arguments(self, ranks: list[Rank]) -> NDArray[np.void]:
        arguments = np.zeros(1, ROUTING_ARGUMENTS)
        row, layout, shape = arguments[0], self.layout, self.shape
        for name, array in self.held.items():
            row[name] = array.ctypes.data
        own = self.region.ctypes.data
        row["published"], row["published_scales"] = own + layout.tokens, own + layout.scales
        row["all_choices"], row["all_counts"] = own + layout.choices, own + layout.token_counts
        row["words"] = own + layout.ready
        for other in ranks:
            theirs, place = other.region.ctypes.data, other.shape.rank
            row["told_choices"][place] = theirs + layout.choices + shape.rank * choice_bytes(shape)
            row["told_counts"][place] = theirs + layout.token_counts + 4 * shape.rank
            row["announcements"][place] = theirs + layout.ready + 4 * shape.rank
        row["count"], row["most_tokens"], row["top_k"] = len(self.choices), shape.most_tokens, TOP_K
        row["hidden"], row["experts"], row["all_experts"] = HIDDEN, shape.local_experts, EXPERTS
        row["rank"], row["ranks"], row["block_m"] = shape.rank, shape.ranks, BLOCK_M
        row["pool_rows"], row["choice_bytes"] = self.moe.pool_rows(BLOCK_M), self.choices.itemsize
        row["timeout_ns"] = 10**8
        return arguments


class Ranks:
    def __init__(
        self,
        library: ctypes.CDLL,
        precision: Precision,
        dtype: Any = np.int64,
        sizes: tuple[int, ...] = SIZES,
        **changes: Any,
    ) -> None:
        self._library = library
        generator = np.random.default_rng(5)
        drawn = [
            np.stack([generator.permutation(EXPERTS)[:TOP_K] for _ in range(size)] or [np.zeros(TOP_K)])[
                :size
            ]
            for size in sizes
        ]
        self.ranks = [
            Rank(
                RoutedShape(**SHAPE, rank=rank, precision=precision, **changes),
                np.ascontiguousarray(choices.astype(dtype)),
                rank,
            )
            for rank, choices in enumerate(drawn)
        ]

    def run(self, name: str, rank: Rank, grid: int) -> None:
        arguments = rank.arguments(self.ranks)
        wrong = getattr(self._library, name)(ctypes.c_void_p(arguments.ctypes.data), grid, 3)
        assert wrong is None, wrong

    def tell(self) -> None:
        """What publishing leaves of choices."""
        for rank in self.ranks:
            choices, counts = rank.region[rank.layout.choices :], rank.region[rank.layout.token_counts :]
            for other in self.ranks:
                own = other.choices.astype(np.uint32).view(np.uint8).ravel()
                choices[other.shape.rank * choice_bytes(rank.shape) :][: own.size] = own
                counts.view(np.uint32)[other.shape.rank] = len(other.choices)
            rank.region[rank.layout.ready :][: 4 * len(self.ranks)].view(np.uint32)[:] = 1

    def publish(self, *, but: tuple[int, ...] = ()) -> None:
        for number, rank in enumerate(self.ranks):
            if number not in but:
                self.run("run_publish", rank, 3)


def test_tables_are_those_of_plain_counting() -> None:
    layer = Ranks(built("bf16"), "bf16", sizes=LARGE)
    layer.tell()
    expected = rank_tables([rank.choices for rank in layer.ranks], EXPERTS)
    for rank, tables in zip(layer.ranks, expected, strict=True):
        layer.run("run_route", rank, 2)
        held = rank.held
        assert not held["fault"]["raised"][0]
        assert held["tokens_per_expert"].tolist() == list(tables.tokens_per_expert)
        tiles = -(-np.array(tables.tokens_per_expert) // BLOCK_M)
        assert held["first_row"].tolist() == [0, *np.cumsum(tiles).tolist()]
        counts = np.array(tables.tokens_per_expert)
        begins = BLOCK_M * held["first_row"][:-1].astype(np.int64)
        places = np.concatenate(
            [np.arange(begin, begin + count) for begin, count in zip(begins, counts, strict=True)]
        )
        assert held["sources"]["rank"][places].tolist() == tables.rank.tolist()
        assert held["sources"]["slot"][places].tolist() == tables.slot.tolist()
        pulls = held["pulls"][: held["pull_count"][0]]
        assert np.stack([pulls["rank"], pulls["token"]], 1).tolist() == tables.pulls.tolist()
        for number, pull in enumerate(pulls):
            first, rows = int(pull["first_row"]), int(pull["rows"])
            own = slice(tables.pull_first[number], tables.pull_first[number + 1])
            assert sorted(held["pull_rows"][first : first + rows].tolist()) == sorted(
                places[tables.pull_rows[own]].tolist()
            )


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_what_is_published_is_the_rank_s_tokens_and_each_rank_is_told(
    library: ctypes.CDLL, precision: Precision, dtype: Any
) -> None:
    layer = Ranks(library, precision, dtype)
    layer.publish()
    rank = layer.ranks[0]
    layout, size = rank.layout, SIZES[0]
    exact = from_bf16(rank.tokens)
    if precision == "bf16":
        published = rank.region[layout.tokens :][: size * HIDDEN * 2].view(np.uint16)
        assert (published.reshape(size, HIDDEN) == rank.tokens).all()
    else:
        numbers = from_e4m3(rank.region[layout.tokens :][: size * HIDDEN].reshape(size, HIDDEN))
        stride = rank.moe.token_scales
        scales = rank.region[layout.scales :][: size * stride * 4].view(np.float32).reshape(size, stride)
        seen = numbers * np.repeat(scales[:, :2], 128, 1)[:, :HIDDEN]
        # Half a step of 3 bits, of the largest of a block.
        assert np.abs(seen - exact).max() <= np.abs(exact).max() / 16
        assert np.linalg.norm(seen - exact) / np.linalg.norm(exact) < 0.03
        largest = np.abs(exact[:, :128]).max(1)
        assert scales[:, 0] == pytest.approx(largest / 448, rel=1e-6)
    for other in layer.ranks:
        words = other.region[layout.ready :][:12].view(np.uint32)
        assert words.tolist() == [1, 1, 1]
        told = other.region[layout.choices + 2 * choice_bytes(other.shape) :][: 4 * SIZES[2] * TOP_K]
        assert told.view(np.uint32).tolist() == layer.ranks[2].choices.ravel().tolist()
        counts = other.region[layout.token_counts :][:12].view(np.uint32)
        assert counts.tolist() == list(SIZES)


def test_tokens_that_come_quantised_are_published_as_they_are() -> None:
    layer = Ranks(built("w8a8"), "w8a8")
    rank, generator = layer.ranks[2], np.random.default_rng(1)
    tokens = generator.integers(0x7E, size=(SIZES[2], HIDDEN), dtype=np.uint8)
    scales = generator.random((SIZES[2], 2), np.float32)
    rank.held |= {"tokens": tokens, "token_scales": scales}
    layer.run("run_publish", rank, 2)
    layout, stride = rank.layout, rank.moe.token_scales
    published = rank.region[layout.tokens :][: tokens.size]
    assert (published.reshape(tokens.shape) == tokens).all()
    of_tokens = rank.region[layout.scales :][: SIZES[2] * stride * 4].view(np.float32)
    assert (of_tokens.reshape(SIZES[2], stride)[:, :2] == scales).all()


def test_a_rank_that_does_not_publish_is_named_and_tables_are_empty() -> None:
    layer = Ranks(built("bf16"), "bf16")
    layer.publish(but=(2,))
    rank = layer.ranks[0]
    layer.run("run_route", rank, 2)
    held = rank.held
    assert "the tokens of rank 2 did not come: waited 0.1 s for launch 1" in fault_words(held["fault"][0])
    assert held["first_row"].tolist() == [0] * 4
    assert held["pull_count"][0] == 0
    # Nothing is told from then on, and the result is NaNs.
    held["state"]["epoch"] = 1
    layer.run("run_publish", rank, 3)
    assert layer.ranks[1].region[rank.layout.ready :][:4].view(np.uint32)[0] == 1
    layer.run("run_settle", rank, 1)
    assert np.isnan(from_bf16(held["output"])).all()
    assert held["record"]["raised"][0] == 1
    assert fault_words(held["record"][0]) == fault_words(held["fault"][0])


def test_a_choice_that_is_no_expert_is_named_on_every_rank() -> None:
    layer = Ranks(built("bf16"), "bf16")
    layer.ranks[2].choices[5, 1] = -1
    layer.publish()
    for rank in layer.ranks:
        layer.run("run_route", rank, 2)
        assert fault_words(rank.held["fault"][0]) == "rank 2, token 5: expert -1 of 9 is chosen"
        assert rank.held["tokens_per_expert"].tolist() == [0, 0, 0]


def test_rows_beyond_the_pool_are_refused() -> None:
    layer = Ranks(built("bf16"), "bf16", sizes=LARGE, most_rows=500)
    layer.tell()
    layer.run("run_route", layer.ranks[1], 2)
    held = layer.ranks[1].held
    assert "are routed to rank 1, whose pool holds" in fault_words(held["fault"][0])
    assert held["first_row"].tolist() == [0] * 4
