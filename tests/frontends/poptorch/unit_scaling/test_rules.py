"""Factors of unit scaling beside their published formulas, and beside what random numbers show."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from hypothesis import given
from hypothesis import strategies as st

from abele.frontends.poptorch.errors import OptionValueError
from abele.frontends.poptorch.unit_scaling import activations, rules
from abele.frontends.poptorch.unit_scaling.rules import DEMO, LIBRARY

pytestmark = pytest.mark.torch

SCALES = st.floats(1e-3, 1e3)


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ("geometric", ((64 * 256) ** -0.25,) * 2),
        ("arithmetic", (160**-0.5,) * 2),
        ("min", (256**-0.5,) * 2),
        ("forward", (64**-0.5,) * 2),
        ("backward", (256**-0.5,) * 2),
        ("separate", (64**-0.5, 256**-0.5)),
    ],
)
def test_product_factors__constraint__is_the_published_formula(constraint: str, expected: tuple[float, float]) -> None:
    found = rules.product_factors(DEMO, 64, 256, 100, constraint)
    assert (found.output, found.input_grad) == pytest.approx(expected)
    assert found.weight_grad == pytest.approx(1 / 100)


def test_product_factors__rules_own__are_their_defaults() -> None:
    library, demo = (rules.product_factors(r, 64, 256, 100) for r in (LIBRARY, DEMO))
    assert (library.output, library.input_grad, library.weight_grad) == pytest.approx((1 / 8, 1 / 8, 1 / 10))
    assert (demo.output, demo.input_grad, demo.weight_grad) == pytest.approx((16384**-0.25, 16384**-0.25, 1 / 100))


@given(st.lists(SCALES, min_size=2, max_size=3), st.sampled_from(sorted(rules.CONSTRAINTS)))
def test_constrained__any_scales__lie_between_the_least_and_the_largest(scales: list[float], constraint: str) -> None:
    made = rules.constrained(constraint, *scales)
    assert all(min(scales) * (1 - 1e-9) <= scale <= max(scales) * (1 + 1e-9) for scale in made)
    assert constraint == "separate" or len(set(made)) == 1


def test_readout_embedding_loss__factors__are_the_published_formulas() -> None:
    assert rules.readout_factors(LIBRARY, 64, 10, 100).output == pytest.approx(1 / 64)
    assert rules.embedding_factor(LIBRARY, 400, 100) == pytest.approx(2)
    assert rules.embedding_factor(DEMO, 400, 100) == pytest.approx(4)
    assert rules.cross_entropy_factor(32, 10) == pytest.approx(32 * 10 / 3)


@given(st.floats(0, 1))
def test_residual_factors__any_share__keep_the_variance(tau: float) -> None:
    for found in (LIBRARY, DEMO):
        past, branch = rules.residual_factors(found, tau)
        assert past**2 + branch**2 == pytest.approx(1)
    assert rules.residual_factors(DEMO, tau)[1] == pytest.approx(math.sqrt(tau))
    assert rules.residual_factors(LIBRARY, tau)[1] == pytest.approx(tau / math.sqrt(1 + tau**2))


def test_deviations__gelu_and_tanh__are_those_of_the_paper() -> None:
    assert activations.deviations("gelu") == pytest.approx((0.588, 0.675), abs=6e-4)
    assert activations.deviations("tanh") == pytest.approx((0.628, 0.682), abs=6e-4)
    assert activations.deviations("relu") == pytest.approx((math.sqrt((1 - 1 / math.pi) / 2), 2**-0.5), rel=1e-3)
    assert activations.activation_factors(DEMO, "gelu")[0] == pytest.approx(1 / 0.588, rel=2e-3)


@pytest.mark.parametrize("function", ["gelu", "silu"])
def test_activation_factors__multiplier_to_its_limits__are_linear_and_step(function: str) -> None:
    assert activations.activation_factors(LIBRARY, function, 1e-4) == pytest.approx((2, 2), rel=1e-3)
    step = 2 / (1 - 1 / math.pi)
    assert activations.activation_factors(LIBRARY, function, 1e4) == pytest.approx((step**0.5, 2**0.5), rel=1e-3)


def test_activation_factors__multiplier_one__interpolates_on_a_logarithmic_scale() -> None:
    upper = math.sqrt(2 / (1 - 1 / math.pi))
    output, grad = activations.activation_factors(LIBRARY, "gelu", 1.0)
    assert output == pytest.approx(2**0.2 * upper**0.8)
    assert grad == pytest.approx(2**0.2 * math.sqrt(2) ** 0.8)
    assert activations.activation_factors(LIBRARY, "silu", 1.0)[1] == pytest.approx(2**0.5 * 2**0.25)
    assert activations.gated_silu_factor(1.0) == pytest.approx(2**0.5 * 2**0.25)


def test_softmax_factors__multipliers__interpolate_between_size_and_its_root() -> None:
    output, grad = activations.softmax_factors(100, 1.0)
    assert (output, grad) == pytest.approx((100**0.8 * 100**0.1,) * 2)
    output, grad = activations.softmax_factors(100, 1e5)
    assert (output, grad) == pytest.approx((10, math.sqrt(100 / 1e5)), rel=1e-3)


@pytest.mark.parametrize("mult", [0.25, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("function", ["gelu", "silu"])
def test_activation_factors__any_multiplier__are_near_the_integrated_deviation(function: str, mult: float) -> None:
    fitted, exact = activations.activation_factors(LIBRARY, function, mult), activations.deviations(function, mult)
    assert fitted[0] * exact[0] == pytest.approx(1, abs=0.16)
    assert fitted[1] * exact[1] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("mult", [0, -1.0, math.inf, math.nan, True, "2"])
def test_multiplier__no_number_above_0__is_refused(mult: float) -> None:
    with pytest.raises(OptionValueError, match="number above 0"):
        activations.checked_multiplier(mult)


def test_names__unknown__are_refused_with_the_nearest() -> None:
    with pytest.raises(OptionValueError, match="did you mean 'library'"):
        rules.rules_of("libary")
    with pytest.raises(OptionValueError, match="did you mean 'geometric'"):
        rules.constrained("geometrik", 1, 1)
    with pytest.raises(OptionValueError, match="from 0 to 1"):
        rules.residual_factors(DEMO, 1.5)
    with pytest.raises(OptionValueError, match="from 0 on"):
        rules.residual_factors(LIBRARY, -1)
    with pytest.raises(OptionValueError, match="one of gelu"):
        activations.deviations("swishy")
