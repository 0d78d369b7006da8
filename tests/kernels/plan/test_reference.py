"""Every pass keeps what a program means: each form between passes, evaluated, gives what its kernels give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_programs import IntegerMaker, Maker

from abele.errors import InvalidOptionError
from abele.kernels.nest.binding import bound_calls
from abele.kernels.plan.passes import PIPELINE, Form, PlannerPass, run_passes
from abele.kernels.plan.reference import evaluate_form
from abele.kernels.target import HostTarget

EVALUATED = [step.name for step in PIPELINE][:-1]
"""All passes but the last, whose plan runs natively and is not evaluated."""


def forms(maker: Maker, lanes: int) -> dict[str, Form]:
    """Every form of a program for a CPU of ``lanes`` lanes, by the pass that made it."""
    found: dict[str, Form] = {}

    def keep(step: PlannerPass, form: Form) -> None:
        found[step.name] = form

    calls = bound_calls([t.buffer for t in maker.tensors], maker.calls, HostTarget(lanes, 16))
    run_passes(calls, after="choose_schedules", check=True, watch=keep)
    return {"given": calls, **found}


def program(kind: type[Maker], seed: int, batch: int, layers: int) -> Maker:
    maker = kind(seed, batch)
    x = maker.source((batch, int(maker.rng.choice([1, 2, 4])), int(maker.rng.choice([2, 4, 6]))))
    for _ in range(layers):
        x = maker.step(x)
    maker.finish(x)
    return maker


def check_every_form(maker: Maker, lanes: int, tolerance: float) -> None:
    for name, form in forms(maker, lanes).items():
        held = evaluate_form(form, maker.storage())
        for tensor in maker.tensors:
            if tensor.buffer.pinned and tensor.value is not None:
                found = tensor.read(held[tensor.buffer.id])
                message = f"{tensor.buffer.name} after {name}"
                np.testing.assert_allclose(found, tensor.value, rtol=tolerance, atol=tolerance, err_msg=message)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 10**6),
    batch=st.sampled_from([1, 3, 8, 12]),
    layers=st.integers(1, 4),
    lanes=st.sampled_from([4, 8]),
)
def test_forms__of_random_integer_programs__mean_exactly_what_their_kernels_mean(seed, batch, layers, lanes):
    check_every_form(program(IntegerMaker, seed, batch, layers), lanes, 0)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), batch=st.sampled_from([1, 3, 8, 12]), layers=st.integers(1, 3))
def test_forms__of_random_programs__mean_what_their_kernels_mean_within_rounding(seed, batch, layers):
    check_every_form(program(Maker, seed, batch, layers), 4, 2e-4)


def test_evaluate_form__of_something_else__says_what_it_is() -> None:
    with pytest.raises(InvalidOptionError, match="str is no form that can be evaluated"):
        evaluate_form("x[i]", {})
