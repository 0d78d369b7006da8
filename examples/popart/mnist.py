"""Classify small images as on MNIST, through ``popart``: a model is built operator by operator, trained and tested.

The images are scikit-learn's 8 × 8 digits. A step is eight updates of two micro-batches each; the trained model is
written as an ONNX file, which another session tests.

    python examples/popart/mnist.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from abele import popart

BATCH, BATCHES_PER_STEP, ACCUMULATION = 16, 8, 2


def images(count: int | None = None) -> tuple[Any, Any]:
    """Images [count, 1, 8, 8] and their digits, in an order without meaning."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))[:count]
    x = (digits.images[order, None] / 16).astype(np.float32)
    return np.ascontiguousarray(x), digits.target[order].astype(np.int32)


def build() -> tuple[Any, str, str, str, str]:
    """A builder, and names of images, labels, shares of the classes and loss."""
    random = np.random.default_rng(1)

    def weight(*shape: int) -> str:
        scale = np.sqrt(2 / np.prod(shape[1:] if len(shape) > 2 else shape[:1]))
        return str(builder.addInitializedInputTensor((random.standard_normal(shape) * scale).astype(np.float32)))

    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [BATCH, 1, 8, 8]), "images")
    labels = builder.addInputTensor(popart.TensorInfo("INT32", [BATCH]), "labels")
    with builder.nameScope("features"):
        h = builder.aiOnnx.relu([builder.aiOnnx.conv([x, weight(16, 1, 3, 3)], pads=[1, 1, 1, 1])])
        h = builder.aiOnnx.maxpool([h], 1, [2, 2], strides=[2, 2])[0]
        h = builder.aiOnnx.relu([builder.aiOnnx.conv([h, weight(32, 16, 3, 3)])])
    h = builder.reshape_const(builder.aiOnnx, [h], [BATCH, 128])
    with builder.nameScope("classes"):
        bias = builder.addInitializedInputTensor(np.zeros(10, np.float32), "bias")
        scores = builder.aiOnnx.gemm([h, weight(128, 10), bias])
        shares = builder.aiOnnx.softmax([scores], axis=1)
    loss = builder.aiGraphcore.nllloss([shares, labels], popart.ReductionType.Mean, debugContext="loss")
    return builder, x, labels, shares, loss


def main(epochs: int = 10, count: int | None = None) -> float:
    """Train and test; returns the part of the test images that are classified rightly."""
    x, digits = images(count)
    step = BATCH * BATCHES_PER_STEP * ACCUMULATION
    train = len(x) * 4 // 5 // step * step
    builder, image, label, shares, loss = build()
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, ACCUMULATION
    options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1})
    training = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(BATCHES_PER_STEP, {loss: popart.AnchorReturnType("All")}),
        loss,
        popart.Adam({"defaultLearningRate": (5e-3, False)}),
        device,
        userOptions=options,
    )
    training.prepareDevice()
    training.weightsFromHost()
    anchors = training.initAnchorArrays()
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(train)
        for rows in order.reshape(-1, BATCHES_PER_STEP, ACCUMULATION, BATCH):
            training.run(popart.PyStepIO({image: x[rows], label: digits[rows]}, anchors))
        print(f"epoch {epoch + 1}: loss {anchors[loss].mean():.4f}")

    with tempfile.TemporaryDirectory() as folder:
        trained = str(Path(folder) / "trained.onnx")
        training.modelToHost(trained)
        batches = (len(x) - train) // BATCH
        testing = popart.InferenceSession(trained, popart.DataFlow(batches, [shares]), device)
    testing.prepareDevice()
    testing.weightsFromHost()
    found = testing.initAnchorArrays()
    rows = train + np.arange(batches * BATCH)
    testing.run(popart.PyStepIO({image: x[rows], label: digits[rows]}, found))
    right = float((found[shares].argmax(-1).reshape(-1) == digits[rows]).mean())
    print(f"{right:.1%} of {len(rows)} test images")
    print(testing.getSummaryReport())
    return right


if __name__ == "__main__":
    main()
