"""Every pass keeps what a program means: each form between passes, evaluated, gives what its kernels give."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels_kit import check_every_form
from random_programs import IntegerMaker, Maker

from abele.errors import InvalidOptionError
from abele.kernels.plan.reference import evaluate_form
from support.examples import examples


def program(kind: type[Maker], seed: int, batch: int, layers: int) -> Maker:
    maker = kind(seed, batch)
    x = maker.source((batch, int(maker.rng.choice([1, 2, 4])), int(maker.rng.choice([2, 4, 6]))))
    for _ in range(layers):
        x = maker.step(x)
    maker.finish(x)
    return maker


@settings(examples(4), suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 10**6),
    batch=st.sampled_from([1, 3, 8, 12]),
    layers=st.integers(1, 4),
    lanes=st.sampled_from([4, 8]),
)
def test_forms__of_random_integer_programs__mean_exactly_what_their_kernels_mean(seed, batch, layers, lanes):
    check_every_form(program(IntegerMaker, seed, batch, layers), lanes, 0)


@settings(examples(4), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), batch=st.sampled_from([1, 3, 8, 12]), layers=st.integers(1, 3))
def test_forms__of_random_programs__mean_what_their_kernels_mean_within_rounding(seed, batch, layers):
    check_every_form(program(Maker, seed, batch, layers), 4, 2e-4)


def test_evaluate_form__of_something_else__says_what_it_is() -> None:
    with pytest.raises(InvalidOptionError, match="str is no form that can be evaluated"):
        evaluate_form("x[i]", {})
