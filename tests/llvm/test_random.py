from __future__ import annotations

import numpy as np
import pytest
from elementwise_ir import elementwise
from hypothesis import given
from hypothesis import strategies as st

from abele.llvm import ir as ll
from abele.llvm.emit import I32
from abele.llvm.random import emit_hash_u32, hash_u32

WORD = st.integers(0, 2**32 - 1)
N = 1 << 20


def native(seed: tuple[int, int], modifier: int, index: np.ndarray, lanes: int = 1) -> np.ndarray:
    words = [ll.Constant(I32, s) for s in seed]
    return elementwise(lambda b, i: emit_hash_u32(b, *words, modifier, i), "uint32", index, lanes=lanes)


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("dtype", ["int64", "uint32"])
def test_hash_u32__in_ir_and_numpy__same_bits(lanes: int, dtype: str) -> None:
    index = np.arange(4096).astype(dtype) * 3
    want = hash_u32(0xDEADBEEF, 42, 7, index)
    assert np.array_equal(native((0xDEADBEEF, 42), 7, index, lanes), want)


def test_hash_u32__known_words__do_not_change() -> None:
    assert hash_u32(1, 2, 3, np.arange(4)).tolist() == [651284594, 2758651426, 2013052742, 3766936658]


def test_hash_u32__index_over_2_to_32__counts_modulo() -> None:
    assert hash_u32(1, 2, 3, np.int64(2**32 + 5)) == hash_u32(1, 2, 3, 5)


@given(WORD, WORD, WORD)
def test_hash_u32__any_key__all_words_differ_and_bits_balance(seed0: int, seed1: int, modifier: int) -> None:
    words = hash_u32(seed0, seed1, modifier, np.arange(1 << 14))
    assert len(np.unique(words)) == len(words)
    ones = np.unpackbits(words.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 6 * 0.5 / np.sqrt(32 * len(words))


def test_hash_u32__uniform_values__mean_variance_and_chi_square_fit() -> None:
    u = hash_u32(123, 456, 0, np.arange(N)) / 2.0**32
    assert abs(u.mean() - 0.5) < 5 / np.sqrt(12 * N)
    assert abs(u.var() - 1 / 12) < 1e-3
    counts = np.bincount((u * 256).astype(int), minlength=256)
    chi2 = ((counts - N / 256) ** 2 / (N / 256)).sum()
    assert abs(chi2 - 255) < 6 * np.sqrt(2 * 255)


@pytest.mark.parametrize("lag", [1, 2, 32, 1024])
def test_hash_u32__neighbours_in_index__are_uncorrelated(lag: int) -> None:
    u = hash_u32(9, 9, 9, np.arange(N)) / 2.0**32
    assert abs(np.corrcoef(u[:-lag], u[lag:])[0, 1]) < 5 / np.sqrt(N)


@pytest.mark.parametrize(("other", "what"), [((9, 9, 10), "modifier"), ((10, 9, 9), "seed"), ((9, 10, 9), "seed")])
def test_hash_u32__neighbouring_keys__are_uncorrelated(other: tuple[int, int, int], what: str) -> None:
    index = np.arange(N)
    one, two = (hash_u32(*key, index) / 2.0**32 for key in ((9, 9, 9), other))
    assert abs(np.corrcoef(one, two)[0, 1]) < 5 / np.sqrt(N)
    assert len(np.intersect1d(hash_u32(9, 9, 9, index[:4096]), hash_u32(*other, index[:4096]))) < 4


def test_hash_u32__one_bit_of_the_index_flipped__half_the_bits_change() -> None:
    index = np.arange(1 << 14)
    for bit in range(20):
        changed = hash_u32(5, 6, 7, index) ^ hash_u32(5, 6, 7, index ^ (1 << bit))
        assert abs(np.unpackbits(changed.view(np.uint8)).mean() - 0.5) < 0.01
