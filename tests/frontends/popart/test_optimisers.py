"""Updates of PopART's optimisers are those of their formulas, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("torch", reason="needs PyTorch")

from abele import popart
from frontends.popart.popart_kit import All, read_weights, training

STEPS = 3
START = np.random.default_rng(0).standard_normal(5).astype(np.float32)
GRADIENTS = np.random.default_rng(1).standard_normal((STEPS, 5)).astype(np.float32)


def slow(*values: Any) -> Any:
    """A case of runs that take all."""
    return pytest.param(*values, marks=pytest.mark.slow)


def trained(optimizer: Any, scale: float = 1.0) -> Any:
    """A weight after steps whose gradients are inputs."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [5]))
    weight = builder.addInitializedInputTensor(START, "w")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, weight])], popart.ReductionType.Sum)
    session, anchors = training(builder, {loss: All}, loss, optimizer, batches=STEPS)
    session.run(popart.PyStepIO({x: GRADIENTS * np.float32(scale)}, anchors))
    return read_weights(session, {weight: (5,)})[weight]


def stepped(update: Callable[[Any, Any, dict[str, Any], int], Any]) -> Any:
    """The same by a formula: it takes weight, gradient, its state and the number of the step."""
    weight, state = START.astype(np.float64), {n: np.zeros(5) for n in ("m", "v", "a", "d")}
    for step, gradient in enumerate(GRADIENTS.astype(np.float64)):
        weight = update(weight, gradient, state, step + 1)
    return weight


def sgd(rate: float, mu: float, damp: float, decay: float, *, nesterov: bool = False) -> Callable[..., Any]:
    def update(w: Any, g: Any, s: dict[str, Any], t: int) -> Any:
        g = g + decay * w
        s["v"] = mu * s["v"] + (1 - damp) * g
        return w - rate * (g + mu * s["v"] if nesterov else s["v"])

    return update


@pytest.mark.parametrize(
    ("momentum", "dampening", "decay", "nesterov"),
    [
        slow(0.0, 0.0, 0.1, 0),
        slow(0.9, 0.0, 0.0, 0),
        (0.9, 0.25, 0.1, 0),
        (0.0, 0.5, 0.0, 0),
        slow(0.8, 0.0, 0.05, 1),
    ],
)
def test_sgd__momentum_dampening_decay__is_the_formula(
    momentum: float, dampening: float, decay: float, nesterov: int
) -> None:
    values = {
        "defaultLearningRate": (0.1, True),
        "defaultMomentum": (momentum, True),
        "defaultDampening": (dampening, True),
        "defaultWeightDecay": (decay, True),
        "nesterov": (float(nesterov), True),
    }
    want = stepped(sgd(0.1, momentum, dampening, decay, nesterov=bool(nesterov)))
    np.testing.assert_allclose(trained(popart.SGD(values)), want, rtol=2e-5, atol=1e-6)


def test_sgd__dampening_and_velocity_scaling_updated__hold_from_then_on() -> None:
    def numbers(rate: float, mu: float, damp: float, scaling: float) -> dict[str, tuple[float, bool]]:
        names = ("defaultLearningRate", "defaultMomentum", "defaultDampening", "defaultVelocityScaling")
        return {name: (value, False) for name, value in zip(names, (rate, mu, damp, scaling), strict=True)}

    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [5]))
    weight = builder.addInitializedInputTensor(START, "w")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, weight])], popart.ReductionType.Sum)
    chosen = [(0.1, 0.9, 0.25, 1.0), (0.2, 0.8, 0.5, 0.5)]
    accl = popart.reservedAcclPrefix() + weight
    session, anchors = training(builder, {accl: All}, loss, popart.SGD(numbers(*chosen[0])))
    want, velocity = START.astype(np.float64), np.zeros(5)
    for gradient, (rate, mu, damp, scaling) in zip(GRADIENTS, chosen, strict=False):
        session.updateOptimizerFromHost(popart.SGD(numbers(rate, mu, damp, scaling)))
        session.run(popart.PyStepIO({x: gradient}, anchors))
        velocity = mu * velocity + (1 - damp) * scaling * gradient
        want = want - rate / scaling * velocity
        np.testing.assert_allclose(anchors[accl], velocity, rtol=2e-5)
    np.testing.assert_allclose(read_weights(session, {weight: (5,)})[weight], want, rtol=2e-5, atol=1e-6)


def test_sgd__loss_scaling__is_taken_out_again() -> None:
    plain = {"defaultLearningRate": (0.1, True)}
    want = stepped(sgd(0.1, 0, 0, 0))
    np.testing.assert_allclose(trained(popart.SGD({**plain, "lossScaling": (64.0, False)})), want, rtol=2e-5, atol=1e-6)


def adam(mode: str, *, decay: float = 0.0, l2: bool = False, most: float = 10.0) -> Callable[..., Any]:
    rate, b1, b2, eps = 0.05, 0.8, 0.95, 1e-4

    def update(w: Any, g: Any, s: dict[str, Any], t: int) -> Any:
        g = g + decay * w if l2 else g
        s["m"] = b1 * s["m"] + (1 - b1) * g
        if mode == "AdaMax":
            s["v"] = np.maximum(b2 * s["v"], np.abs(g))
            x = s["m"] / (1 - b1**t) / (s["v"] + eps)
        else:
            s["v"] = b2 * s["v"] + (1 - b2) * g * g
            corrected = (1.0, 1.0) if mode.endswith("NoBias") else (1 - b1**t, 1 - b2**t)
            x = s["m"] / corrected[0] / (np.sqrt(s["v"] / corrected[1]) + eps)
        x = x if l2 else x + decay * w
        if not mode.startswith("Lamb"):
            return w - rate * x
        norms = min(np.linalg.norm(w), most), np.linalg.norm(x)
        return w - rate * (norms[0] / norms[1] if all(norms) else 1.0) * x

    return update


@pytest.mark.parametrize(
    ("mode", "decay", "l2"),
    [
        slow("Adam", 0.0, False),
        slow("Adam", 0.1, False),
        ("Adam", 0.1, True),
        slow("AdamNoBias", 0.0, False),
        slow("AdaMax", 0.0, False),
        ("AdaMax", 0.1, False),
        slow("Lamb", 0.1, False),
        ("Lamb", 0.1, True),
        slow("LambNoBias", 0.0, False),
    ],
)
def test_adam__each_mode__is_the_formula(mode: str, decay: float, l2: bool) -> None:
    values = {
        "defaultLearningRate": (0.05, True),
        "defaultBeta1": (0.8, True),
        "defaultBeta2": (0.95, True),
        "defaultEps": (1e-4, True),
        "defaultWeightDecay": (decay, True),
        "defaultMaxWeightNorm": (1.0, True),
    }
    kind = popart.WeightDecayMode.L2Regularization if l2 else popart.WeightDecayMode.Decay
    made = trained(popart.Adam(values, getattr(popart.AdamMode, mode), kind))
    np.testing.assert_allclose(made, stepped(adam(mode, decay=decay, l2=l2, most=1.0)), rtol=1e-4, atol=2e-6)


def adaptive(mode: str, momentum: float = 0.0, *, inside: bool = False) -> Callable[..., Any]:
    rate, alpha, eps = 0.05, 0.9, 1e-4

    def update(w: Any, g: Any, s: dict[str, Any], t: int) -> Any:
        if mode == "AdaGrad":
            s["v"] = s["v"] + g * g
            return w - rate * g / (np.sqrt(s["v"]) + eps)
        s["v"] = alpha * s["v"] + (1 - alpha) * g * g
        if mode == "AdaDelta":
            x = np.sqrt((s["d"] + eps) / (s["v"] + eps)) * g
            s["d"] = alpha * s["d"] + (1 - alpha) * x * x
            return w - rate * x
        spread = s["v"]
        if mode == "CenteredRMSProp":
            s["a"] = alpha * s["a"] + (1 - alpha) * g
            spread = spread - s["a"] ** 2
        x = g / (np.sqrt(spread + eps) if inside else np.sqrt(spread) + eps)
        s["m"] = momentum * s["m"] + x
        return w - rate * s["m"]

    return update


@pytest.mark.parametrize(
    ("mode", "momentum", "inside"),
    [
        slow("AdaGrad", 0.0, False),
        slow("AdaDelta", 0.0, False),
        slow("RMSProp", 0.9, False),
        ("CenteredRMSProp", 0.0, False),
        ("RMSProp", 0.0, True),
    ],
)
def test_adaptive__each_mode__is_the_formula(mode: str, momentum: float, inside: bool) -> None:
    values = {
        "defaultLearningRate": (0.05, True),
        "defaultAlpha": (0.9, True),
        "defaultMomentum": (momentum, True),
        "defaultEps": (1e-4, True),
    }
    made = trained(popart.Adaptive(values, getattr(popart.AdaptiveMode, mode), rmsprop_tf_variant=inside))
    np.testing.assert_allclose(made, stepped(adaptive(mode, momentum, inside=inside)), rtol=1e-4, atol=2e-6)


def test_clip_all_weights__gradient_over_the_norm__is_shrunk() -> None:
    def update(w: Any, g: Any, s: dict[str, Any], t: int) -> Any:
        return w - 0.1 * g * min(1.0, 0.5 / np.linalg.norm(g))

    made = trained(popart.ConstSGD(0.1, clip_norm_settings=[popart.ClipNormSettings.clipAllWeights(0.5)]))
    np.testing.assert_allclose(made, stepped(update), rtol=1e-4, atol=1e-6)


def test_insert_specific__one_weight__has_its_own_rate() -> None:
    optimizer = popart.SGD({"defaultLearningRate": (0.5, True)})
    optimizer.insertSpecific("w", {"learningRate": (0.1, True)})
    assert optimizer.learningRates().get("w").val() == 0.1
    assert optimizer.learningRates().getDefault().val() == 0.5
    np.testing.assert_allclose(trained(optimizer), stepped(sgd(0.1, 0, 0, 0)), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"defaultLearningRate": (0.0, True)}, "Constant learning rate of 0"),
        ({"lossScaling": (0.0, True)}, "Loss scaling cannot be 0"),
        ({"defaultMomentum": (-0.1, True)}, "bailing as this might be a user error"),
        ({"learningRate": (0.1, True)}, "has no value 'learningRate'"),
        ({"defaultLearningRate": 0.1}, "is a pair"),
    ],
)
def test_sgd__wrong_values__are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(popart.popart_exception, match=words):
        popart.SGD(values)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (popart.ConstSGD(0.1), popart.ConstSGD(0.2), "Values are constant but do not match"),
        (
            popart.ConstSGD(0.1),
            popart.Adam({"defaultLearningRate": (0.1, True)}),
            "Can not replace optimizer of type ConstSGD with new optimizer of type Adam",
        ),
        (
            popart.SGD({"defaultLearningRate": (0.1, True)}),
            popart.SGD({"defaultLearningRate": (0.1, False)}),
            "Can not replace a constant value with a non constant value",
        ),
    ],
)
def test_check_replacement__other_constants_or_class__is_refused(before: Any, after: Any, words: str) -> None:
    with pytest.raises(popart.popart_exception, match=words):
        before.check_replacement(after)
