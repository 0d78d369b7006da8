"""Activations that the backward pass makes again from others that it keeps anyway, in one step each.

A norm's gradient reads its whitened activations w, and a ReLU's its output r, as does the next product. In the chain
product → norm → ReLU both would be kept, though r = max(gain · w + shift, 0). Where the residual x of a block is kept
for the first product inside, its end max(gain · w + shift + x, 0) follows from w and x. So a recipe is one expression
over values that are kept in any case. A bottleneck of 64 channels on 56 × 56 in f16 and 20 samples keeps 8 + 8 + 32 MB
of whitened activations, and its 8 + 8 MB of outputs inside are made again; of two ends of 32 MB in a row one is.

Two large operands are the most in a recipe. The end of the next block would take three: it is kept, and the one after
that is made of it. Tried and worse: keeping the product rather than w (a second pass over all of the activations, and
no byte less); recipes of recipes (an end needs all ends before it, which are then alive together).

In f16 a recipe rounds w first and so differs from the forward pass by a rounding, as does PopLibs, whose norms scale
what they whitened; in f32 it does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from abele.expr import NONLINEARITIES, Expr, apply, derivative
from abele.network.ir import BlockBuilder, NetworkOp, Shape, Value
from abele.network.ops import build
from abele.network.registry import rule_of

MOST_LARGE = 2
"""Most operands of a recipe that have as many elements as the result."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A value as an expression over values that are kept.

    Attributes:
        expression: Over ``derivative.arg(i)`` for operand i.
        operands: The values, each with the shape in which it broadcasts to the result.
    """

    expression: Expr
    operands: tuple[tuple[Value, Shape], ...]

    def made(self, net: BlockBuilder, like: Value) -> Value:
        """The value, made again."""
        inputs = [v if v.shape == shape else build.reshape(net, v, shape) for v, shape in self.operands]
        return build.map_(net, self.expression, inputs, like.dtype)

    def num_large(self, value: Value) -> int:
        """Operands with as many elements as ``value``."""
        return sum(math.prod(shape) == value.size for _, shape in self.operands)


def _kept(value: Value) -> Recipe:
    return Recipe(derivative.arg(0), ((value, value.shape),))


def _joined(expression: Expr, parts: Sequence[Recipe]) -> Recipe:
    """The recipe of an expression over values that have recipes."""
    operands = list(dict.fromkeys(o for part in parts for o in part.operands))

    def inside(part: Recipe) -> Expr:
        return derivative.substitute(part.expression, lambda i: derivative.arg(operands.index(part.operands[i])))

    return Recipe(derivative.substitute(expression, lambda i: inside(parts[i])), tuple(operands))


def recipes(ops: Sequence[NetworkOp], reached: set[Value], above: int) -> dict[Value, Recipe]:
    """Values that the backward pass had better make again.

    Args:
        ops: The ops of a block that are differentiated, in order.
        reached: Values whose gradients are of use.
        above: Bytes that have to be saved for it to be worth its time; otherwise there are no recipes.
    """
    in_products = {v for op in ops if rule_of(op).planned for v in op.inputs}
    found: dict[Value, Recipe] = {}
    for op in ops:
        recipe = _recipe(op, found, in_products) if reached.issuperset(op.outputs[:1]) else None
        if recipe is not None and recipe.num_large(op.output) <= MOST_LARGE:
            found[op.output] = recipe
    # Values that nothing reads on the way back are parts of others' recipes alone.
    read = in_products.union(op.output for op in ops if op.kind == "nonlinearity")
    saved = sum(v.size * v.dtype.bytes for v in found if v in read)
    return found if saved > above else {}


def _recipe(op: NetworkOp, found: dict[Value, Recipe], in_products: set[Value]) -> Recipe | None:
    """The recipe of an op's first result, if it has one."""
    if len({(v.dtype, v.place) for v in (*op.inputs, *op.outputs[:1])}) > 1:
        return None
    if op.kind == "norm":
        x, *sides = op.inputs
        white = op.outputs[1]
        shape = (x.shape[1], *(1,) * (x.ndim - 2))
        scaled = derivative.arg(0) * derivative.arg(1) + derivative.arg(2)
        return Recipe(scaled, ((white, x.shape), *((v, shape) for v in sides))) if sides else _kept(white)
    if op.kind == "nonlinearity":
        function, part = NONLINEARITIES[op.attrs["function"]], found.get(op.inputs[0])
        if part is None or function.gradient_takes == "input":
            return None
        return _joined(apply(function.op, derivative.arg(0)), [part])
    if op.kind == "map" and any(v in found for v in op.inputs):
        parts = [found.get(v) or (_kept(v) if v in in_products else None) for v in op.inputs]
        known = [part for part in parts if part is not None]
        return _joined(op.attrs["expr"], known) if len(known) == len(parts) else None
    return None
