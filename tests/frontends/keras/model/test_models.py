"""Histories of ``fit`` beside Keras on JAX's CPU: one model in plain runs, a sample of the others in slow ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np
import pytest

from frontends.keras.models import CASES, Case
from support import sweeps

PLAIN = ("batch_norm",)
EPOCHS, EXECUTION = 3, 4
PERTURBED = 8


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


FURTHER = sweeps.sampled([name for name in CASES if name not in PLAIN], 10)


@pytest.mark.parametrize("name", [*PLAIN, *(pytest.param(name, marks=pytest.mark.slow) for name in FURTHER)])
def test_models__history__is_that_of_keras_to_five_digits(name: str, ipus: Any) -> None:
    case = CASES[name]

    def ours() -> Any:
        with ipus():
            return case.make()

    wanted, found = history(case, case.make, 1), history(case, ours, EXECUTION)
    assert set(found) == set(wanted)
    for metric in wanted:
        np.testing.assert_allclose(found[metric], wanted[metric], rtol=10.0**-case.digits, err_msg=metric)


def loss_in_float64(made: Callable[[], Any], start: Any, images: Any, labels: Any) -> float:
    """Loss of one step from some weights, computed by Keras in float64."""
    try:
        with jax.enable_x64(True):
            keras.config.set_floatx("float64")
            model = made()
            model.set_weights(start)
            return float(model.fit(images.astype(np.float64), labels, batch_size=4, verbose=0).history["loss"][0])
    finally:
        keras.config.set_floatx("float32")


@pytest.mark.slow
@pytest.mark.rest
def test_models__of_applications__take_steps_as_near_float64_as_keras(ipus: Any) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(4, 32, 32, 3)).astype(np.float32), rng.integers(0, 10, 4)

    def made() -> Any:
        keras.utils.set_random_seed(3)
        model = keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, weights=None, classes=10)
        model.compile(keras.optimizers.SGD(1e-3), "sparse_categorical_crossentropy")
        return model

    with ipus():
        ours = made()
    other = made()
    start = other.get_weights()
    np.testing.assert_allclose(
        ours.predict(images, batch_size=4, verbose=0), other.predict(images, batch_size=4, verbose=0), rtol=1e-5
    )
    held = [model.evaluate(images, labels, batch_size=4, verbose=0) for model in (ours, other)]
    assert held[0] == pytest.approx(held[1], rel=1e-6)
    # Norms of four samples enlarge what any step is rounded by: it is seen on pixels that move by one float32.
    exact, losses, weights = loss_in_float64(made, start, images, labels), [], []
    for _ in range(PERTURBED):
        moved = np.nextafter(images, np.where(rng.random(images.shape) < 0.5, np.inf, -np.inf).astype(np.float32))
        for model in (ours, other):
            model.set_weights(start)
            losses.append(model.fit(moved, labels, batch_size=4, verbose=0).history["loss"][0])
            weights.append(np.concatenate([w.ravel() for w in model.get_weights()]))
    off = np.linalg.norm(np.reshape(losses, (PERTURBED, 2)) - exact, axis=0)
    assert off[0] < 3 * off[1]
    apart = [np.linalg.norm(ours_s - keras_s) for ours_s, keras_s in zip(weights[::2], weights[1::2], strict=True)]
    # A relu that turns over moves the weights by 0.05 to 0.5; where none does, both take the same step.
    assert min(apart) < 0.2 * np.median([np.linalg.norm(w - weights[1]) for w in weights[3::2]])
