"""Element-wise ops: one expression over broadcast operands, and conversions of type."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import derivative, evaluate
from abele.expr.numpy_meaning import as_integers
from abele.expr.simplify import product
from abele.expr.types import element_type
from abele.graph import Tensor
from abele.kernels.nest import ir
from abele.network.ir import BlockBuilder, NetworkOp, Stage, Value
from abele.network.ir.part import ValuePart
from abele.network.ops.constant import full
from abele.network.ops.views import concat, expand
from abele.network.registry import Gradients, OpRule, RowWise, Types, broadcast, broadcast_needs, only, require, rule
from abele.numerics import ElementType
from abele.poplibs import popops
from abele.poplibs.popops.expressions.fused import fuse
from abele.poplibs.poputil.layout import clone, create_narrowed, narrowed_layout

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering
    from abele.graph import TileMapping
    from abele.poplibs.poputil.order import StorageOrder


# Values that are zero but for a part, as gradients of slices are: facts about them without computing.
#
# The gradient of a slice has zeros around it, a view that costs nothing. The slices that make up a value (queries,
# keys and values of one product) have gradients that lie beside each other, so their sum is a view too: the slices put
# together again, where adding three tensors of mostly zeros would read, move and write all of them.


@dataclass(frozen=True)
class Padded:
    """A value that is zero but for some parts along one dimension.

    Attributes:
        dim: The dimension.
        parts: First index and contents of each part that may differ from zero, in order.
    """

    dim: int
    parts: tuple[tuple[int, Value], ...]

    def meets(self, other: Padded) -> bool:
        """True if a part of one overlaps a part of the other."""
        return any(
            begin < first + x.shape[self.dim] and first < begin + y.shape[self.dim]
            for begin, y in other.parts
            for first, x in self.parts
        )

    def beside(self, other: Padded) -> Padded:
        """Both values side by side, where they do not overlap."""
        return Padded(self.dim, tuple(sorted((*self.parts, *other.parts), key=lambda part: part[0])))

    def written(self, net: BlockBuilder, like: Value) -> Value:
        """The value itself, with zeros between the parts."""
        at, pieces = 0, []
        for begin, value in (*self.parts, (like.shape[self.dim], None)):
            if begin > at:
                gap = (*like.shape[: self.dim], begin - at, *like.shape[self.dim + 1 :])
                pieces.append(full(net, 0.0, gap, like.dtype))
            if value is not None:
                pieces.append(value)
                at = begin + value.shape[self.dim]
        return concat(net, pieces, self.dim)


def padded(net: BlockBuilder, value: Value) -> Padded | None:
    """Place in ``value`` where it may differ from zero, if it was made by putting zeros beside something."""
    maker = net.makers.get(value)
    if maker is None or maker.kind != "concat":
        return None
    dim, at, parts = maker.attrs["dim"], 0, []
    for piece in maker.inputs:
        if net.scalar(piece) != 0:
            parts.append((at, piece))
        at += piece.shape[dim]
    return Padded(dim, tuple(parts)) if len(parts) < len(maker.inputs) else None


def laid_together(net: BlockBuilder, values: Sequence[Value]) -> list[Value]:
    """Fewer values with the same sum: those that are zero wherever another is not become one."""
    kept: list[Value] = []
    merged: list[tuple[Padded, list[Value]]] = []
    for value in values:
        known = padded(net, value)
        if known is None:
            kept.append(value)
            continue
        for number, (other, members) in enumerate(merged):
            if other.dim == known.dim and not other.meets(known):
                merged[number] = other.beside(known), [*members, value]
                break
        else:
            merged.append((known, [value]))
    return kept + [m[0] if len(m) == 1 else p.written(net, m[0]) for p, m in merged]


def map_(net: BlockBuilder, expression: ir.Expr, inputs: Sequence[Value], dtype: ElementType | None = None) -> Value:
    """The value of ``expression`` at every element of ``inputs`` broadcast together.

    Args:
        net: The network to extend.
        expression: Over ``derivative.arg(i)`` for input i; constants among the inputs become part of it.
        inputs: The operands.
        dtype: Type of the result; by default that of the first operand.
    """
    shape = broadcast(*(v.shape for v in inputs))
    return net.emit("map", inputs, shape, dtype or inputs[0].dtype, expr=expression)


def map_of(
    net: BlockBuilder,
    expression: ir.Expr,
    operands: Sequence[Value | float],
    common: ElementType,
    dtype: ElementType,
    *,
    number: Callable[[float], ir.Const],
    whole: ElementType,
    masks: Collection[int] = (),
) -> Value:
    """An expression of every element of values and numbers, as front ends have them.

    Args:
        net: The network to extend.
        expression: Over ``derivative.arg(i)`` for operand i.
        operands: Values and numbers; numbers become part of the expression.
        common: Type that values are converted to.
        dtype: Type of the result.
        number: Constant for a number among the operands.
        whole: Type of whole numbers in an expression of integers.
        masks: Numbers of the operands that are conditions: they stay bools.
    """
    values: list[Value] = []
    places: list[ir.Expr] = []
    for place, operand in enumerate(operands):
        if isinstance(operand, Value):
            places.append(derivative.arg(len(values)))
            values.append(operand if place in masks else cast(net, operand, common))
        else:
            places.append(number(operand))
    if not common.is_float:
        expression = _with_integers(expression, whole)
    return map_(net, derivative.substitute(expression, places.__getitem__), values, dtype)


def _with_integers(expression: ir.Expr, dtype: ElementType) -> ir.Expr:
    """An expression of integers: its whole numbers as integers."""
    match expression:
        case ir.Const(value=float(value)) if value.is_integer():
            return ir.Const(int(value), dtype)
        case ir.Apply():
            return ir.Apply(expression.op, [_with_integers(a, dtype) for a in expression.args])
    return expression


def total(net: BlockBuilder, parts: Sequence[Value]) -> Value:
    """The sum of values of one shape, as one op; values that are zero outside of parts of their own, as a view."""
    parts = laid_together(net, parts)
    return map_(net, sum_of(len(parts)), parts)


def sum_of(count: int) -> ir.Expr:
    """The sum of so many operands."""
    expression: ir.Expr = derivative.arg(0)
    for number in range(1, count):
        expression = expression + derivative.arg(number)
    return expression


def cast(net: BlockBuilder, value: Value, dtype: ElementType) -> Value:
    """``value`` converted to another element type."""
    return value if value.dtype == dtype else net.emit("cast", [value], value.shape, dtype)


@rule("map")
class Map(OpRule):
    """An expression at every element of operands that broadcast together."""

    operands = (1, None)
    attributes: ClassVar = {"expr": ir.Expr}
    lays_out_by_operands = True

    def types(self, op: NetworkOp) -> Types:
        """Shape that the operands broadcast to, with the op's element type."""
        known, used = set(range(len(op.inputs))), derivative.operands(op.attrs["expr"])
        require(used <= known, f"the expression reads ${max(used, default=0)}, there are {len(known)} operands")
        return [(broadcast(*(v.shape for v in op.inputs)), op.output.dtype)]

    def simplify(self, net: BlockBuilder, op: NetworkOp) -> Value | None:
        """Constants of one number become part of the expression; each operand is there once, is read, and as it was
        before it was repeated.

        Operands that the expression does not read still broadcast: it is computed once and repeated over their extent.
        """
        kept: list[Value] = []

        def operand(number: int) -> ir.Expr:
            value = op.inputs[number]
            while (maker := net.makers.get(value)) is not None and maker.kind == "expand":
                value = maker.inputs[0]
            scalar = net.scalar(value)
            if scalar is not None:
                return ir.Const(scalar, value.dtype)
            if value not in kept:
                kept.append(value)
            return derivative.arg(kept.index(value))

        dtype, shape = op.output.dtype, op.output.shape
        expression = derivative.substitute(op.attrs["expr"], operand)
        if not kept:
            with np.errstate(over="ignore", invalid="ignore"):
                number = np.asarray(evaluate(expression, ()), dtype.np)
            return net.constant(np.broadcast_to(number, shape), dtype)
        if expression == derivative.arg(0) and kept[0].dtype == dtype:
            return expand(net, kept[0], shape)
        if tuple(kept) == op.inputs and expression == op.attrs["expr"]:
            return None
        own = broadcast(*(v.shape for v in kept))
        return expand(net, net.emit("map", kept, own, dtype, expr=expression), shape)

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same part of every operand, as far as it does not broadcast."""
        return part, broadcast_needs(op, part)

    def evaluate(self, op: NetworkOp, *inputs: Array) -> Array:
        """The expression in NumPy; of narrow floats in f32."""
        wide = [
            x.astype(np.float32) if v.dtype.is_narrow and x.dtype == v.dtype.np else x
            for v, x in zip(op.inputs, inputs, strict=True)
        ]
        return np.broadcast_to(evaluate(op.attrs["expr"], wide), op.output.shape)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popops map."""
        expression, inputs = popops.expr.written_out(op.attrs["expr"]), [to[v] for v in op.inputs]
        types = tuple(v.dtype for v in op.inputs)
        computed = element_type(op.attrs["expr"], types) or fuse([expression], types, [None]).out_types[0]
        if computed != op.output.dtype:
            expression = popops.expr.Cast(expression, op.output.dtype)
        out = to.given(op.output)
        if out is None:
            return popops.map(to.graph, expression, inputs, to.prog)
        popops.map_with_output(to.graph, expression, inputs, out, to.prog)
        return out

    def widens(self, op: NetworkOp, operand: int, dtype: ElementType) -> bool:
        """True: expressions convert."""
        return True

    def rounds(self, op: NetworkOp) -> bool:
        """True: it is computed in f32."""
        return True

    def waits_for_reader(self, to: Lowering, op: NetworkOp) -> bool:
        """True if all operands are repeated, as those of a mask are: none of them determines the layout of the result.

        Between updates of weights, which change what they read in place, everything stays where it is.
        """
        return op.stage != Stage.UPDATE and all(v.size < op.output.size for v in op.inputs)

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """Layout for an operand that is repeated along another one: the corresponding part of that one's layout."""
        value = op.inputs[operand]
        if not to.may_lie_as_wanted(value):
            return None
        for larger in op.inputs:
            if larger.shape == op.output.shape != value.shape and larger.ndim == value.ndim and larger in to:
                full = to[larger]
                if not full.contains_aliases and not full.contains_constant:
                    return create_narrowed(to.graph, full, value.shape, value.name or "value", value.dtype)
        return None

    def constant_layout(self, to: Lowering, op: NetworkOp, operand: int) -> tuple[StorageOrder, TileMapping] | None:
        """The part of a full operand's layout that a repeated constant meets, such as a mask of scores."""
        value, shape = op.inputs[operand], op.output.shape
        for larger in op.inputs:
            if larger.shape == shape != value.shape and to.has_layout(larger):
                full = to[larger]
                if not full.contains_aliases and not full.contains_constant:
                    padded = (1,) * (len(shape) - value.ndim) + value.shape
                    return narrowed_layout(to.graph, full, padded, value.dtype)
        return None

    def beside(self, op: NetworkOp, operand: int) -> Sequence[Value]:
        """The other operands of its shape."""
        value = op.inputs[operand]
        return [v for v in op.inputs if v is not value and v.type == value.type]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The partial derivative by each operand times the gradient, summed over broadcast dimensions."""
        grad = only(grads)
        return [self._gradient(net, op, grad, i) if wanted[i] else None for i in range(len(op.inputs))]

    def _gradient(self, net: BlockBuilder, op: NetworkOp, grad: Value, operand: int) -> Value | None:
        from abele.network.ops.reduction import sum_to

        count = len(op.inputs)
        by = derivative.arg(count)
        slope = product(derivative.partial(op.attrs["expr"], operand), by)
        shape = op.inputs[operand].shape
        if slope == by:
            return sum_to(net, grad, shape)
        if slope == derivative.ZERO:
            return None
        if derivative.operands(slope) == {count}:
            # A constant slope commutes with the sum over broadcast dimensions, which leaves fewer elements to scale.
            return map_(net, derivative.substitute(slope, lambda _: derivative.arg(0)), [sum_to(net, grad, shape)])
        # What the slope does not read need not be kept for it, such as the scores that a mask hides.
        read = sorted(derivative.operands(slope))
        slope = derivative.substitute(slope, lambda number: derivative.arg(read.index(number)))
        operands = [(*op.inputs, grad)[number] for number in read]
        return sum_to(net, map_(net, slope, operands, op.inputs[operand].dtype), shape)


@rule("cast")
class CastRule(RowWise):
    """A conversion of element type; floats to integers truncate."""

    lays_out_by_operands = True

    def types(self, op: NetworkOp) -> Types:
        """The shape of the input, and the element type that the op says."""
        return [(op.inputs[0].shape, op.output.dtype)]

    def simplify(self, net: BlockBuilder, op: NetworkOp) -> Value | None:
        """The input if it has the type, or the constant that a converted constant is."""
        (value,) = op.inputs
        contents = net.contents(value)
        if value.dtype == op.output.dtype:
            return value
        return None if contents is None else net.constant(contents, op.output.dtype)

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """The conversion in NumPy."""
        if not (op.inputs[0].dtype.is_float and op.output.dtype.kind in ("int", "uint")):
            return x
        return as_integers(x.astype(np.float32) if op.inputs[0].dtype.is_narrow else x, op.output.dtype.np)

    def waits_for_reader(self, to: Lowering, op: NetworkOp) -> bool:
        """True for an operand without a layout, such as a weight in f32: both lie as the reader of the result wants."""
        return op.stage != Stage.UPDATE and not to.has_layout(op.inputs[0])

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """Like the result, where its reader has made that."""
        out, value = to.given(op.output), op.inputs[operand]
        return None if out is None else clone(to.graph, out, value.name or "value", value.dtype)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popops cast."""
        out = to.given(op.output)
        if out is None:
            return popops.cast(to.graph, to[op.inputs[0]], op.output.dtype, to.prog)
        popops.cast_with_output(to.graph, to[op.inputs[0]], out, to.prog)
        return out

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient converted back."""
        return [cast(net, only(grads), op.inputs[0].dtype)]
