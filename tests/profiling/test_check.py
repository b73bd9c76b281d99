"""Outputs are compared in bf16 bits and against fp32; what is wrong is named with its place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attention_a2a.emulation import attention
from xstage_tune.families.attention_a2a.check import (
    POISON_BITS,
    TOLERANCE,
    Bits,
    InputPool,
    Inputs,
    check_attention,
    check_equal,
    check_like,
    complaint,
    from_bf16,
    random_inputs,
    reference,
    sampled_tokens,
    to_bf16,
)

INPUTS = random_inputs(tokens=50, heads=3, head_dim=64, seed=1)
EVERY = np.arange(50)


def right_output(inputs: Inputs) -> Bits:
    return to_bf16(attention(inputs.query, inputs.key, inputs.value).astype(np.float32))


@settings(deadline=None, max_examples=50)
@given(st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False))
def test_rounding_to_bf16_is_within_half_a_step(value: float) -> None:
    back = float(from_bf16(to_bf16(np.array([value], np.float32)))[0])
    assert back == pytest.approx(value, rel=2**-8)


def test_inputs_depend_on_the_seed_alone() -> None:
    again, other = random_inputs(50, 3, 64, seed=1), random_inputs(50, 3, 64, seed=2)
    assert np.array_equal(again.key, INPUTS.key)
    assert not np.array_equal(other.key, INPUTS.key)
    assert from_bf16(INPUTS.value).std() == pytest.approx(1.0, abs=0.05)


def test_inputs_of_a_pool_are_fresh_for_each_seed_and_look_like_drawn_ones() -> None:
    pool = InputPool(50, 3, 64)
    one, same, other = pool.inputs(1), pool.inputs(1), pool.inputs(2)
    assert one.query.shape == (50, 3, 64)
    assert np.array_equal(one.query, same.query)
    for first, second in ((one.query, other.query), (one.query, one.key), (one.key, one.value)):
        assert abs(np.corrcoef(from_bf16(first).ravel(), from_bf16(second).ravel())[0, 1]) < 0.1
    assert from_bf16(other.value).std() == pytest.approx(1.0, abs=0.05)


def test_another_kernels_output_may_round_otherwise_and_no_more() -> None:
    trusted = right_output(INPUTS)
    assert check_like(trusted, trusted)[1].mismatched_bytes == 0
    rounded = to_bf16(from_bf16(trusted) * np.float32(1.004))
    assert complaint(*check_like(rounded, trusted)) == ""
    wrong = trusted.copy()
    wrong[17, 2] = to_bf16(from_bf16(trusted[17, 2]) * np.float32(1.1))
    figures, found = check_like(wrong, trusted)
    assert "token 17, head 2" in figures.place
    assert found.mismatched_bytes == 64 * 2
    wrong[17, 2] = POISON_BITS
    assert "token 17, head 2" in complaint(*check_like(wrong, trusted))


def test_reference_is_attention_of_the_sampled_rows() -> None:
    rows = np.array([0, 17, 49])
    expected = attention(INPUTS.query, INPUTS.key, INPUTS.value)[rows]
    assert reference(INPUTS, rows) == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("tokens", "ranks"), [(1, 1), (1, 8), (9, 8), (75_600, 8)])
def test_samples_have_both_ends_and_a_boundary_of_ranks(tokens: int, ranks: int) -> None:
    sampled = sampled_tokens(tokens, ranks, 0)
    assert {0, tokens - 1} <= set(sampled.tolist())
    assert min(tokens - 1, ranks // 2 * -(-tokens // ranks)) in sampled
    assert sampled.max() < tokens
    assert (np.diff(sampled) > 0).all()


def test_a_right_output_passes_with_its_error() -> None:
    figures, found = check_attention(right_output(INPUTS), INPUTS, EVERY)
    assert figures.place == ""
    assert figures.relative_error is not None
    assert 0 < figures.relative_error < TOLERANCE / 2
    assert (found.checked_bytes, found.mismatched_bytes) == (50 * 3 * 64 * 2, 0)


def test_a_wrong_head_is_named() -> None:
    output = right_output(INPUTS)
    output[:, 1] = output[:, 2]
    figures, found = check_attention(output, INPUTS, EVERY)
    assert "head 1: relative error" in figures.place
    assert found.mismatched_bytes == 50 * 64 * 2


@pytest.mark.parametrize("token", [0, 31])
def test_an_unwritten_row_is_named_also_where_it_is_not_sampled(token: int) -> None:
    output = right_output(INPUTS)
    output[token, 2] = POISON_BITS
    figures, found = check_attention(output, INPUTS, np.array([5, 6]))
    assert figures.place == f"token {token}, head 2: not written"
    assert found.mismatched_bytes > 0


def test_equal_bits_pass() -> None:
    output = right_output(INPUTS)
    figures, found = check_equal(output.copy(), output, rows_per_rank=7)
    assert (figures.place, found.checked_bytes, found.mismatched_bytes) == ("", output.nbytes, 0)


def test_a_single_different_bit_is_named_with_its_rank() -> None:
    expected = right_output(INPUTS)
    output = expected.copy()
    output[20, 1, 3] ^= 1
    figures, found = check_equal(output, expected, rows_per_rank=7)
    assert figures.place.startswith("token 20 of rank 2, head 1: element 3 is 0x")
    assert found.mismatched_bytes == 2
    output[4, 0, 0] = POISON_BITS
    assert check_equal(output, expected, 7)[0].place == "token 4 of rank 0, head 0: element 0 is not written"
