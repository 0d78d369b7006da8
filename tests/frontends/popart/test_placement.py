"""IPUs, stages of pipelines, replicas and places of tensors of PopART's names: the numbers are those of one IPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("torch", reason="needs PyTorch")

from abele import popart
from frontends.popart.popart_kit import All, Perceptron, read_weights, replicated, training

RATE = 0.01


def check(net: Perceptron, options: Any, *outer: int, ipus: int) -> None:
    """Losses and weights after a step are PyTorch's."""
    session, found = training(
        net.builder, {net.loss: All}, net.loss, popart.ConstSGD(RATE), options=options, batches=outer[0], ipus=ipus
    )
    x, labels = net.samples(*outer)
    session.run(popart.PyStepIO({net.x: x, net.labels: labels}, found))
    losses, weights = net.torch_steps(x, labels, RATE)
    np.testing.assert_allclose(found[net.loss].ravel(), losses, rtol=1e-4)
    held = read_weights(session, {name: array.shape for name, array in zip(net.weights, net.arrays, strict=True)})
    for name, want in zip(net.weights, weights, strict=True):
        np.testing.assert_allclose(held[name], want, atol=1e-5)


def piped(accumulation: int, replicas: int = 1) -> popart.SessionOptions:
    options = replicated(replicas, accumulation)
    options.virtualGraphMode, options.enablePipelining = popart.VirtualGraphMode.Manual, True
    return options


@pytest.mark.parametrize(
    ("replicas", "recompute"),
    [
        (2, popart.RecomputationType.Pipeline),
        pytest.param(1, popart.RecomputationType.NoRecompute, marks=pytest.mark.slow),
        pytest.param(1, popart.RecomputationType.RecomputeAll, marks=pytest.mark.slow),
    ],
)
def test_pipeline__two_stages__learns_what_one_ipu_does(replicas: int, recompute: Any) -> None:
    options = piped(4, replicas)
    options.autoRecomputation = recompute
    check(Perceptron(staged=True), options, 2, 4, replicas, ipus=2 * replicas)


def test_model_parallel__without_a_pipeline__learns_what_one_ipu_does() -> None:
    options = popart.SessionOptions()
    options.virtualGraphMode = popart.VirtualGraphMode.Manual
    check(Perceptron(staged=True), options, 2, 1, ipus=2)


@pytest.mark.slow
def test_virtual_graphs__turned_off__are_one_ipu() -> None:
    check(Perceptron(staged=True), popart.SessionOptions(), 2, 1, ipus=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["weight", "optimizerState", "activation", "accumulator"])
def test_tensor_locations__off_the_chip__give_the_same(kind: str) -> None:
    options = replicated(2, 2)
    off = popart.TensorLocationSettings(popart.TensorLocation(popart.TensorStorage.OffChip), 0, 0)
    setattr(options, f"{kind}TensorLocationSettings", off)
    check(Perceptron(), options, 2, 2, 2, ipus=2)


def test_pipeline__too_few_micro_batches__is_refused() -> None:
    with pytest.raises(popart.popart_exception) as refused:
        check(Perceptron(staged=True), piped(1), 1, 1, ipus=2)
    assert refused.value.args[0].startswith(
        "For pipelining, depth (batchesPerStep) must equal at least the number of pipeline stages (2)"
    )


def test_pipeline__an_operator_without_a_stage__is_refused() -> None:
    net = Perceptron(staged=True)
    net.loss = net.builder.aiOnnx.abs([net.loss])
    with pytest.raises(popart.popart_exception, match=r"Only some ops have had their pipeline stage set."):
        check(net, piped(4), 2, 4, ipus=2)


def test_pipeline__a_stage_that_reads_a_later_ones_result__is_refused() -> None:
    net = Perceptron(staged=True)
    net.builder.pipelineStage([net.hidden], 3)
    with pytest.raises(popart.popart_exception, match="is consumed in an earlier pipeline stage than it is produced"):
        check(net, piped(4), 2, 4, ipus=2)
