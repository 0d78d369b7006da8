"""Networks that the tests of fitting spread over machines."""

from __future__ import annotations

from abele.fitting import Model
from abele.network import Group, NetworkBuilder, Sgd
from abele.network.ops import build
from abele.numerics import f16


def mlp(batch, width=256, layers=8, training=True):
    """Equal layers."""
    net = NetworkBuilder()
    x = net.input((batch, width), "f16", "x")
    for number in range(layers):
        weight, bias = net.parameter((width, width), "f16", f"w{number}"), net.parameter((width,), "f16", f"b{number}")
        x = build.nonlinearity(net, "tanh", build.linear(net, x, weight, bias))
    return finished(net, x, training)


def tied(batch, width=256, layers=8):
    """Equal layers, of which the last has the weights of the first."""
    net = NetworkBuilder()
    x = net.input((batch, width), "f16", "x")
    weights = [net.parameter((width, width), "f16", f"w{number}") for number in range(layers - 1)]
    for weight in (*weights, weights[0]):
        x = build.nonlinearity(net, "tanh", build.matmul(net, x, weight))
    return finished(net, x, training=True)


def cnn(batch, training=True):
    """Convolutions of very different cost."""
    net = NetworkBuilder()
    x, channels = net.input((batch, 8, 16, 16), "f16", "x"), 8
    for number, (out, kernel) in enumerate([(16, 5), (32, 3), (32, 1), (64, 3), (16, 1), (8, 1)]):
        weight = net.parameter((out, channels, kernel, kernel), "f16", f"w{number}")
        pad = (kernel // 2, kernel // 2)
        x = build.convolution(net, x, weight, None, stride=(1, 1), padding=pad, dilation=(1, 1), groups=1)
        x = build.nonlinearity(net, "relu", x)
        channels = out
    return finished(net, x, training)


def finished(net, value, training):
    if not training:
        net.output(value)
        return Model(net.finish(), None)
    net.loss = build.mean(net, value, list(range(value.ndim)))
    net.output(net.loss)
    made = net.finish()
    return Model(made, (Group(Sgd(lr=0.1, momentum=0.9, accumulation=f16), made.parameters),))
