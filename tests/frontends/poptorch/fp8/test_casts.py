"""Casts, products and scales of 8-bit floats: beside gfloat, published check points, and the device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
gfloat = pytest.importorskip("gfloat", reason="needs gfloat")

from gfloat import FormatInfo, RoundMode, decode_float, round_float
from hypothesis import given
from hypothesis import strategies as st

from abele import poptorch
from abele.frontends.poptorch import fp8
from abele.frontends.poptorch.errors import ArgumentError, OptionValueError
from abele.machine import systems

pytestmark = pytest.mark.torch

FORMATS = [fp8.F143, fp8.F152]


def oracle(format: fp8.QuarterFormat) -> FormatInfo:
    """The machine's format as gfloat describes formats: no infinities, one NaN at the code of minus zero."""
    from gfloat.types import Domain

    fraction = format.mantissa_bits
    return FormatInfo(
        name=format.name,
        k=8,
        precision=fraction + 1,
        bias=8 if fraction == 3 else 16,
        has_nz=False,
        domain=Domain.Finite,
        num_high_nans=0,
        has_subnormals=True,
        is_signed=True,
        is_twos_complement=False,
    )


@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.name)
def test_cast__all_codes__come_back_as_gfloat_reads_them(format: fp8.QuarterFormat) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(format.dtype)
    values = fp8.pow2scale_cast_from_fp8(codes, 0, torch.float32)
    expected = [decode_float(oracle(format), code).fval for code in range(256)]
    np.testing.assert_array_equal(values.numpy(), np.asarray(expected, np.float32))
    back = fp8.pow2scale_cast_to_fp8(values, 0, format)
    assert torch.equal(back.view(torch.uint8), codes.view(torch.uint8))


@given(st.floats(width=32, allow_nan=False), st.sampled_from(FORMATS), st.integers(-31, 31), st.booleans())
def test_cast__any_number__is_rounded_as_gfloat_rounds_it(
    value: float, format: fp8.QuarterFormat, scale: int, holds: bool
) -> None:
    made = fp8.pow2scale_cast_to_fp8(torch.tensor([value]), scale, format, nan_on_overflow=not holds)
    found = fp8.pow2scale_cast_from_fp8(made, 0, torch.float32).item()
    if math.isinf(value):
        assert math.isnan(found)
        return
    exact = math.ldexp(value, scale)
    expected = round_float(oracle(format), exact, RoundMode.TiesToEven, sat=True)
    # What rounds beyond the largest number is an overflow: half a step above it, and what is further.
    step = format.largest * 2.0**-format.mantissa_bits / (2 - 2.0**-format.mantissa_bits)
    if not holds and abs(exact) >= format.largest + step / 2:
        assert math.isnan(found)
    else:
        assert found == expected


def test_cast__check_points__are_the_published_codes() -> None:
    assert fp8.pow2scale_cast_to_fp8(torch.tensor(0.75), 0, "F143").view(torch.uint8).item() == 0x3C
    assert fp8.pow2scale_cast_to_fp8(torch.tensor(0.25), 0, "F152").view(torch.uint8).item() == 0x38
    nan = fp8.pow2scale_cast_to_fp8(torch.tensor([math.nan, math.inf, -math.inf]), 0, "F143", nan_on_overflow=False)
    assert nan.view(torch.uint8).tolist() == [0x80] * 3
    held = fp8.pow2scale_cast_to_fp8(torch.tensor([1e9, -1e9]), 0, "F152", nan_on_overflow=False)
    assert held.view(torch.uint8).tolist() == [0x7F, 0xFF]


def test_amax_scale__largest_of_1__is_the_published_check_point() -> None:
    x = torch.linspace(-1, 1, 101)
    assert [fp8.amax_scale(x, f).item() for f in ("F143", "F152")] == [7, 15]
    assert fp8.amax_scale(x, "F152", fp8.GRADIENT_MARGIN).item() == 12


@given(st.floats(2.0**-120, 2.0**120, width=32), st.sampled_from(FORMATS), st.integers(0, 5))
def test_amax_scale__any_largest__is_the_floor_of_the_logarithm(
    largest: float, format: fp8.QuarterFormat, margin: int
) -> None:
    # The exact ratio of two floats, and its logarithm's floor, without a logarithm.
    found = fp8.amax_scale(torch.tensor([0.0, -largest]), format, margin).item()
    scale = -400
    while math.ldexp(largest, scale + 1) <= format.largest:
        scale += 1
    assert found == max(-31, min(31, max(-31, min(31, scale)) - margin))


def test_amax_scale__zeros_and_infinities__are_the_ends_of_the_range() -> None:
    assert fp8.amax_scale(torch.zeros(4), "F143").item() == 31
    assert fp8.amax_scale(torch.tensor([1.0, math.inf]), "F143").item() == -31
    assert fp8.amax_scale(torch.tensor([1.0, math.nan]), "F152", 3).item() == -31
    assert fp8.amax_scale(torch.tensor([6e4]).half(), "F143").item() == -8


def test_mse_choice__normal_values__is_the_least_error_of_all_measured() -> None:
    x = torch.randn(20_000, generator=torch.Generator().manual_seed(0)) * 0.02
    choice = fp8.mse_choice(fp8.exponent_histogram(x))

    def error(format: str, scale: int) -> float:
        q = fp8.pow2scale_cast_to_fp8(x, scale, format, nan_on_overflow=False)
        back = fp8.pow2scale_cast_from_fp8(q, -scale, torch.float32)
        return float((back - x).square().mean() / x.square().mean())

    measured = {(f.name, s): error(f.name, s) for f in FORMATS for s in range(24)}
    assert choice.format == "F143"
    assert measured[choice.format, choice.log2_scale] <= 1.02 * min(measured.values())
    # Elements are denser at the lower end of the octaves in the tail than the histogram tells.
    assert choice.error == pytest.approx(min(measured.values()), rel=0.3)
    assert fp8.mse_choice(fp8.exponent_histogram(x), "F152").format == "F152"


def test_mse_choice__scaled_values__moves_its_scale_with_them() -> None:
    x = torch.randn(5000, generator=torch.Generator().manual_seed(1))
    first, second = (fp8.mse_choice(fp8.exponent_histogram(x * f)).log2_scale for f in (1.0, 2.0**-9))
    assert second == first + 9


def test_exponent_histogram__powers_of_two__counts_octaves() -> None:
    shares = fp8.exponent_histogram(torch.tensor([1.0, 1.5, -2.0, 0.0, 0.25]))
    assert np.flatnonzero(shares).tolist() == [125, 127, 128]
    assert shares[127] == 0.5


def test_arguments__wrong__are_refused() -> None:
    x, q = torch.randn(4, 4), fp8.pow2scale_cast_to_fp8(torch.randn(4, 4), 0)
    with pytest.raises(ArgumentError, match=r"float32 or float16, not torch\.int32"):
        fp8.pow2scale_cast_to_fp8(x.int(), 0)
    with pytest.raises(OptionValueError, match="did you mean 'F143'"):
        fp8.pow2scale_cast_to_fp8(x, 0, "F144")
    with pytest.raises(OptionValueError, match="-31 to 31"):
        fp8.pow2scale_cast_to_fp8(x, 40)
    with pytest.raises(ArgumentError, match="one int32"):
        fp8.pow2scale_cast_to_fp8(x, torch.ones(2))
    with pytest.raises(ArgumentError, match="formats of other values"):
        fp8.pow2scale_cast_from_fp8(x.to(torch.float8_e4m3fn))
    with pytest.raises(ArgumentError, match="no 8-bit float"):
        fp8.matmul_pow2scaled(x, q)
    with pytest.raises(ArgumentError, match="share no dimension"):
        fp8.matmul_pow2scaled(q, q[:3])
    with pytest.raises(ArgumentError, match="takes matrices"):
        fp8.matmul_pow2scaled(q[0], q)
    with pytest.raises(ArgumentError, match="to float16 or float32"):
        fp8.pow2scale_cast_from_fp8(q, 0, torch.float64)
    with pytest.raises(ArgumentError, match="all elements are zero"):
        fp8.exponent_histogram(torch.zeros(3))
    with pytest.raises(ArgumentError, match="finite"):
        fp8.exponent_histogram(torch.tensor([math.inf]))
    with pytest.raises(ArgumentError, match="255 shares"):
        fp8.mse_choice(np.zeros(255))


class Casting(torch.nn.Module):
    """Results of all functions on the device."""

    def forward(self, x: Any, y: Any, q: Any) -> tuple[Any, ...]:
        scale = fp8.amax_scale(x, "F143")
        x8, y8 = fp8.pow2scale_cast_to_fp8(x, scale), fp8.pow2scale_cast_to_fp8(y, 3, "F152")
        made = fp8.matmul_pow2scaled(x8, y8, -(scale + 3))
        return scale, x8, fp8.pow2scale_cast_from_fp8(x8, -scale), made, fp8.pow2scale_cast_from_fp8(q, 1)


def test_device__casts_and_products__are_those_of_pytorch_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(8, 32, generator=generator), torch.randn(32, 16, generator=generator)
    q = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fnuz)
    options = poptorch.Options()
    options.Abele.system(systems.get("c600").evolve(ipu={"num_tiles": 64}))
    found = poptorch.inferenceModel(Casting(), options)(x, y, q)
    expected = Casting()(x, y, q)
    assert found[0].item() == expected[0].item()
    assert torch.equal(found[1].view(torch.uint8), expected[1].view(torch.uint8))
    assert torch.equal(found[2], expected[2])
    torch.testing.assert_close(found[3], expected[3], rtol=2e-3, atol=2e-3)  # sums in another order, and in float16
    assert torch.equal(found[4].nan_to_num(7), expected[4].nan_to_num(7))
