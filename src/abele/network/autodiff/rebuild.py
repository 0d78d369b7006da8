"""Activations that the backward pass makes again, in one step each, from others kept anyway.

A norm's gradient reads its whitened activations w, and a ReLU's its output r, as does the next product. In the chain
product → norm → ReLU both would be kept, though r = max(gain · w + shift, 0). Where the residual x of a block is kept
for the first product inside, its end max(gain · w + shift + x, 0) follows from w and x. So a recipe is one expression
over values that are kept in any case. A bottleneck of 64 channels on 56 × 56 in f16 and 20 samples keeps 8 + 8 + 32 MB
of whitened activations, and its 8 + 8 MB of outputs inside are made again, as are two of three ends of 32 MB. What
dropout leaves of probabilities is drawn again from them: the gradient of their softmax reads them in any case.

Three large operands are the most in a recipe. The end of the next block would take four: it is kept, and the one after
that is made of it. Tried and worse: keeping the product rather than w (a second pass over all of the activations, and
no byte less); recipes of recipes (an end needs all ends before it, which are then alive together).

In f16 a recipe rounds w first and so differs from the forward pass by a rounding, as does PopLibs, whose norms scale
what they whitened; in f32 it does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from abele.expr import NONLINEARITIES, Expr, apply, derivative
from abele.network.ir import SAME_ELEMENTS, BlockBuilder, Network, NetworkOp, Shape, Value
from abele.network.ops import build
from abele.network.registry import rule_of

MOST_LARGE = 3
"""Most operands of a recipe that have as many elements as the result."""

TWO_BRANCHES = 2
"""Large operands of a sum of two branches that both end with a norm."""

SMALL = 4
"""Part (1 / 4) of its result up to which the operand of a product is small: it is kept for the product's gradient."""

FAR_FROM_PEAK = 2
"""Part (1 / 2) of the activations of the fullest block; a block with fewer is taken not to be at the peak (a guess)."""

_FREE = SAME_ELEMENTS | {"expand", "detach", "constant"}
"""Kinds that make no activation."""

_READ_THEIR_RESULTS = frozenset({"softmax", "safe_softmax"})
"""Kinds whose gradients read what they made."""


@dataclass(frozen=True, slots=True)
class MapRecipe:
    """A value as an expression over values that are kept.

    Attributes:
        expression: Over ``derivative.arg(i)`` for operand i.
        operands: The values, each with the shape in which it broadcasts to the result.
    """

    expression: Expr
    operands: tuple[tuple[Value, Shape], ...]

    def made(self, net: BlockBuilder, value: Value, again: Callable[[Value], Value]) -> Value:
        """``value``, made again."""
        operands = [(again(v), shape) for v, shape in self.operands]
        inputs = [v if v.shape == shape else build.reshape(net, v, shape) for v, shape in operands]
        return build.map_(net, self.expression, inputs, value.dtype)

    def num_large(self, value: Value) -> int:
        """Operands with as many elements as ``value``."""
        return sum(math.prod(shape) == value.size for _, shape in self.operands)


@dataclass(frozen=True, slots=True)
class RunAgain:
    """A value as the result of an op that runs a second time.

    In one block with the first time the two are common subexpressions, and the value is kept after all; the backward
    pass of a function has a block of its own.

    Attributes:
        op: The op.
    """

    op: NetworkOp

    def made(self, net: BlockBuilder, value: Value, again: Callable[[Value], Value]) -> Value:
        """``value``, made again of what ``again`` gives for the operands."""
        return net.emit_like(self.op.kind, [*map(again, self.op.inputs)], value, **self.op.attrs)


@dataclass(frozen=True, slots=True)
class WhitenAgain:
    """Whitened activations as the product that they came from, run a second time, with the statistics of the first.

    Attributes:
        product: The product.
        norm: The norm.
    """

    product: NetworkOp
    norm: NetworkOp

    def made(self, net: BlockBuilder, value: Value, again: Callable[[Value], Value]) -> Value:
        """``value``, made again of what ``again`` gives for the operands of the product."""
        product, (_, _, mean, inverse) = self.product, self.norm.outputs
        x = net.emit_like(product.kind, [*map(again, product.inputs)], product.output, **product.attrs)
        return build.whiten(net, x, mean, inverse, self.norm.attrs["groups"])


Recipe = MapRecipe | RunAgain | WhitenAgain
Recipes = dict[Value, Recipe]


def _kept(value: Value) -> MapRecipe:
    return MapRecipe(derivative.arg(0), ((value, value.shape),))


def _joined(expression: Expr, parts: Sequence[MapRecipe]) -> MapRecipe:
    """The recipe of an expression over values that have recipes."""
    operands = list(dict.fromkeys(o for part in parts for o in part.operands))

    def inside(part: MapRecipe) -> Expr:
        return derivative.substitute(part.expression, lambda i: derivative.arg(operands.index(part.operands[i])))

    return MapRecipe(derivative.substitute(expression, lambda i: inside(parts[i])), tuple(operands))


@dataclass(frozen=True, slots=True)
class RebuildRule:
    """Choice of the activations that are made again.

    Attributes:
        above: Bytes of an activation above which that may be worth its time.
        fullest: Bytes of all activations of the block that has most.
    """

    above: int
    fullest: int

    @staticmethod
    def of(net: Network, above: int) -> RebuildRule:
        """The rule for a network."""
        blocks = [net.ops, *(block.ops for op in net.walk() for block in op.blocks)]
        return RebuildRule(above, max(map(_made_bytes, blocks)))

    def recipes(self, ops: Sequence[NetworkOp], reached: set[Value], *, products: bool = False) -> Recipes:
        """Values that the backward pass makes again where it reads them; none of a block far from the peak.

        Args:
            ops: The ops of a block that are differentiated, in order.
            reached: Values whose gradients are of use.
            products: True if products may run a second time, as the backward pass is a block of its own.
        """
        made = _made_bytes(ops)
        if made * FAR_FROM_PEAK < self.fullest:
            return {}
        in_products = {v for op in ops if rule_of(op).planned for v in op.inputs}
        read = in_products.union(v for op in ops if op.kind in _READ_THEIR_RESULTS for v in op.outputs)
        found: Recipes = {}
        for op in ops:
            recipe = _recipe(op, found, read) if reached.issuperset(op.outputs[:1]) else None
            if recipe is not None and (isinstance(recipe, RunAgain) or recipe.num_large(op.output) <= MOST_LARGE):
                found[op.output] = recipe
        if products and made == self.fullest:
            found |= _second_branches(ops, found)
        return {v: recipe for v, recipe in found.items() if v.size * v.dtype.bytes > self.above}


def _second_branches(ops: Sequence[NetworkOp], found: Recipes) -> Recipes:
    """Whitened activations of one of two branches whose sum has a recipe, where their product has a small operand.

    Both would wait until the backward pass comes to the branches, and before only where the sum is made again.
    """
    makers = {v: op for op in ops for v in op.outputs}
    more: Recipes = {}
    for op in ops:
        recipe = found.get(op.output) if op.kind == "map" else None
        if not isinstance(recipe, MapRecipe) or recipe.num_large(op.output) != TWO_BRANCHES:
            continue
        for white, shape in reversed(recipe.operands):
            norm = makers.get(white)
            if shape != op.output.shape or norm is None or norm.kind != "norm":
                continue
            product = makers.get(norm.inputs[0])
            if product is not None and rule_of(product).planned and SMALL * product.inputs[0].size <= white.size:
                more[white] = WhitenAgain(product, norm)
                break
    return more


def _made_bytes(ops: Sequence[NetworkOp]) -> int:
    """Bytes of the activations that ops make, without what is inside of blocks."""
    made = (op for op in ops if op.kind not in _FREE and not op.blocks)
    return sum(v.size * v.dtype.bytes for op in made for v in op.outputs)


def _recipe(op: NetworkOp, found: Recipes, read: set[Value]) -> MapRecipe | RunAgain | None:
    """The recipe of an op's first result, if it has one.

    Args:
        op: The op.
        found: Recipes so far.
        read: Values that gradients read in any case, unless they have a recipe.
    """
    if op.kind in SAME_ELEMENTS or op.kind == "dropout":
        return RunAgain(op) if op.inputs[0] in read or op.inputs[0] in found else None
    if len({(v.dtype, v.place) for v in (*op.inputs, *op.outputs[:1])}) > 1:
        return None
    if op.kind == "norm":
        x, *sides = op.inputs
        white = op.outputs[1]
        shape = (x.shape[1], *(1,) * (x.ndim - 2))
        scaled = derivative.arg(0) * derivative.arg(1) + derivative.arg(2)
        return MapRecipe(scaled, ((white, x.shape), *((v, shape) for v in sides))) if sides else _kept(white)
    if op.kind == "nonlinearity":
        function, part = NONLINEARITIES[op.attrs["function"]], found.get(op.inputs[0])
        if not isinstance(part, MapRecipe) or function.gradient_takes == "input":
            return None
        return _joined(apply(function.op, derivative.arg(0)), [part])
    if op.kind == "map" and any(v in found for v in op.inputs):
        parts = [found.get(v) or (_kept(v) if v in read else None) for v in op.inputs]
        known = [part for part in parts if isinstance(part, MapRecipe)]
        return _joined(op.attrs["expr"], known) if len(known) == len(parts) else None
    return None
