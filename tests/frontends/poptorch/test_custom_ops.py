"""Operations that users write: codelets in models, their gradients, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import abele as ab
from abele import poptorch
from abele.errors import NetworkError, UnsupportedOpError


@ab.codelet
class Cube(ab.Vertex):
    """scale · x³."""

    x: ab.Input[ab.Vector[ab.f32]]
    y: ab.Output[ab.Vector[ab.f32]]
    scale: ab.f32

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = self.scale * self.x[i] * self.x[i] * self.x[i]


@poptorch.register_op("Cube", "tests")
class CubeOp(poptorch.CustomOp):
    """scale · x³, on eight tiles."""

    @staticmethod
    def shapes(x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return torch.empty_like(x)

    @staticmethod
    def lower(call: Any, x: Any, *, scale: float = 1.0) -> Any:
        flat = call.graph.variable(x.dtype, (8, x.size // 8), name="in").map_rows(range(8))
        made = call.graph.variable(x.dtype, (8, x.size // 8), name="out").map_rows(range(8))
        call.prog.add(ab.Copy(x.flatten(), flat.flatten()))
        step = call.graph.compute_set("cube")
        step.vertices(Cube, tile=range(8), x=flat, y=made, scale=scale)
        call.prog.add(ab.Execute(step))
        return made.flatten().reshape(x.shape)

    @staticmethod
    def gradient(inputs: Any, outputs: Any, grads: Any, *, scale: float = 1.0) -> Any:
        return [grads[0] * 3 * scale * inputs[0] * inputs[0]]

    @staticmethod
    def host(x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return scale * x**3


class Cubed(nn.Module):
    def __init__(self, by_name: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(8, 8)
        self.by_name = by_name

    def forward(self, x: torch.Tensor) -> Any:
        y = self.fc(x)
        if self.by_name:
            (z,) = poptorch.custom_op([y], "Cube", "tests", 1, example_outputs=[y], attributes={"scale": 0.5})
        else:
            z = CubeOp.call(y, scale=0.5)
        return z, poptorch.identity_loss(z, "sum")


@pytest.mark.parametrize("by_name", [False, True])
def test_custom_op__when_training__runs_its_codelet_and_its_gradient(by_name: bool) -> None:
    model, x = Cubed(by_name), torch.randn(4, 8)
    weight = nn.Parameter(model.fc.weight.detach().clone())
    expected = 0.5 * nn.functional.linear(x, weight, model.fc.bias.detach()) ** 3
    trained = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    out, _ = trained(x)
    assert torch.allclose(out, expected, atol=1e-5)
    expected.sum().backward()
    assert weight.grad is not None
    assert torch.allclose(model.fc.weight, weight - 0.1 * weight.grad, atol=1e-5)
    assert any("Cube" in group for group in _codelets(trained))


def _codelets(model: Any) -> set[str]:
    graph = model.executable.graph
    return {group.codelet.name for cs in graph.compute_sets for group in cs.groups}


def test_custom_op__on_the_host__is_its_host_function() -> None:
    assert torch.equal(CubeOp.call(torch.tensor([2.0]), scale=2.0), torch.tensor([16.0]))


class Bare(poptorch.CustomOp):
    """No gradient, no meaning on the host, and a wrong tensor when asked for one."""

    @staticmethod
    def shapes(x: torch.Tensor, *, wrong: bool = False) -> torch.Tensor:
        return torch.empty(x.shape)

    @staticmethod
    def lower(call: Any, x: Any, *, wrong: bool = False) -> Any:
        return x.flatten() if wrong else x


poptorch.register_op("Bare", "tests")(Bare)


def run(function: Any, x: torch.Tensor) -> Any:
    return poptorch.inferenceModel(function)(x)


def test_custom_op__without_gradient__is_refused_when_trained() -> None:
    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return poptorch.identity_loss(Bare.call(self.fc(x)), "sum")

    with pytest.raises(UnsupportedOpError, match="tests:Bare:1 has no derivative") as caught:
        poptorch.trainingModel(Trained())(torch.zeros(2, 2))
    assert caught.value.remedy == "give it a gradient function, or detach() its result"


def test_custom_op__tensor_of_another_shape__is_refused() -> None:
    with pytest.raises(NetworkError, match=r"result 0 of tests:Bare:1 is f32\[4\]"):
        run(lambda x: Bare.call(x, wrong=True), torch.zeros(2, 2))


def test_custom_op__on_the_host_without_meaning__is_refused() -> None:
    with pytest.raises(poptorch.Error, match="tests:Bare:1 runs on the device"):
        Bare.call(torch.zeros(2))


def test_custom_op__unknown_name__is_refused_with_the_nearest() -> None:
    with pytest.raises(poptorch.Error, match="no operation 'Cub' of domain 'tests', version 1") as caught:
        run(lambda x: poptorch.custom_op([x], "Cub", "tests", 1, [x]), torch.zeros(2))
    assert caught.value.remedy == "'tests:Cube:1' is"


def test_custom_op__examples_of_another_shape__are_refused() -> None:
    with pytest.raises(poptorch.Error, match=r"result 0 of tests:Cube:1 is torch.float32 of \[8\], its example output"):
        run(lambda x: poptorch.custom_op([x], "Cube", "tests", 1, [x.sum()]), torch.zeros(8))


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ([1], "attributes must be a dictionary"),
        ({1: 2}, "attributes key 1 is not a string"),
        ({"a": torch.zeros(1)}, "attribute 'a' is"),
        ({"a": [1, "b"]}, "the elements of attribute 'a' are of different types"),
    ],
)
def test_custom_op__wrong_attributes__are_refused(attributes: Any, text: str) -> None:
    with pytest.raises(poptorch.Error, match=text):
        poptorch.custom_op([torch.zeros(8)], "Cube", "tests", 1, [torch.zeros(8)], attributes)


def test_register_op__what_is_no_operation__is_refused() -> None:
    with pytest.raises(poptorch.Error, match=r"is no subclass of poptorch\.CustomOp"):
        poptorch.register_op("x")(nn.Linear)  # type: ignore[type-var]
    with pytest.raises(poptorch.Error, match=r"the operation 'x' has no shapes\(\)"):
        poptorch.register_op("x")(type("Empty", (poptorch.CustomOp,), {}))


def test_custom_op__gradient_of_another_shape__is_refused() -> None:
    @poptorch.register_op("Wrong", "tests")
    class Wrong(Bare):
        @staticmethod
        def gradient(inputs: Any, outputs: Any, grads: Any) -> Any:
            return [grads[0].sum()]

    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return poptorch.identity_loss(Wrong.call(self.fc(x)), "sum")

    with pytest.raises(poptorch.Error, match=r"gradient 0 of tests:Wrong:1 is \[\]"):
        poptorch.trainingModel(Trained())(torch.zeros(2, 2))
