"""Quantised matrices: rounding, formats, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from abele.errors import AbeleError, ElementRangeError, InvalidOptionError, TensorError, TypeMismatchError
from abele.weights import SCHEMES, QuantisedMatrix, quantise

RNG = np.random.default_rng(0)
MATRIX = (RNG.standard_normal((12, 256)) * np.geomspace(1e-3, 1e3, 12)[:, None]).astype(np.float32)


@pytest.mark.parametrize(
    ("scheme", "bits"), [("int8", 8.125), ("int4-32", 5.0), ("int4-64", 4.5), ("int4-128", 4.25), ("f143", 8.125)]
)
def test_quantise__each_scheme__gives_the_nearest_code(scheme: str, bits: float) -> None:
    held = quantise(MATRIX, scheme)
    assert held.shape == MATRIX.shape
    assert held.bits_per_weight == bits
    scales = np.repeat(held.scales.astype(np.float32), held.group, 1)
    error = np.abs(held.dequantised() - MATRIX)
    # Half a step of the codes; 8-bit floats have steps of a sixteenth, and of 2^-10 below the least normal one.
    step = np.maximum(np.abs(MATRIX) / 16, scales / 2048) if scheme == "f143" else scales / 2
    slack = np.abs(MATRIX).max(1, keepdims=True) * 2.0**-9 if scheme.startswith("int4") else 0
    assert (error <= step * (1 + 1e-5) + slack).all()


def test_f143__codes__are_pytorchs_floats() -> None:
    held = quantise(MATRIX, "f143")
    wanted = (torch.from_numpy(MATRIX) / torch.from_numpy(held.scales)).to(torch.float8_e4m3fnuz)
    assert np.array_equal(held.codes, wanted.view(torch.uint8).numpy())
    assert (np.log2(held.scales) % 1 == 0).all()
    largest = np.abs(MATRIX / held.scales).max(1)
    assert ((largest > 120) & (largest <= 240)).all()


def test_int4__even_columns__are_low_nibbles() -> None:
    ramp = np.arange(32.0)[None] % 16
    held = quantise(ramp, "int4-32")
    assert held.codes[0, :8].tolist() == [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]
    assert np.array_equal(held.dequantised(), ramp)
    centred = QuantisedMatrix("int4", held.codes, held.scales, None, 32)
    assert np.array_equal(centred.dequantised(), ramp - 8)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("value", [0.0, -3.5, 1e-30])
def test_quantise__rows_of_one_number__come_back(scheme: str, value: float) -> None:
    made = quantise(np.full((2, 128), value), scheme).dequantised()
    assert np.isfinite(made).all()
    np.testing.assert_allclose(made, value, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("given", "scheme", "error"),
    [
        ([[1.0, np.nan] * 32], "int8", ElementRangeError),
        ([[np.inf] * 64], "f143", ElementRangeError),
        ([[1e6] * 32], "int4-32", ElementRangeError),
        ([[3e38] * 4], "f143", ElementRangeError),
        (np.ones((2, 50)), "int4-32", TensorError),
        (np.ones(8), "int8", TensorError),
        (np.ones((0, 8)), "int8", TensorError),
        (np.ones((2, 32)), "int4", InvalidOptionError),
        (np.ones((2, 32)), None, InvalidOptionError),
    ],
)
def test_quantise__what_no_code_holds__is_refused(given: object, scheme: str, error: type[AbeleError]) -> None:
    with pytest.raises(error):
        quantise(given, scheme)  # type: ignore[arg-type]


def test_matrix__parts_that_do_not_fit__are_refused() -> None:
    held = quantise(MATRIX, "int4-64")
    with pytest.raises(TensorError, match="not \\[12, 8\\]"):
        QuantisedMatrix("int4", held.codes, held.scales, None, 32)
    with pytest.raises(TypeMismatchError, match="int8"):
        QuantisedMatrix("int8", held.codes, held.scales, None, 32)
    with pytest.raises(InvalidOptionError, match="int3"):
        QuantisedMatrix("int3", held.codes, held.scales, None, 64)
    assert np.array_equal(held.rows([3, 1]).dequantised(), held.dequantised()[[3, 1]])
