"""Partial sums of captured products: in f32, or in f16 where the options say so and operands are f16."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from abele import poptorch
from abele.distribution.lowering import Lowering
from abele.errors import ApplicationRuntimeError
from abele.graph import Graph
from abele.network import NetworkBuilder
from abele.network.autodiff.differentiate import differentiate
from abele.network.ir import Value
from abele.network.ops import build
from abele.network.ops.convolution import convolution
from abele.network.ops.recurrent import LstmValues, lstm
from abele.numerics import ElementType, f16, f32
from abele.session import Settings


def _linear(net: NetworkBuilder, dtype: str) -> Value:
    return build.linear(net, net.input((8, 64), dtype, "x"), net.parameter((32, 64), dtype, "w"))


def _products(net: NetworkBuilder, dtype: str) -> Value:
    return build.matmul(net, net.input((3, 8, 64), dtype, "x"), net.parameter((3, 64, 16), dtype, "w"))


def _convolution(net: NetworkBuilder, dtype: str) -> Value:
    x, w = net.input((2, 16, 6, 6), dtype, "x"), net.parameter((16, 16, 3, 3), dtype, "w")
    return convolution(net, x, w, stride=(1, 1), padding=(1, 1), dilation=(1, 1))


def _lstm(net: NetworkBuilder, dtype: str) -> Value:
    shapes = {"x": (3, 4, 16), "output": (4, 16), "cell": (4, 16), "wx": (64, 16), "wh": (64, 16), "bias": (64,)}
    made = [net.parameter(shape, dtype, name) for name, shape in shapes.items()]
    return lstm(net, LstmValues(*made), trains=True)[0]


PRODUCTS: dict[str, Callable[[NetworkBuilder, str], Value]] = {
    "linear": _linear,
    "matmul": _products,
    "convolution": _convolution,
    "lstm": _lstm,
}


def partials_of(make: Callable[[NetworkBuilder, str], Value], dtype: str, settings: Settings) -> set[ElementType]:
    """Types of the partial sums of a product and its gradients."""
    net = NetworkBuilder()
    y = make(net, dtype)
    net.loss = build.mean(net, y, list(range(y.ndim)))
    graph = Graph("bow")
    found = net.finish()
    made = differentiate(found, found.parameters)
    Lowering(graph, planning=settings.planning).run(made.ops, made.gradients.values())
    return {v.dtype for v in graph.variables if v.name.rsplit("/")[-1] == "partials"}


@pytest.mark.parametrize("make", PRODUCTS.values(), ids=PRODUCTS)
def test_partials__of_halves__are_those_that_were_chosen(make: Callable[[NetworkBuilder, str], Value]) -> None:
    assert partials_of(make, "f16", Settings()) == {f32}
    assert partials_of(make, "f16", Settings(partials="f16")) == {f16}


@pytest.mark.parametrize("make", PRODUCTS.values(), ids=PRODUCTS)
def test_partials__of_floats__stay_floats(make: Callable[[NetworkBuilder, str], Value]) -> None:
    assert partials_of(make, "f32", Settings(partials="f16")) == {f32}


class Classifier(nn.Module):
    """A convolution and two products, of which one has a long sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.deep, self.head = nn.Conv2d(4, 16, 3), nn.Linear(576, 16), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.deep(torch.relu(self.conv(x)).flatten(1))))


def options_with(partials: torch.dtype, mode: str) -> poptorch.Options:
    options = poptorch.Options()
    options.Precision.setPartialsType(partials)
    options.Abele.mode(mode)
    return options


@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_half_partials__either_mode__equal_pytorch_within_their_rounding(mode: str) -> None:
    torch.manual_seed(0)
    model, x = Classifier().half().eval(), torch.randn(1, 4, 8, 8).half()
    got = poptorch.inferenceModel(model, options_with(torch.half, mode))(x)
    wanted = model.double()(x.double())
    torch.testing.assert_close(got.double(), wanted, rtol=5e-3, atol=5e-3)


def test_half_partials__that_overflow__are_found_vertex_by_vertex_alone() -> None:
    # Both halves of the sum are beyond what an f16 reaches, some 15 times over; the sum of both is 1,024.
    model = nn.Linear(2048, 1, bias=False).half().eval()
    with torch.no_grad():
        model.weight.fill_(1000)
        model.weight[:, 1024:] = -999
    x = torch.ones(1, 2048).half()
    assert poptorch.inferenceModel(model, options_with(torch.half, "native"))(x).item() == 1024
    checked = options_with(torch.half, "native")
    checked.Precision.enableFloatingPointExceptions(True)
    with pytest.raises(ApplicationRuntimeError, match="overflow"):
        poptorch.inferenceModel(model, checked)(x)
    floats = options_with(torch.float, "native")
    floats.Precision.enableFloatingPointExceptions(True)
    assert poptorch.inferenceModel(model, floats)(x).item() == 1024
