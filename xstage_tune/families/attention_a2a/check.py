"""Whether outputs of an attention are right: against fp32 on sampled tokens, and bit for bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xstage_tune.base.bf16 import Bits, Floats, from_bf16, to_bf16
from xstage_tune.families import profiled
from xstage_tune.families.attention_a2a.timing import AttentionOutcome
from xstage_tune.families.profiled import CheckFigures
from xstage_tune.launches.device import Verification

Ints = NDArray[np.int64]

#: bf16 NaN, which no attention of finite inputs gives: what buffers hold before a check.
POISON_BITS = 0x7FFF
#: bf16 operands and probabilities: the rounding of both is near 2e-3.
TOLERANCE = 1e-2
_SAMPLED_TOKENS = 8
#: Whose intermediate values the processor's caches hold: three times as fast as all tokens at once.
_TOKENS_AT_ONCE = 512
_BITS_BYTES = 2


@dataclass(frozen=True, slots=True)
class Inputs:
    """q, k and v as bf16 bits, ``[tokens, heads, head_dim]`` each."""

    query: Bits
    key: Bits
    value: Bits


def random_inputs(tokens: int, heads: int, head_dim: int, seed: int) -> Inputs:
    """Unit normal q, k and v."""
    generator = np.random.default_rng(seed)
    size = (tokens, heads, head_dim)
    return Inputs(*(to_bf16(generator.standard_normal(size, np.float32)) for _ in range(3)))


class InputPool:
    """Unit normal numbers of which q, k and v are cut, elsewhere for each seed: drawing them takes longer."""

    _SPARE = 1 << 20

    def __init__(self, tokens: int, heads: int, head_dim: int) -> None:
        self._size = (tokens, heads, head_dim)
        numbers = np.random.default_rng(0).standard_normal(
            tokens * heads * head_dim + self._SPARE, np.float32
        )
        self._bits = to_bf16(numbers)

    def inputs(self, seed: int) -> Inputs:
        """Those of a seed; views, not to be changed."""
        length = self._bits.size - self._SPARE
        begins = np.random.default_rng(seed).integers(self._SPARE, size=3).tolist()
        return Inputs(*(self._bits[begin : begin + length].reshape(self._size) for begin in begins))


def sampled_tokens(tokens: int, ranks: int, seed: int) -> Ints:
    """The first and the last token, a first one of a rank in the middle, and a few others; ascending."""
    boundary = min(tokens - 1, ranks // 2 * -(-tokens // ranks))
    others = np.random.default_rng(seed).integers(tokens, size=_SAMPLED_TOKENS - 3)
    return np.unique(np.concatenate(([0, boundary, tokens - 1], others)))


def reference(inputs: Inputs, tokens: Ints) -> Floats:
    """Attention of the query rows ``tokens`` in fp32, ``[n, heads, head_dim]``."""
    query = from_bf16(inputs.query[tokens])
    scale = np.float32(query.shape[2] ** -0.5)
    out = np.empty_like(query)
    for head in range(query.shape[1]):
        scores = query[:, head] @ from_bf16(inputs.key[:, head]).T * scale
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        out[:, head] = weights @ from_bf16(inputs.value[:, head])
    return out


def check_attention(output: Bits, inputs: Inputs, tokens: Ints) -> tuple[CheckFigures, Verification]:
    """The attention's own output against fp32, on sampled tokens, and that nothing was left unwritten."""
    expected, seen = reference(inputs, tokens), from_bf16(output[tokens])
    error = np.linalg.norm(seen - expected, axis=2) / np.linalg.norm(expected, axis=2)
    relative_error = float(np.linalg.norm(seen - expected) / np.linalg.norm(expected))
    checked = seen.size * _BITS_BYTES
    unwritten = np.argwhere((output == POISON_BITS).any(axis=2))
    if unwritten.size:
        place = _place(int(unwritten[0, 0]), int(unwritten[0, 1]), "not written")
        return CheckFigures(relative_error, place), Verification(checked, len(unwritten) * _BITS_BYTES)
    if relative_error <= TOLERANCE:
        return CheckFigures(relative_error, ""), Verification(checked, 0)
    row, head = np.unravel_index(int(np.nan_to_num(error, nan=np.inf).argmax()), error.shape)
    what = f"relative error {error[row, head]:.3g} against fp32"
    wrong = int(np.count_nonzero(~(error <= TOLERANCE))) * expected.shape[2] * _BITS_BYTES
    place = _place(int(tokens[row]), int(head), what)
    return CheckFigures(relative_error, place), Verification(checked, wrong)


def check_like(output: Bits, trusted: Bits) -> tuple[CheckFigures, Verification]:
    """All of an output against that of another kernel which was found right, as far as rounding goes."""
    error, size = np.empty((2, *output.shape[:2]), np.float32)
    for begin in range(0, len(output), _TOKENS_AT_ONCE):
        chunk = slice(begin, begin + _TOKENS_AT_ONCE)
        expected = from_bf16(trusted[chunk])
        beyond = from_bf16(output[chunk]) - expected
        error[chunk] = np.sqrt(np.einsum("thd,thd->th", beyond, beyond))
        size[chunk] = np.sqrt(np.einsum("thd,thd->th", expected, expected))
    wrong = ~(error <= 2 * TOLERANCE * size)  # each may be as far off
    if not wrong.any():
        return CheckFigures(None, ""), Verification(output.nbytes, 0)
    token, head = (int(at) for at in np.argwhere(wrong)[0])
    what = f"relative error {error[token, head] / size[token, head]:.3g} against another kernel's"
    wrong_bytes = int(np.count_nonzero(wrong)) * output.shape[2] * _BITS_BYTES
    return CheckFigures(None, _place(token, head, what)), Verification(output.nbytes, wrong_bytes)


def check_equal(output: Bits, expected: Bits, rows_per_rank: int) -> tuple[CheckFigures, Verification]:
    """Another implementation's output, as the ranks hold it, against the attention's own, bit for bit."""
    differs = output != expected
    wrong = int(np.count_nonzero(differs))
    place = ""
    if wrong:
        token, head, element = (int(at) for at in np.unravel_index(int(differs.argmax()), differs.shape))
        bits = int(output[token, head, element])
        what = "not written"
        if bits != POISON_BITS:
            what = f"{bits:#06x}, not {int(expected[token, head, element]):#06x}"
        place = _place(token, head, f"element {element} is {what}", token // rows_per_rank)
    return CheckFigures(None, place), Verification(output.nbytes, wrong * _BITS_BYTES)


def require_right(checked: AttentionOutcome) -> None:
    """See :func:`xstage_tune.families.profiled.require_right`."""
    profiled.require_right(checked, TOLERANCE)


def complaint(figures: CheckFigures, found: Verification) -> str:
    """What is wrong with a checked output; empty where nothing is."""
    return profiled.complaint(figures, found, TOLERANCE)


def _place(token: int, head: int, what: str, rank: int | None = None) -> str:
    owner = "" if rank is None else f" of rank {rank}"
    return f"token {token}{owner}, head {head}: {what}"
