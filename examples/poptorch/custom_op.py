"""An operation of one's own in a PyTorch model: a gated unit whose two products of a row are one codelet.

``silu(a) · b`` of two halves of a value is three operators in PyTorch: a split, and two that go through memory. Here it
is one vertex per row, forward and backward, under a name that any model can call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import abele as ab
from abele import Input, Output, Vector, f32, poptorch
from abele.codelet import exp


@ab.codelet
class GatedRows(ab.Vertex):
    """y = a / (1 + exp(−a)) · b of rows that hold a, then b."""

    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self):
        n = len(self.y)
        for i in range(n):
            a = self.x[i]
            self.y[i] = a / (1.0 + exp(-a)) * self.x[n + i]


@ab.codelet
class GatedRowsGrad(ab.Vertex):
    """The gradients of a and b, in the places of a and b."""

    x: Input[Vector[f32]]
    grad: Input[Vector[f32]]
    out: Output[Vector[f32]]

    def compute(self):
        n = len(self.grad)
        for i in range(n):
            a = self.x[i]
            s = 1.0 / (1.0 + exp(-a))
            self.out[i] = self.grad[i] * self.x[n + i] * s * (1.0 + a * (1.0 - s))
            self.out[n + i] = self.grad[i] * a * s


def row_by_row(call: Any, vertex: Any, columns: int, **operands: Any) -> Any:
    """A vertex for each row of the operands, the rows spread over the tiles; returns what they write."""
    rows = next(iter(operands.values())).shape[0]
    tiles = [row * call.graph.system.num_tiles // rows for row in range(rows)]
    made = call.graph.variable(f32, (rows, columns), name="rows").map_rows(tiles)
    fields = {}
    for name, tensor in operands.items():
        fields[name] = call.graph.variable(f32, tensor.shape, name=name).map_rows(tiles)
        call.prog.add(ab.Copy(tensor, fields[name]))
    step = call.graph.compute_set(call.name)
    step.vertices(vertex, tile=tiles, **fields, **{"y" if vertex is GatedRows else "out": made})
    call.prog.add(ab.Execute(step))
    return made


@poptorch.register_op("GatedUnit", domain="examples")
class GatedUnit(poptorch.CustomOp):
    """silu(a) · b of rows [a, b]."""

    @staticmethod
    def shapes(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(x.shape[0], x.shape[1] // 2)

    @staticmethod
    def lower(call: Any, x: Any) -> Any:
        return row_by_row(call, GatedRows, x.shape[1] // 2, x=x)

    @staticmethod
    def gradient(inputs: Any, outputs: Any, grads: Any) -> Any:
        return [GatedUnitGrad.call(inputs[0], grads[0])]

    @staticmethod
    def host(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, 1)
        return nn.functional.silu(a) * b


@poptorch.register_op("GatedUnitGrad", domain="examples")
class GatedUnitGrad(poptorch.CustomOp):
    """The gradient of :class:`GatedUnit`."""

    @staticmethod
    def shapes(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    @staticmethod
    def lower(call: Any, x: Any, grad: Any) -> Any:
        return row_by_row(call, GatedRowsGrad, x.shape[1], x=x, grad=grad)


class Network(nn.Module):
    """Two layers with the gated unit between, and their loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.last = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(self.last(GatedUnit.call(self.first(x))), y)


def main(steps: int = 200) -> list[float]:
    """Learn a product of two inputs; returns the losses."""
    torch.manual_seed(0)
    model = Network()
    trained = poptorch.trainingModel(model, optimizer=torch.optim.Adam(model.parameters(), lr=0.02))
    x = torch.randn(64, 8)
    y = x[:, :1] * x[:, 1:2]
    losses = [float(trained(x, y)) for _ in range(steps)]
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
