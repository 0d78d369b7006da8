"""Histories of ``fit`` beside Keras on JAX's CPU: one model in plain runs, all of the table in slow ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
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


def loss_in_float64(made: Callable[[], Any], images: Any, labels: Any) -> float:
    """Loss of one step from the same weights, computed by Keras in float64."""
    weights = made().get_weights()
    try:
        with jax.enable_x64(True):
            keras.config.set_floatx("float64")
            model = made()
            model.set_weights(weights)
            return float(model.fit(images.astype(np.float64), labels, batch_size=4, verbose=0).history["loss"][0])
    finally:
        keras.config.set_floatx("float32")


@pytest.mark.slow
def test_models__of_applications__take_keras_step_within_float_rounding(ipus: Any) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(4, 32, 32, 3)).astype(np.float32), rng.integers(0, 10, 4)

    def made() -> Any:
        keras.utils.set_random_seed(3)
        model = keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, weights=None, classes=10)
        model.compile(keras.optimizers.SGD(1e-3), "sparse_categorical_crossentropy")
        return model

    def results(model: Any, images: Any) -> tuple[Any, float, float, Any]:
        """Predictions, losses of evaluation and of one step, all weights after it."""
        predicted = model.predict(images, batch_size=4, verbose=0)
        held = model.evaluate(images, labels, batch_size=4, verbose=0)
        loss = model.fit(images, labels, batch_size=4, verbose=0).history["loss"][0]
        return predicted, held, loss, np.concatenate([w.ravel() for w in model.get_weights()])

    with ipus():
        ours = made()
    found, wanted = results(ours, images), results(made(), images)
    near = results(made(), np.nextafter(images, np.float32(np.inf)))
    exact = loss_in_float64(made, images, labels)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    assert found[1] == pytest.approx(wanted[1], rel=1e-6)
    assert found[2] == pytest.approx(exact, rel=1e-5)  # as far as Keras' own, which may lie on the other side
    rounding = np.linalg.norm(near[3] - wanted[3])  # Of pixels that are one float32 larger.
    assert np.linalg.norm(found[3] - wanted[3]) < rounding
