"""Histories of ``fit`` beside Keras on JAX's CPU: one model in plain runs, all of the table in slow ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from frontends.keras.models import CASES, Case

PLAIN = ("batch_norm",)
EPOCHS, EXECUTION = 3, 4


def history(case: Case, made: Callable[[], Any], execution: int) -> dict[str, list[float]]:
    """History of a model that ``made`` makes."""
    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(case.policy or "float32")
    try:
        model = made()
        model.compile(case.optimiser(), case.loss, metrics=list(case.metrics) or None, steps_per_execution=execution)
        x, y = case.data()
        found = model.fit(x, y, batch_size=case.batch, epochs=EPOCHS, verbose=0, shuffle=False).history
        return {name: [float(v) for v in values] for name, values in found.items()}
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in PLAIN else pytest.mark.slow) for n in CASES], ids=list(CASES)
)
def test_models__history__is_that_of_keras_to_five_digits(name: str, ipus: Any) -> None:
    case = CASES[name]

    def ours() -> Any:
        with ipus():
            return case.make()

    wanted, found = history(case, case.make, 1), history(case, ours, EXECUTION)
    assert set(found) == set(wanted)
    for metric in wanted:
        np.testing.assert_allclose(found[metric], wanted[metric], rtol=10.0**-case.digits, err_msg=metric)
