"""Ops that move no data: they see the same elements in another shape, order or selection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele import graph as tile_graph
from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Stage, Value
from abele.network.ir.part import Digit, ValuePart, some_digits, whole_digits
from abele.network.ops.constant import full
from abele.network.registry import Gradients, OpRule, Types, broadcast, broadcast_needs, only, require, rule
from abele.numerics import ElementType

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


LARGEST_KNOWN = 2**24
"""Elements of a constant that is made of others here; larger ones the device makes. Chosen: 64 MB of f32."""


class View(OpRule):
    """A kind that moves no data: of constants, it is a constant."""

    depends_on_operands_alone = False

    def same(self, op: NetworkOp) -> bool:
        """True if an op of the kind changes nothing."""
        return op.output.shape == op.inputs[0].shape

    def undone(self, op: NetworkOp, made: Tensor) -> Tensor | None:
        """The operand of which ``made`` is the view, for views of all elements, each once; None for others."""
        return None

    def simplify(self, net: BlockBuilder, op: NetworkOp) -> Value | None:
        """The input of a view that changes nothing; the constant that a view of constants is."""
        if self.same(op):
            return op.inputs[0]
        contents = [net.contents(v) for v in op.inputs]
        known = [c for c in contents if c is not None]
        if len(known) < len(contents) or (op.output.size > LARGEST_KNOWN and op.kind != "expand"):
            return None
        return net.constant(self.evaluate(op, *known), op.output.dtype)

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """The tensor of the view, where its reader has made one, seen the other way."""
        out = to.given(op.output)
        return None if out is None else self.undone(op, out)


class WholeView(View):
    """A view of all elements of its operand, each once: what enters lies as the reader of the view wants it to.

    A kernel that a program has channels last lies as the convolution wants it, which reads it channels first.
    """

    def waits_for_reader(self, to: Lowering, op: NetworkOp) -> bool:
        """True for an operand that nothing has laid out yet."""
        return op.stage != Stage.UPDATE and not to.has_layout(op.inputs[0])


def reshape(net: BlockBuilder, value: Value, shape: Sequence[int]) -> Value:
    """``value`` in another shape of as many elements; one dimension may be −1."""
    wanted = tuple(shape)
    if -1 in wanted:
        known = -int(np.prod(wanted))
        wanted = tuple(value.size // known if n == -1 else n for n in wanted)
    return value if wanted == value.shape else net.emit("reshape", [value], wanted, value.dtype)


def permute(net: BlockBuilder, value: Value, order: Sequence[int]) -> Value:
    """``value`` with its dimensions in ``order``."""
    axes = tuple(d % value.ndim for d in order)
    if axes == tuple(range(value.ndim)):
        return value
    return net.emit("permute", [value], [value.shape[d] for d in axes], value.dtype, order=axes)


def transpose(net: BlockBuilder, value: Value, first: int = -2, second: int = -1) -> Value:
    """``value`` with two dimensions swapped."""
    order = list(range(value.ndim))
    order[first], order[second] = order[second], order[first]
    return permute(net, value, order)


def expand(net: BlockBuilder, value: Value, shape: Sequence[int]) -> Value:
    """``value`` repeated to ``shape`` by NumPy's broadcasting rules."""
    return value if tuple(shape) == value.shape else net.emit("expand", [value], shape, value.dtype)


def slice_(net: BlockBuilder, value: Value, dim: int, begin: int, end: int, step: int = 1) -> Value:
    """Indices ``begin, begin + step, …`` below ``end`` of one dimension."""
    dim %= value.ndim
    count = len(range(begin, end, step))
    if (begin, count) == (0, value.shape[dim]):
        return value
    shape = (*value.shape[:dim], count, *value.shape[dim + 1 :])
    return net.emit("slice", [value], shape, value.dtype, dim=dim, begin=begin, end=end, step=step)


def reverse(net: BlockBuilder, value: Value, dims: Sequence[int]) -> Value:
    """``value`` with dimensions backwards."""
    turned = tuple(sorted({d % value.ndim for d in dims if value.shape[d] > 1}))
    return net.emit_like("reverse", [value], value, dims=turned) if turned else value


def concat(net: BlockBuilder, values: Sequence[Value], dim: int) -> Value:
    """The values after each other along ``dim``."""
    dim %= values[0].ndim
    values = [v for v in values if v.shape[dim]] or values[:1]
    extent = sum(v.shape[dim] for v in values)
    shape = (*values[0].shape[:dim], extent, *values[0].shape[dim + 1 :])
    return values[0] if len(values) == 1 else net.emit("concat", values, shape, values[0].dtype, dim=dim)


def pad(net: BlockBuilder, value: Value, low: Sequence[int], high: Sequence[int], fill: float = 0.0) -> Value:
    """``value`` with ``low[d]`` elements of ``fill`` before and ``high[d]`` after it along each dimension d."""
    for dim, (before, after) in enumerate(zip(low, high, strict=True)):
        around = [_filled_like(net, value, dim, n, fill) if n else None for n in (before, after)]
        parts = [around[0], value, around[1]]
        value = concat(net, [p for p in parts if p is not None], dim)
    return value


def _spread(net: BlockBuilder, value: Value, dim: int, step: int) -> Value:
    """``value`` with ``step`` − 1 zeros after each index of ``dim``."""
    before, extent, after = value.shape[:dim], value.shape[dim], value.shape[dim + 1 :]
    apart = reshape(net, value, (*before, extent, 1, *after))
    high = [0] * apart.ndim
    high[dim + 1] = step - 1
    return reshape(net, pad(net, apart, [0] * apart.ndim, high), (*before, extent * step, *after))


def placed(net: BlockBuilder, value: Value, dim: int, begin: int, step: int, extent: int) -> Value:
    """Zeros with ``extent`` indices of ``dim``, and ``value`` at ``begin, begin + step, …``."""
    spread = _spread(net, value, dim, step)
    # The last index may have less room behind it than the others.
    spread = slice_(net, spread, dim, 0, min(spread.shape[dim], extent - begin))
    low, high = [0] * value.ndim, [0] * value.ndim
    low[dim], high[dim] = begin, extent - begin - spread.shape[dim]
    return pad(net, spread, low, high)


def _filled_like(net: BlockBuilder, value: Value, dim: int, count: int, fill: float) -> Value:
    return full(net, fill, (*value.shape[:dim], count, *value.shape[dim + 1 :]), value.dtype)


def bitcast(net: BlockBuilder, value: Value, dtype: ElementType) -> Value:
    """The bits of ``value`` as elements of another type of the same width: an f32 as an i32, say."""
    return value if value.dtype == dtype else net.emit("bitcast", [value], value.shape, dtype)


def detach(net: BlockBuilder, value: Value) -> Value:
    """``value``, through which no gradient flows."""
    return net.emit_like("detach", [value], value)


@rule("reshape")
class Reshape(WholeView):
    """View of the same elements in row-major order in another shape."""

    def types(self, op: NetworkOp) -> Types:
        """The shape that the op says, of as many elements."""
        value, made = op.inputs[0], op.output
        require(made.size == value.size, f"{list(value.shape)} has {value.size} elements, not {made.size}")
        return [(made.shape, value.dtype)]

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same elements; more of them where they are no part in the other shape."""
        old, new = op.inputs[0].shape, op.output.shape
        while True:
            read = part.reshaped(new, old)
            made = read.reshaped(old, new)
            # Each way may add elements; both shapes have the same ones once neither does.
            if made == part:
                return made, [read]
            part = made

    def emit_part(self, net: BlockBuilder, op: NetworkOp, part: ValuePart, inputs: Sequence[Value]) -> Value:
        """The part of the input in the shape of the part."""
        return reshape(net, inputs[0], part.shape)

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """NumPy's reshape."""
        return x.reshape(op.output.shape)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """A view."""
        return to[op.inputs[0]].reshape(op.output.shape)

    def undone(self, op: NetworkOp, made: Tensor) -> Tensor:
        """The shape that the elements had."""
        return made.reshape(op.inputs[0].shape)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient in the shape of the input."""
        return [reshape(net, only(grads), op.inputs[0].shape)]


@rule("permute")
class Permute(WholeView):
    """Dimensions in another order."""

    attributes: ClassVar = {"order": tuple}

    def types(self, op: NetworkOp) -> Types:
        """The dimensions of the input in the order."""
        (value,), order = op.inputs, op.attrs["order"]
        require(sorted(order) == list(range(value.ndim)), f"order={list(order)} is no order of {list(value.shape)}")
        return [(tuple(value.shape[d] for d in order), value.dtype)]

    def same(self, op: NetworkOp) -> bool:
        """True if the order is the one that there was."""
        return bool(op.attrs["order"] == tuple(range(op.output.ndim)))

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The part with its dimensions in the order that they had."""
        order = op.attrs["order"]
        return part, [ValuePart(tuple(part.dims[order.index(d)] for d in range(len(order))))]

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """NumPy's transpose."""
        return x.transpose(op.attrs["order"])

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """A view."""
        return to[op.inputs[0]].transpose(op.attrs["order"])

    def undone(self, op: NetworkOp, made: Tensor) -> Tensor:
        """The dimensions in the order that they had."""
        return made.transpose(np.argsort(op.attrs["order"]).tolist())

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The inverse permutation of the gradient."""
        order = op.attrs["order"]
        return [permute(net, only(grads), sorted(range(len(order)), key=order.__getitem__))]


@rule("expand")
class Expand(View):
    """Elements repeated along dimensions."""

    def types(self, op: NetworkOp) -> Types:
        """Shape of the op, to which the input must broadcast."""
        value, made = op.inputs[0], op.output
        require(broadcast(value.shape, made.shape) == made.shape, f"{value} does not expand to {list(made.shape)}")
        return [(made.shape, value.dtype)]

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The part's dimensions that are not repeated."""
        return part, broadcast_needs(op, part)

    def emit_part(self, net: BlockBuilder, op: NetworkOp, part: ValuePart, inputs: Sequence[Value]) -> Value:
        """The part of the input repeated to the shape of the part."""
        return expand(net, inputs[0], part.shape)

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """NumPy's broadcast_to."""
        return np.broadcast_to(x, op.output.shape)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """A view."""
        return to[op.inputs[0]].broadcast_to(op.output.shape)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient summed over the repetitions."""
        from abele.network.ops.reduction import sum_to

        return [sum_to(net, only(grads), op.inputs[0].shape)]


@rule("slice")
class Slice(View):
    """Some indices of one dimension."""

    attributes: ClassVar = {"dim": int, "begin": int, "end": int, "step": int}

    def types(self, op: NetworkOp) -> Types:
        """The input's shape, with as many indices as are taken."""
        (value,), dim = op.inputs, op.attrs["dim"]
        require(0 <= dim < value.ndim, f"{value} has no dimension {dim}")
        begin, end, step = (op.attrs[name] for name in ("begin", "end", "step"))
        inside = 0 <= begin <= end <= value.shape[dim] and step > 0
        require(inside, f"the indices {begin}:{end}:{step} are not in a dimension of {value.shape[dim]}")
        return [((*value.shape[:dim], len(range(begin, end, step)), *value.shape[dim + 1 :]), value.dtype)]

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """Part of the operand for a part of the taken indices: every second one, say, is the first of a digit of
        two.
        """
        dim, begin, step = (op.attrs[name] for name in ("dim", "begin", "step"))
        extent, count = op.inputs[0].shape[dim], op.output.shape[dim]
        digits = part.dims[dim]
        if step > 1 and extent == count * step:
            return part, [part.with_dim(dim, (*digits, Digit(step, begin, begin + 1)))]
        if step > 1 or len(digits) > 1:
            part, digits = part.with_whole(dim), whole_digits(count)
        low, high = begin + digits[0].low * step, begin + (digits[0].high - 1) * step + 1
        return part, [part.with_dim(dim, some_digits(extent, low, high))]

    def emit_part(self, net: BlockBuilder, op: NetworkOp, part: ValuePart, inputs: Sequence[Value]) -> Value:
        """The part of the input; where steps have been no digit of it, every so many-th index."""
        dim = op.attrs["dim"]
        extent = inputs[0].shape[dim]
        step = op.attrs["step"] if extent > part.shape[dim] else 1
        return slice_(net, inputs[0], dim, 0, extent, step)

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """NumPy's slice."""
        attrs = op.attrs
        taken = slice(attrs["begin"], attrs["end"], attrs["step"])
        return np.asarray(np.moveaxis(np.moveaxis(x, attrs["dim"], 0)[taken], 0, attrs["dim"]))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """A view."""
        attrs = op.attrs
        part = to[op.inputs[0]].slice(attrs["begin"], attrs["end"], attrs["dim"])
        return part if attrs["step"] == 1 else part.sub_sample(attrs["step"], attrs["dim"])

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient with zeros where the input was not taken."""
        grad, value = only(grads), op.inputs[0]
        dim, begin, step = (op.attrs[name] for name in ("dim", "begin", "step"))
        return [placed(net, grad, dim, begin, step, value.shape[dim])]


@rule("reverse")
class Reverse(WholeView):
    """Dimensions backwards."""

    attributes: ClassVar = {"dims": tuple}

    def types(self, op: NetworkOp) -> Types:
        """The type of the input."""
        (value,), dims = op.inputs, op.attrs["dims"]
        require(all(0 <= d < value.ndim for d in dims), f"dims={list(dims)} are not dimensions of {list(value.shape)}")
        return [value.type]

    def same(self, op: NetworkOp) -> bool:
        """True if no dimension is turned."""
        return not op.attrs["dims"]

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The part's indices, counted from the other end."""
        turned = part
        for dim in op.attrs["dims"]:
            digits = tuple(Digit(d.extent, d.extent - d.high, d.extent - d.low) for d in part.dims[dim])
            turned = turned.with_dim(dim, digits)
        return part, [turned]

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """NumPy's flip."""
        return np.flip(x, op.attrs["dims"])

    def undone(self, op: NetworkOp, made: Tensor) -> Tensor:
        """Backwards once more."""
        for dim in op.attrs["dims"]:
            made = made.reverse(dim)
        return made

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """A view."""
        view = to[op.inputs[0]]
        for dim in op.attrs["dims"]:
            view = view.reverse(dim)
        return view

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient backwards."""
        return [reverse(net, only(grads), op.attrs["dims"])]


@rule("concat")
class Concat(View):
    """Values after each other along one dimension."""

    operands = (1, None)
    attributes: ClassVar = {"dim": int}

    def types(self, op: NetworkOp) -> Types:
        """The inputs' shape, with as many indices along the dimension as all of them have."""
        first, dim = op.inputs[0], op.attrs["dim"]
        require(0 <= dim < first.ndim, f"{first} has no dimension {dim}")
        require(all(v.dtype == first.dtype for v in op.inputs), "the values differ in type")
        sides = {(*v.shape[:dim], *v.shape[dim + 1 :]) for v in op.inputs}
        fits = len(sides) == 1 and all(v.ndim == first.ndim for v in op.inputs)
        require(fits, f"the values differ in another dimension than {dim}")
        extent = sum(v.shape[dim] for v in op.inputs)
        return [((*first.shape[:dim], extent, *first.shape[dim + 1 :]), first.dtype)]

    def same(self, op: NetworkOp) -> bool:
        """True for one value alone."""
        return len(op.inputs) == 1

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """Part of each value that lies in the part of the result."""
        dim = op.attrs["dim"]
        made = part if len(part.dims[dim]) == 1 else part.with_whole(dim)
        (digit,), begin, read = made.dims[dim], 0, list[ValuePart | None]()
        for value in op.inputs:
            extent = value.shape[dim]
            low, high = max(digit.low - begin, 0), min(digit.high - begin, extent)
            read.append(made.with_dim(dim, some_digits(extent, low, high)) if low < high else None)
            begin += extent
        return made, read

    def emit_part(self, net: BlockBuilder, op: NetworkOp, part: ValuePart, inputs: Sequence[Value]) -> Value:
        """The parts of the values after each other."""
        return concat(net, inputs, op.attrs["dim"])

    def evaluate(self, op: NetworkOp, *inputs: Array) -> Array:
        """NumPy's concatenate."""
        return np.concatenate(inputs, axis=op.attrs["dim"])

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """A view."""
        return tile_graph.concat([to[v] for v in op.inputs], op.attrs["dim"])

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The part of the gradient that belongs to each input."""
        grad, dim = only(grads), op.attrs["dim"]
        ends = np.cumsum([v.shape[dim] for v in op.inputs]).tolist()
        begins = [0, *ends[:-1]]
        return [
            slice_(net, grad, dim, begin, end) if want else None
            for begin, end, want in zip(begins, ends, wanted, strict=True)
        ]


@rule("bitcast")
class Bitcast(View):
    """Bits of the same elements, read as another type."""

    def types(self, op: NetworkOp) -> Types:
        """The input's shape, and the element type that the op says, of the same width."""
        value, made = op.inputs[0], op.output
        require(made.dtype.bits == value.dtype.bits, f"{value.dtype} and {made.dtype} differ in width")
        require(not (value.dtype.is_quarter or made.dtype.is_quarter), "8-bit floats have no bits of their own here")
        return [(value.shape, made.dtype)]

    def same(self, op: NetworkOp) -> bool:
        """True if the type is the one that there was."""
        return bool(op.output.dtype == op.inputs[0].dtype)

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same part of the operand."""
        return part, [part]

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """NumPy's view, of floats as the device holds them."""
        held = np.ascontiguousarray(x.astype(op.inputs[0].dtype.np))
        return held.view(op.output.dtype.np).reshape(x.shape)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """A view."""
        return to[op.inputs[0]].reinterpret(op.output.dtype)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """No gradient: bits have none."""
        return [None]


@rule("detach")
class Detach(View):
    """View of the same elements, through which no gradient flows."""

    def types(self, op: NetworkOp) -> Types:
        """The type of the input."""
        return [op.inputs[0].type]

    def same(self, op: NetworkOp) -> bool:
        """False: what it changes is where gradients flow."""
        return False

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same part of the operand."""
        return part, [part]

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """The input."""
        return x

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """The operand's tensor."""
        return to[op.inputs[0]]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """No gradient."""
        return [None]
