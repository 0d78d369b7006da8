"""Classify small images as on MNIST, through ``popxl``: every gradient and update is an op that the program writes.

The images are scikit-learn's 8 × 8 digits. A run is ten updates, each of the next batch of the streams: the
graph of a step is repeated on the device. Trained variables are written into a second program, which tests them.

    python examples/popxl/mnist.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from abele import popxl
from abele.popxl import ops

BATCH, UPDATES = 16, 10
LEARNING_RATE, BETA1, BETA2 = 5e-3, 0.9, 0.999


def images(count: int | None = None) -> tuple[Any, Any]:
    """Images [count, 1, 8, 8] and their digits, in an order without meaning."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))[:count]
    x = (digits.images[order, None] / 16).astype(np.float32)
    return x, digits.target[order].astype(np.int32)


def initial() -> dict[str, Any]:
    """Values of the parameters before training."""
    random = np.random.default_rng(1)

    def weight(*shape: int) -> Any:
        scale = np.sqrt(2 / np.prod(shape[1:] if len(shape) > 2 else shape[:1]))
        return (random.standard_normal(shape) * scale).astype(np.float32)

    return {
        "features": weight(16, 1, 3, 3),
        "more_features": weight(32, 16, 3, 3),
        "weight": weight(128, 10),
        "bias": np.zeros(10, np.float32),
    }


class Network(popxl.Module):
    """Two convolutions and a layer of classes: images [n, 1, 8, 8] to logarithms of shares [n, 10]."""

    def build(
        self,
        x: popxl.Tensor,
        features: popxl.Tensor,
        more_features: popxl.Tensor,
        weight: popxl.Tensor,
        bias: popxl.Tensor,
    ) -> popxl.Tensor:
        """Logarithms of the shares of the classes."""
        h = ops.relu(ops.conv(x, features, padding=(1, 1, 1, 1)))
        h = ops.max_pool(h, kernel_size=(2, 2), stride=(2, 2))
        h = ops.relu(ops.conv(h, more_features))
        return ops.log(ops.softmax(h.reshape((x.shape[0], 128)) @ weight + bias, axis=-1))


class Loss(popxl.Module):
    """The mean loss of a batch."""

    def build(self, x: popxl.Tensor, labels: popxl.Tensor, parameters: list[popxl.Tensor]) -> popxl.Tensor:
        """The loss."""
        return ops.nll_loss(Network()(x, *parameters), labels, log_prob=True)


def adam(parameter: popxl.Tensor, grad: popxl.Tensor, m: popxl.Tensor, v: popxl.Tensor, step: popxl.Tensor) -> None:
    """One step of Adam, in place."""
    ops.var_updates.accumulate_moving_average_(m, grad, BETA1)
    ops.var_updates.accumulate_moving_average_square_(v, grad, BETA2)
    update = ops.var_updates.adam_updater(m, v, time_step=step, beta1=BETA1, beta2=BETA2, epsilon=1e-7)
    ops.scaled_add_(parameter, update, b=-LEARNING_RATE)


def training_program() -> tuple[popxl.Ir, dict[str, Any], dict[str, popxl.Tensor]]:
    """A program that trains, its streams and its parameters, both by name."""
    ir = popxl.Ir()
    ir.num_host_transfers = UPDATES
    with ir.main_graph, popxl.in_sequence():
        streams = {
            "images": popxl.h2d_stream((BATCH, 1, 8, 8), popxl.float32, name="images"),
            "labels": popxl.h2d_stream((BATCH,), popxl.int32, name="labels"),
            "loss": popxl.d2h_stream((), popxl.float32, name="loss"),
        }
        parameters = {name: popxl.variable(value, name=name) for name, value in initial().items()}
        firsts = [popxl.variable(np.zeros(p.shape), popxl.float32, f"{n}_m") for n, p in parameters.items()]
        seconds = [popxl.variable(np.zeros(p.shape), popxl.float32, f"{n}_v") for n, p in parameters.items()]
        counts = [popxl.variable(0.0, popxl.float32, f"{n}_step") for n in parameters]

        x_spec = popxl.TensorSpec((BATCH, 1, 8, 8), popxl.float32)
        forward = ir.create_graph(Loss(), x_spec, popxl.TensorSpec((BATCH,), popxl.int32), [*parameters.values()])
        backward = popxl.transforms.autodiff(forward, grads_required=forward.inputs[2:])

        def step(
            weights: list[popxl.TensorByRef],
            means: list[popxl.TensorByRef],
            squares: list[popxl.TensorByRef],
            steps: list[popxl.TensorByRef],
        ) -> None:
            call = ops.call_with_info(
                forward, ops.host_load(streams["images"]), ops.host_load(streams["labels"]), *weights
            )
            ops.host_store(streams["loss"], call.outputs[0])
            grads = ops.call(backward.graph, popxl.constant(1.0), inputs_dict=backward.inputs_dict(call))
            for each in zip(weights, grads, means, squares, steps, strict=True):
                adam(*each)

        given = [*parameters.values()], firsts, seconds, counts
        ops.repeat(ir.create_graph(step, *given), UPDATES, *given)
    return ir, streams, parameters


def testing_program(count: int) -> tuple[popxl.Ir, dict[str, Any], dict[str, popxl.Tensor]]:
    """A program that classifies images, its streams and its parameters, both by name."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        streams = {
            "images": popxl.h2d_stream((count, 1, 8, 8), popxl.float32, name="images"),
            "classes": popxl.d2h_stream((count,), popxl.int32, name="classes"),
        }
        parameters = {name: popxl.variable(value, name=name) for name, value in initial().items()}
        shares = Network()(ops.host_load(streams["images"]), *parameters.values())
        ops.host_store(streams["classes"], ops.argmax(shares, dim=1))
    return ir, streams, parameters


def main(epochs: int = 10, count: int | None = None) -> float:
    """Train and test; returns the part of the test images that are classified rightly."""
    x, digits = images(count)
    train = len(x) * 4 // 5 // (BATCH * UPDATES) * BATCH * UPDATES
    ir, streams, parameters = training_program()
    session = popxl.Session(ir, "ipu_hw")
    with session:
        for epoch in range(epochs):
            order = np.random.default_rng(epoch).permutation(train)
            for rows in order.reshape(-1, UPDATES, BATCH):
                losses = session.run({streams["images"]: x[rows], streams["labels"]: digits[rows]})[streams["loss"]]
            print(f"epoch {epoch + 1}: loss {losses.mean():.4f}")
    trained = {name: session.get_tensor_data(tensor) for name, tensor in parameters.items()}

    tests = slice(train, None)
    ir, streams, parameters = testing_program(len(x) - train)
    testing = popxl.Session(ir, "ipu_hw")
    testing.write_variables_data({parameters[name]: value for name, value in trained.items()})
    with testing:
        found = testing.run({streams["images"]: x[tests]})[streams["classes"]]
    right = float((found == digits[tests]).mean())
    print(f"{right:.1%} of {len(found)} test images")
    print(testing.report.summary())
    return right


if __name__ == "__main__":
    main()
