"""Shipped shapes, overrides, histogram files, and what a user is told when one is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from xstage_tune.base.errors import ExitCode, UsageError
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.megamoe import routing
from xstage_tune.families.megamoe.paper import PAPER_MOE_MODELS, PAPER_TOKENS_PER_RANK
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.workload_files import list_workloads, load_workload

#: hidden, intermediate, experts, top-k, shared experts
MOE_SHAPES = {
    "deepseek-v4-flash": (4096, 2048, 256, 6, 1),
    "deepseek-v4-pro": (7168, 3072, 384, 6, 1),
    "deepseek-v3": (7168, 2048, 256, 8, 1),
    "glm-5": (6144, 2048, 256, 8, 1),
    "glm-5.2": (6144, 2048, 256, 8, 1),
    "glm-4.5": (5120, 1536, 160, 8, 1),
    "qwen3.5-397b-a17b": (4096, 1024, 512, 10, 1),
    "qwen3.5-35b-a3b": (2048, 512, 256, 8, 1),
    "qwen3-235b-a22b": (4096, 1536, 128, 8, 0),
    "hy3-preview": (4096, 1536, 192, 8, 1),
    "mimo-v2.5": (4096, 2048, 256, 8, 0),
    "mixtral-8x7b": (4096, 14336, 8, 2, 0),
    "dit-moe-g-2": (1408, 5632, 16, 2, 2),
    "gpt-oss-120b": (2880, 2880, 128, 4, 0),
    "gpt-oss-20b": (2880, 2880, 32, 4, 0),
}
#: heads, head dim, tokens, local heads at degree 8
ATTENTION_SHAPES = {
    "hunyuanvideo-720p": (24, 128, 118_800, 3),
    "wan2.1-14b-720p": (40, 128, 75_600, 5),
    "wan2.2-14b-720p": (40, 128, 75_600, 5),
    "step-video": (48, 128, 75_888, 6),
    "open-sora-2.0-768px": (24, 128, 80_000, 3),
    "mochi": (24, 128, 44_520, 3),
    "cogvideox-5b": (48, 64, 17_776, 6),
    "flux.1-1024px": (24, 128, 4_608, 3),
    "paper": (32, 128, 8_192, 4),
}
FLASH = "megamoe/deepseek-v4-flash"
WAN = "fa-a2a/wan2.1-14b-720p"


def moe(name: str, *overrides: str) -> MoeWorkload:
    layer = load_workload(name, overrides)
    assert isinstance(layer, MoeWorkload)
    return layer


def attention(name: str, *overrides: str) -> AttentionWorkload:
    workload = load_workload(name, overrides)
    assert isinstance(workload, AttentionWorkload)
    return workload


def refusal(name: str, *overrides: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_workload(name, overrides)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "\n" not in caught.value.message
    return caught.value.message


class TestShipped:
    def test_every_shape_ships_and_no_other(self) -> None:
        names = [f"megamoe/{name}" for name in MOE_SHAPES] + [f"fa-a2a/{name}" for name in ATTENTION_SHAPES]
        assert list(list_workloads()) == sorted(names)

    @pytest.mark.parametrize(("name", "shape"), MOE_SHAPES.items())
    def test_moe_shape(self, name: str, shape: tuple[int, ...]) -> None:
        layer = moe(f"megamoe/{name}")
        assert (layer.hidden, layer.intermediate, layer.experts, layer.top_k, layer.shared_experts) == shape
        assert (layer.name, layer.ep_degree) == (f"megamoe/{name}", 8)
        assert layer.source
        assert routing.tokens_per_expert(layer).sum() == layer.assignments

    @pytest.mark.parametrize(("name", "shape"), ATTENTION_SHAPES.items())
    def test_attention_shape(self, name: str, shape: tuple[int, ...]) -> None:
        workload = attention(f"fa-a2a/{name}")
        assert (workload.heads, workload.head_dim, workload.tokens, workload.local_heads) == shape
        assert (workload.name, workload.degree) == (f"fa-a2a/{name}", 8)
        assert workload.source

    def test_the_papers_seven_models_have_shapes(self) -> None:
        layers = [moe(name, f"tokens_per_rank={PAPER_TOKENS_PER_RANK}") for name in PAPER_MOE_MODELS.values()]
        assert len({layer.name for layer in layers}) == 7
        assert {layer.group_tokens for layer in layers} == {55_808}

    def test_the_papers_attention_counts_every_byte_as_remote(self) -> None:
        assert attention("fa-a2a/paper").output_remote_fraction == 1.0


class TestDerived:
    def test_linear_shapes_of_a_layer(self) -> None:
        layer = moe(FLASH)
        assert layer.linear1_shape == (4096, 4096)
        assert layer.linear2_shape == (4096, 2048)

    @pytest.mark.parametrize(
        ("precision", "weight", "activation", "dtype"),
        [("bf16", 2.0, 2.0, "bf16"), ("w8a8", 1.0, 1.0, "fp8"), ("w4a8", 0.5, 1.0, "fp8")],
    )
    def test_precision_sets_bytes_and_tensor_rate(
        self, precision: str, weight: float, activation: float, dtype: str
    ) -> None:
        layer = moe(FLASH, f"precision={precision}")
        assert (layer.weight_bytes, layer.activation_bytes, layer.tensor_dtype) == (weight, activation, dtype)

    def test_remote_fraction_is_that_of_even_sources_unless_given(self) -> None:
        assert moe(FLASH).combine_remote_fraction == 7 / 8
        assert moe(FLASH, "ep_degree=1").combine_remote_fraction == 0.0
        assert moe(FLASH, "remote_fraction=0.25").combine_remote_fraction == 0.25

    @pytest.mark.parametrize(("name", "rows"), [("wan2.1-14b-720p", 9_450), ("hunyuanvideo-720p", 14_850)])
    def test_rows_per_rank_need_not_fill_tiles(self, name: str, rows: int) -> None:
        assert attention(f"fa-a2a/{name}").rows_per_rank == rows

    @pytest.mark.parametrize(
        ("fraction", "remote_ranks", "local_ranks", "remote_rows"),
        # 1,000 tokens: 125 of each of 8 ranks.
        [("0.875", 7, 1, 875), ("1.0", 8, 0, 1000), ("0.0", 0, 8, 0), ("0.3", None, 0, 300)],
    )
    def test_a_remote_fraction_is_of_whole_ranks_where_it_can_be(
        self, fraction: str, remote_ranks: int | None, local_ranks: int, remote_rows: int
    ) -> None:
        layer = attention(WAN, f"remote_fraction={fraction}", "tokens=1000")
        assert (layer.remote_ranks, layer.local_ranks) == (remote_ranks, local_ranks)
        assert layer.remote_bytes == layer.local_heads * remote_rows * 128 * 2

    @pytest.mark.parametrize("degree", [1, 5, 8])
    def test_without_a_fraction_only_this_rank_is_local(self, degree: int) -> None:
        layer = attention(WAN, f"degree={degree}")
        assert (layer.remote_ranks, layer.local_ranks) == (degree - 1, 1)

    def test_whole_ranks_are_of_whole_rows(self) -> None:
        """13 tokens of 8 ranks: two each, the last ranks one and none."""
        layer = attention(WAN, "remote_fraction=0.375", "tokens=13")
        assert layer.remote_bytes == layer.local_heads * 3 * 128 * 2

    def test_one_token_leaves_most_ranks_empty(self) -> None:
        assert attention(WAN, "tokens=1").rows_per_rank == 1
        assert moe(FLASH, "tokens_per_rank=1").assignments == 48


class TestOverrides:
    def test_tokens_are_the_workloads_own(self) -> None:
        assert moe(FLASH, "tokens=64") == moe(FLASH, "tokens_per_rank=64")
        assert moe(FLASH, " tokens = 64").tokens_per_rank == 64
        assert attention(WAN, "tokens=64").tokens == 64

    def test_tokens_by_both_names_are_set_twice(self) -> None:
        with pytest.raises(UsageError, match="'tokens_per_rank' is set twice"):
            moe(FLASH, "tokens=64", "tokens_per_rank=64")

    def test_an_attention_has_none_per_rank(self) -> None:
        with pytest.raises(UsageError, match="did you mean 'tokens'"):
            attention(WAN, "tokens_per_rank=64")

    def test_override_a_key_and_a_key_of_a_section(self) -> None:
        layer = moe(FLASH, "tokens_per_rank=4096", "routing.kind=zipf", "routing.alpha=1.2", "routing.seed=7")
        assert layer.tokens_per_rank == 4096
        assert (layer.routing.kind, layer.routing.alpha, layer.routing.seed) == ("zipf", 1.2, 7)

    @pytest.mark.parametrize("text", ["tokens_per_rank", "=4096", "routing..alpha=1"])
    def test_refuses_what_is_no_key_and_value(self, text: str) -> None:
        assert f"--set {text}: not of the form key=value" in refusal(FLASH, text)

    def test_refuses_a_key_below_a_value(self) -> None:
        assert "'hidden' holds a value, not keys" in refusal(FLASH, "hidden.size=1")

    def test_a_misspelt_key_names_the_nearest_and_the_override(self) -> None:
        message = refusal(FLASH, "token_per_rank=4096")
        assert "--set token_per_rank=4096" in message
        assert "unknown key 'token_per_rank'; did you mean 'tokens_per_rank'?" in message

    def test_a_keys_beginning_names_the_key(self) -> None:
        assert "unknown key 'routing.alph'; did you mean 'alpha'?" in refusal(FLASH, "routing.alph=1")

    def test_a_key_that_begins_with_another_names_that(self) -> None:
        assert "unknown key 'tokens_per_rank'; did you mean 'tokens'?" in refusal(WAN, "tokens_per_rank=5")

    def test_a_key_like_no_other_lists_the_keys(self) -> None:
        with pytest.raises(UsageError, match=r"unknown key 'zzz'$") as caught:
            load_workload(WAN, ["zzz=1"])
        assert caught.value.hint.startswith("one of: ")
        assert "heads, head_dim, tokens, degree" in caught.value.hint


class TestNames:
    def test_a_file_path_works_where_a_name_does(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.toml"
        path.write_text(list_workloads()[FLASH].read_text())
        assert moe(str(path), "tokens_per_rank=16").tokens_per_rank == 16

    def test_own_workloads_are_found_by_name(self, own_workloads: Path) -> None:
        (own_workloads / "fa_a2a").mkdir()
        (own_workloads / "fa_a2a" / "mine.toml").write_text(list_workloads()[WAN].read_text())
        assert attention("fa-a2a/mine").heads == 40

    @pytest.mark.parametrize(
        "name", ["megamoe/deepseek-v4-flsh", "deepseek-v4-flash", "MEGAMOE/deepseek-v4-flash"]
    )
    def test_an_unknown_name_lists_the_nearest(self, name: str) -> None:
        with pytest.raises(UsageError, match=f"unknown workload '{name}'") as caught:
            load_workload(name)
        assert FLASH in caught.value.hint

    def test_a_name_like_no_other_points_to_the_list(self) -> None:
        with pytest.raises(UsageError) as caught:
            load_workload("zzz")
        assert caught.value.hint.startswith("one of: xstage-tune workloads list")


class TestBadInput:
    @pytest.mark.parametrize(
        ("name", "override", "problem"),
        [
            (FLASH, "ep_degree=7", "experts = 256 is not divisible by ep_degree = 7"),
            (FLASH, "top_k=257", "top_k = 257 is more than experts = 256"),
            (FLASH, "tokens_per_rank=0", "tokens_per_rank = 0: should be greater than 0"),
            (FLASH, "tokens_per_rank=-1", "tokens_per_rank = -1: should be greater than 0"),
            (
                FLASH,
                "tokens_per_rank=9223372036854775807",
                "tokens_per_rank = 9223372036854775807: should be less than or equal to 2147483647",
            ),
            (
                FLASH,
                "tokens_per_rank=268435456",
                "tokens_per_rank = 268435456 on ep_degree = 8 ranks is more than 2147483647 tokens",
            ),
            (FLASH, "experts=100000000", "experts = 100000000: should be less than or equal to 65536"),
            (FLASH, "hidden=1048577", "hidden = 1048577: should be less than or equal to 1048576"),
            (FLASH, "shared_experts=65537", "shared_experts = 65537: should be less than or equal to 65536"),
            (WAN, "tokens=2147483648", "tokens = 2147483648: should be less than or equal to 2147483647"),
            (WAN, "heads=4104", "heads = 4104: should be less than or equal to 4096"),
            (FLASH, "hidden=4096.5", "hidden = 4096.5: should be a valid integer"),
            (FLASH, "precision=w2a2", "precision = 'w2a2': should be 'bf16', 'w8a8' or 'w4a8'"),
            (FLASH, "remote_fraction=nan", "remote_fraction = nan: should be a finite number"),
            (FLASH, "remote_fraction=1.5", "remote_fraction = 1.5: should be less than or equal to 1"),
            (FLASH, "kind=dense", "kind = 'dense': should be one of moe, attention"),
            (FLASH, "routing.kind=zipf", "routing: kind 'zipf' needs the key 'alpha'"),
            (FLASH, "routing.alpha=1", "routing: key 'alpha' is for kind 'zipf', not 'balanced'"),
            (FLASH, "routing.kind=histogram", "routing: kind 'histogram' needs the key 'histogram'"),
            (FLASH, "routing.alpa=1", "unknown key 'routing.alpa'; did you mean 'alpha'?"),
            (WAN, "degree=7", "heads = 40 is not divisible by degree = 7"),
            (
                "fa-a2a/paper",
                "degree=1",
                "remote_fraction = 1 with degree = 1: one rank has no other to store to",
            ),
            (WAN, "tokens=0", "tokens = 0: should be greater than 0"),
            (WAN, "head_dim=100", "head_dim = 100: must be a multiple of 8"),
        ],
    )
    def test_says_what_is_wrong(self, name: str, override: str, problem: str) -> None:
        assert problem in refusal(name, override)

    def test_alpha_that_is_no_number(self) -> None:
        message = refusal(FLASH, "routing.kind=zipf", "routing.alpha=nan")
        assert "routing.alpha = nan: should be a finite number" in message

    def test_a_profile_without_a_kind(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.toml"
        path.write_text("hidden = 1\n")
        assert "mine.toml: key 'kind' is missing: one of moe, attention" in refusal(str(path))

    def test_an_override_s_error_names_the_workload_and_no_installed_file(self) -> None:
        assert refusal(WAN, "tokens=0") == f"{WAN} --set tokens=0: tokens = 0: should be greater than 0"

    @pytest.mark.parametrize("again", ["tokens=2048", " tokens =2048", "tokens=1024"])
    def test_a_key_that_is_set_twice(self, again: str) -> None:
        message = refusal(WAN, "tokens=1024", again)
        assert message == f"--set {again}: 'tokens' is set twice, to 1024 before"


class TestHistogramRules:
    @pytest.fixture
    def layer(self) -> list[str]:
        """Eight experts on two ranks, top-2, 10 tokens a rank: 40 assignments of 20 tokens."""
        return ["experts=8", "ep_degree=2", "top_k=2", "tokens_per_rank=10", "routing.kind=histogram"]

    @pytest.mark.parametrize(
        ("histogram", "problem"),
        [
            (
                "[5, 5, 5, 5, 5, 5, 5, 4]",
                "sums to 39, not to 1 (shares) nor to 40 (tokens: 2 ranks x 10 x top-2)",
            ),
            ("[0.5, 0.4, 0, 0, 0, 0, 0, 0]", "sums to 0.9"),
            ("[20, 20]", "has 2 entries for 8 experts"),
            (
                "[40, 0, 0, 0, 0, 0, 0, 0]",
                "gives expert 0 40 tokens of 20: a token visits an expert at most once",
            ),
            ("[0, 1.0, 0, 0, 0, 0, 0, 0]", "gives expert 1 40 tokens of 20"),
            ("[7.5, 2.5, 5, 5, 5, 5, 5, 5]", "has a token count that is not whole"),
            ("[-1, 6, 5, 5, 5, 5, 5, 10]", "routing.histogram[0] = -1: should be greater than or equal to 0"),
            ("[nan, 6, 5, 5, 5, 5, 5, 10]", "routing.histogram[0] = nan: should be a finite number"),
        ],
    )
    def test_refuses_what_no_routing_can_have(self, layer: list[str], histogram: str, problem: str) -> None:
        assert problem in refusal(FLASH, *layer, f"routing.histogram={histogram}")

    def test_all_tokens_on_one_expert_is_fine_for_top_1(self, layer: list[str]) -> None:
        layer = [key for key in layer if not key.startswith("top_k")]
        one = moe(FLASH, *layer, "top_k=1", "routing.histogram=[20, 0, 0, 0, 0, 0, 0, 0]")
        assert routing.rank_imbalance(one) == 2.0


class TestHistogramFiles:
    LAYER = ("experts=4", "ep_degree=2", "top_k=1", "tokens_per_rank=5", "routing.kind=histogram")

    def load(self, path: Path) -> list[float]:
        histogram = moe(FLASH, *self.LAYER, f"routing.file={path}").routing.histogram
        assert histogram is not None
        return list(histogram)

    def test_json_array(self, tmp_path: Path) -> None:
        path = tmp_path / "counts.json"
        path.write_text("[4, 3, 2, 1]")
        assert self.load(path) == [4, 3, 2, 1]

    def test_csv_in_any_order(self, tmp_path: Path) -> None:
        path = tmp_path / "counts.csv"
        path.write_text("expert,tokens\n1,3\n0,4\n3,1\n2,2\n")
        assert self.load(path) == [4, 3, 2, 1]

    def test_a_file_named_in_a_profile_lies_beside_it(self, tmp_path: Path) -> None:
        text = list_workloads()[FLASH].read_text().replace('"balanced"', '"histogram"\nfile = "shares.json"')
        (tmp_path / "mine.toml").write_text(text)
        (tmp_path / "shares.json").write_text("[0.4, 0.3, 0.2, 0.1]")
        layer = moe(str(tmp_path / "mine.toml"), *self.LAYER[:-1])
        assert layer.routing.histogram == (0.4, 0.3, 0.2, 0.1)

    @pytest.mark.parametrize(
        ("name", "text", "problem"),
        [
            ("a.json", "[4, 3", "a.json: invalid JSON"),
            ("a.json", '{"0": 4}', "a.json: not an array of numbers"),
            ("a.json", '[4, "3"]', "a.json: not an array of numbers"),
            ("a.json", "[NaN, 4, 3, 3]", "routing.histogram[0] = nan: should be a finite number"),
            ("a.json", "[4, 3, 2, 2]", "sums to 11"),
            ("a.json", f"[1{'0' * 400}, 3, 2, 2]", "routing.histogram[0] = "),
            ("a.csv", "expert,count\n0,4\n", "a.csv: the header is not expert,tokens"),
            ("a.csv", "", "a.csv: the header is not expert,tokens"),
            ("a.csv", "expert,tokens\n0,4\n1,x\n", "a.csv, line 3: not an expert and a number"),
            ("a.csv", "expert,tokens\n0,4\n1\n", "a.csv, line 3: not an expert and a number"),
            ("a.csv", "expert,tokens\n0,4\n1,3,9\n", "a.csv, line 3: more than two columns"),
            ("a.csv", "expert,tokens\n0,4\n0,3\n", "a.csv, line 3: expert 0 again"),
            ("a.csv", "expert,tokens\n0,4\n2,3\n", "a.csv: experts are not numbered 0 to 1 without a gap"),
            ("a.txt", "4 3 2 1", "a.txt is neither .csv nor .json"),
        ],
    )
    def test_a_bad_file_names_itself_and_the_place(
        self, tmp_path: Path, name: str, text: str, problem: str
    ) -> None:
        (tmp_path / name).write_text(text)
        assert problem in refusal(FLASH, *self.LAYER, f"routing.file={tmp_path / name}")

    def test_a_missing_file(self, tmp_path: Path) -> None:
        message = refusal(FLASH, *self.LAYER, f"routing.file={tmp_path / 'none.csv'}")
        assert message.startswith("cannot read")
        assert "none.csv" in message

    def test_a_file_and_a_histogram_together(self) -> None:
        message = refusal(FLASH, *self.LAYER, "routing.file=a.csv", "routing.histogram=[1]")
        assert "either a histogram or the path of one" in message
