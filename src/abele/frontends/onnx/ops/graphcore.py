"""Operators of PopART's own domain, ``ai.graphcore``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.expr import Expr, apply, select
from abele.expr.derivative import arg
from abele.frontends.onnx.ops.convolutions import conv
from abele.frontends.onnx.ops.indexing import numbered
from abele.frontends.onnx.ops.norms import batch_normalization
from abele.frontends.onnx.ops.views import depth_to_space, sliced
from abele.frontends.onnx.registry import Item, Known, NodeCall, op
from abele.frontends.onnx.types import element_type
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.joins import JOINS, join_at, spread_numbers, take_of_groups
from abele.network.ops.recurrent import LstmValues
from abele.network.ops.sorting import median
from abele.numerics import ElementType, f16, f32, i32

DOMAIN = "ai.graphcore"
x, y, z = arg(0), arg(1), arg(2)
Ints = Sequence[int]

# --- every element ----------------------------------------------------------------------------------------------------

_UNARY: dict[str, Expr] = {
    "Expm1": apply("expm1", x),
    "Log1p": apply("log1p", x),
    "Round": apply("round_half_away", x),
    "NearbyInt": apply("round", x),
    "Swish": x * apply("sigmoid", x),
    "BitwiseNot": apply("not", x),
}
_BINARY: dict[str, Expr] = {
    "Atan2": apply("atan2", x, y),
    "BitwiseAnd": apply("and", x, y),
    "BitwiseOr": apply("or", x, y),
    "BitwiseXor": apply("xor", x, y),
    "BitwiseXnor": apply("not", apply("xor", x, y)),
    "FMod": apply("rem", x, y),
    "Remainder": x - apply("floor", x / y) * y,
}


def _register(name: str, expression: Expr) -> None:
    @op(name, domain=DOMAIN)
    def function(call: NodeCall, *values: Value) -> Value:
        return call.map(expression, *values)


for _name, _expression in (_UNARY | _BINARY).items():
    _register(_name, _expression)


@op("Gelu", domain=DOMAIN)
def gelu(call: NodeCall, value: Value) -> Value:
    """Gaussian error linear units by tanh."""
    return build.nonlinearity(call.net, "gelu", value)


@op("GeluErf", domain=DOMAIN)
def gelu_erf(call: NodeCall, value: Value) -> Value:
    """Gaussian error linear units by the error function."""
    return build.nonlinearity(call.net, "gelu_erf", value)


@op("Detach", domain=DOMAIN)
def detach(call: NodeCall, value: Value) -> Value:
    """The operand, through which no gradient flows."""
    return build.detach(call.net, value)


@op("Nop", domain=DOMAIN)
def nop(call: NodeCall, value: Item) -> Item:
    """The operand."""
    return value


@op("TensorRemap", domain=DOMAIN)
def tensor_remap(call: NodeCall, value: Item, *, remap_type: int = 0) -> Item:
    """The operand: where it lies is the compiler's choice."""
    return value


@op("CopyVarUpdate", domain=DOMAIN)
def copy_var_update(call: NodeCall, variable: Value, value: Value) -> Value:
    """The variable, which is another value from then on."""
    call.net.root.updates[variable] = value
    return value


@op("Scale", domain=DOMAIN)
def scale(call: NodeCall, value: Value, *, scale: float) -> Value:
    """The operand times a number."""
    return call.map(x * float(scale), value)


@op("ScaledAdd", domain=DOMAIN)
def scaled_add(
    call: NodeCall,
    first: Value,
    second: Value,
    scale0: Value | float = 1.0,
    scale1: Value | float = 1.0,
) -> Value:
    """Both operands by factors, added."""
    return call.map(x * z + y * arg(3), first, second, scale0, scale1)


@op("IncrementMod", domain=DOMAIN)
def increment_mod(call: NodeCall, value: Value, *, increment: float, modulus: float) -> Value:
    """(x + increment) mod modulus."""
    return call.map(apply("rem", x + float(increment), float(modulus)), value)


@op("Bucketize", domain=DOMAIN)
def bucketize(call: NodeCall, value: Value, boundaries: Value, *, right: int = 0) -> Value:
    """Number of boundaries below each element; with ``right`` those that equal it count too."""
    net, count = call.net, boundaries.size
    wide = build.reshape(net, value, (*value.shape, 1))
    edges = build.reshape(net, boundaries, (*(1,) * value.ndim, count))
    below = build.map_(net, select(y <= x if right else y < x, 1, 0), [wide, edges], i32)
    return build.reduce(net, below, [value.ndim])


@op("NormalizeImage", domain=DOMAIN)
def normalize_image(call: NodeCall, image: Value, offsets: Value, scales: Value, *, scale: float = 1.0) -> Value:
    """(image · scale - offset) · scales of each channel, which come last; a fourth channel of zeros is added."""
    made = call.map((x * float(scale) - y) * z, image, offsets, scales, common=offsets.dtype)
    last = made.ndim - 1
    return build.pad(call.net, made, [0] * made.ndim, [0] * last + [4 - made.shape[last]])


@op("PrintTensor", domain=DOMAIN)
def print_tensor(call: NodeCall, value: Value, *, title: str = "", print_gradient: int = 1, **settings: Any) -> Value:
    """The operand, which is printed as it is made."""
    return build.print_value(call.net, value, title or call.node.input[0], gradient=bool(print_gradient))


# --- views ------------------------------------------------------------------------------------------------------------


@op("Reshape", domain=DOMAIN)
def reshape(call: NodeCall, value: Value, *, shape: Ints) -> Value:
    """The elements in another shape."""
    wanted = [value.shape[d] if n == 0 and d < value.ndim else int(n) for d, n in enumerate(shape)]
    if -1 in wanted:
        others = math.prod(n for n in wanted if n != -1)
        wanted[wanted.index(-1)] = value.size // max(others, 1)
    if math.prod(wanted) != value.size:
        raise call.wrong(f"has the shape {list(shape)}, into which {list(value.shape)} does not go")
    return build.reshape(call.net, value, wanted)


@op("Reverse", domain=DOMAIN)
def reverse(call: NodeCall, value: Value, *, dimensions: Ints) -> Value:
    """Some dimensions backwards."""
    return build.reverse(call.net, value, call.axes(dimensions, value.ndim))


@op("Slice", domain=DOMAIN)
def slice_(call: NodeCall, value: Value, *, ends: Ints, starts: Ints, axes: Ints | None = None) -> Value:
    """A part along some axes."""
    made = value
    for dim, begin, end in zip(call.axes(axes or range(len(starts)), value.ndim), starts, ends, strict=True):
        made = sliced(call, made, dim, slice(begin, end))
    return made


@op("Subsample", domain=DOMAIN)
def subsample(call: NodeCall, value: Value, *, strides: Ints) -> Value:
    """Every so many elements of each dimension."""
    if len(strides) != value.ndim or min(strides) < 1:
        raise call.wrong(f"has the strides {list(strides)} for {value.ndim} dimensions")
    made = value
    for dim, step in enumerate(strides):
        made = sliced(call, made, dim, slice(None, None, int(step)))
    return made


@op("DepthToSpace", domain=DOMAIN)
def depth_to_space_(call: NodeCall, value: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """Channels spread over blocks of the field."""
    made: Value = depth_to_space(call, value, blocksize=blocksize, mode=mode or "DCR")
    return made


@op("Init", domain=DOMAIN)
def init(call: NodeCall, *, shape: Ints, data_type: int, init_type: int = 0, batch_axis: int = -1) -> Value:
    """Zeros."""
    return build.full(call.net, 0, tuple(shape), element_type(data_type))


# --- parts whose place is data ----------------------------------------------------------------------------------------


def _starts(call: NodeCall, place: Value, axes: Ints) -> Value:
    return build.reshape(call.net, build.cast(call.net, place, i32), (len(axes),))


@op("DynamicSlice", domain=DOMAIN)
def dynamic_slice(call: NodeCall, value: Value, place: Value, *, axes: Ints, sizes: Ints, noOverlap: int = 0) -> Value:
    """A part along some axes that begins where data say."""
    dims = call.axes(axes, value.ndim)
    return build.read_window(call.net, value, _starts(call, place, dims), dims, list(sizes))


@op("DynamicUpdate", domain=DOMAIN)
def dynamic_update(
    call: NodeCall, value: Value, place: Value, part: Value, *, axes: Ints, sizes: Ints, noOverlap: int = 0
) -> Value:
    """The operand with a part replaced that begins where data say."""
    dims = call.axes(axes, value.ndim)
    return build.write_window(call.net, value, part, _starts(call, place, dims), dims)


@op("DynamicAdd", domain=DOMAIN)
def dynamic_add(call: NodeCall, value: Value, place: Value, part: Value, *, axes: Ints, sizes: Ints) -> Value:
    """The operand with something added to a part that begins where data say."""
    dims = call.axes(axes, value.ndim)
    starts = _starts(call, place, dims)
    there = build.read_window(call.net, value, starts, dims, list(sizes))
    return build.write_window(call.net, value, call.map(x + y, there, part), starts, dims)


@op("DynamicZero", domain=DOMAIN)
def dynamic_zero(call: NodeCall, value: Value, place: Value, *, axes: Ints, sizes: Ints) -> Value:
    """The operand with zeros in a part that begins where data say."""
    dims = call.axes(axes, value.ndim)
    shape = [int(sizes[dims.index(d)]) if d in dims else n for d, n in enumerate(value.shape)]
    zeros = build.full(call.net, 0, tuple(shape), value.dtype)
    return build.write_window(call.net, value, zeros, _starts(call, place, dims), dims)


# --- losses -----------------------------------------------------------------------------------------------------------


def reduced(call: NodeCall, losses: Value, reduction: str, count: int | None = None) -> Value:
    """Losses as one number, or as they are."""
    kind = reduction.lower()
    if kind == "noreduction":
        return losses
    if kind not in ("mean", "sum"):
        raise call.wrong(f"has the reduction {reduction!r}, which is none of Sum, Mean and NoReduction")
    dims = range(losses.ndim)
    if not losses.ndim:
        return losses
    return build.reduce(call.net, losses, dims, scale=1.0 if kind == "sum" else 1.0 / max(count or losses.size, 1))


@op("IdentityLoss", domain=DOMAIN)
def identity_loss(call: NodeCall, value: Value, *, reduction: str = "Mean") -> Value:
    """The operand as a loss."""
    return reduced(call, value, reduction)


@op("L1", domain=DOMAIN)
def l1_loss(call: NodeCall, value: Value, *, reduction: str = "Mean", **settings: float) -> Value:
    """λ |x|."""
    factor = float(settings["lambda"])
    return reduced(call, call.map(apply("abs", x) * factor, value), reduction)


@op("Nll", domain=DOMAIN)
def nll_loss(
    call: NodeCall,
    probabilities: Value,
    labels: Value,
    *,
    reduction: str = "Mean",
    ignoreIndex: int | None = None,
    inputIsLogProbability: int = 0,
) -> Value:
    """Minus the logarithm of each label's probability; a mean divides by the labels that count."""
    net, classes = call.net, probabilities.shape[-1]
    if labels.shape != probabilities.shape[:-1]:
        raise call.wrong(
            f"has a label tensor of {list(labels.shape)}. The label tensor must have shape "
            f"{list(probabilities.shape[:-1])} to match all but the final dimension of the probabilities tensor"
        )
    net.bound(labels, classes, "label", ignoreIndex)
    least = _SMALLEST[probabilities.dtype]
    share: Expr = -z if inputIsLogProbability else -apply("log", z + least)
    numbers = net.constant(np.arange(classes), i32, "classes")
    label = build.reshape(net, build.cast(net, labels, i32), (*labels.shape, 1))
    counted = share if ignoreIndex is None else select(y.eq(ignoreIndex), 0.0, share)
    each = build.map_(net, select(x.eq(y), counted, 0.0), [numbers, label, probabilities], probabilities.dtype)
    losses = build.reduce(net, each, [each.ndim - 1])
    if ignoreIndex is None or reduction.lower() != "mean":
        return reduced(call, losses, reduction)
    held = build.map_(net, select(x.eq(ignoreIndex), 0.0, 1.0), [labels], losses.dtype)
    total = reduced(call, losses, "Sum")
    return call.map(x / apply("max", y, 1.0), total, build.reduce(net, held, range(held.ndim)))


_SMALLEST: dict[ElementType, float] = {f32: 1e-7, f16: 6.1e-5}
"""Number that PopART adds to a probability before its logarithm."""


# --- norms, layers ----------------------------------------------------------------------------------------------------


@op("GroupNormalization", domain=DOMAIN)
def group_normalization(
    call: NodeCall, value: Value, gain: Value, shift: Value, *, num_groups: int, epsilon: float = 1e-5
) -> tuple[Value, Value, Value]:
    """Normalisation of groups of channels of each sample, with means and inverse deviations."""
    if value.shape[1] % num_groups:
        raise call.wrong(f"has {num_groups} groups of {value.shape[1]} channels")
    return build.norm(call.net, value, num_groups, epsilon, gain, shift)


@op("BatchNormalization", domain=DOMAIN)
def batch_normalization_(
    call: NodeCall,
    value: Value,
    scale: Value,
    shift: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
) -> tuple[Value, ...]:
    """As ONNX's; the running variance is of one sample less."""
    made: tuple[Value, ...] = batch_normalization(
        call, value, scale, shift, mean, variance, epsilon=epsilon, momentum=momentum
    )
    return made


@op("LSTM", domain=DOMAIN)
def lstm(
    call: NodeCall,
    value: Value,
    weights: Value,
    bias: Value | None = None,
    state: Value | None = None,
    *,
    outputFullSequence: int = 1,
) -> tuple[Value, Value]:
    """Outputs of all steps or of the last, and the cell state.

    Weights are [4, inputs + units, units] of forget, input, cell and output gates, a bias for each, and the state is
    [2, batch, units]: the output before and the cell.
    """
    net, units = call.net, weights.shape[2]
    inputs, batch = weights.shape[1] - units, value.shape[1]
    order = (1, 0, 2, 3)

    def gates(first: int, last: int) -> Value:
        part = build.slice_(net, weights, 1, first, last)
        turned = build.permute(net, part, (0, 2, 1))
        rows = build.concat(net, [build.slice_(net, turned, 0, n, n + 1) for n in order], 0)
        return build.reshape(net, rows, (4 * units, last - first))

    kind = value.dtype
    biases = build.full(net, 0.0, (4, units), kind) if bias is None else bias
    ordered = build.concat(net, [build.slice_(net, biases, 0, n, n + 1) for n in order], 0)
    states = build.full(net, 0.0, (2, batch, units), kind) if state is None else state
    output, cell = (build.reshape(net, build.slice_(net, states, 0, n, n + 1), (batch, units)) for n in range(2))
    layer = LstmValues(
        value,
        output,
        cell,
        gates(0, inputs),
        gates(inputs, inputs + units),
        build.reshape(net, ordered, (4 * units,)),
    )
    outputs, last = build.lstm(net, layer, trains=call.reader.parts.training)
    if outputFullSequence:
        return outputs, last
    steps = outputs.shape[0]
    return build.reshape(net, build.slice_(net, outputs, 0, steps - 1, steps), (batch, units)), last


@op("MultiConv", domain=DOMAIN)
def multi_conv(call: NodeCall, *values: Value, **settings: Any) -> tuple[Value, ...]:
    """Several convolutions, each of its data, weights and bias."""
    lists = {name: _apart(settings.get(name)) for name in ("dilations", "pads", "strides")}
    each = _operands(values)
    made = []
    for number, (data, weight, *bias) in enumerate(each):
        own = {name: rows[number] for name, rows in lists.items() if number < len(rows) and rows[number]}
        made.append(conv(call, data, weight, bias[0] if bias else None, group=data.shape[1] // weight.shape[1], **own))
    return tuple(made)


def _apart(flat: Ints | None) -> list[list[int]]:
    """Lists that were written one after the other, each after its length."""
    rows: list[list[int]] = []
    numbers = list(flat or ())
    while numbers:
        count = numbers.pop(0)
        rows.append(numbers[:count])
        numbers = numbers[count:]
    return rows


def _operands(values: Sequence[Value]) -> list[list[Value]]:
    """Data, weights and perhaps a bias of each convolution: a bias has one dimension."""
    found: list[list[Value]] = []
    for value in values:
        if value.ndim == 1 and found and len(found[-1]) == 2:
            found[-1].append(value)
        elif not found or len(found[-1]) >= 2:
            found.append([value])
        else:
            found[-1].append(value)
    return found


@op("ShapedDropout", domain=DOMAIN)
def shaped_dropout(call: NodeCall, value: Value, *, shape: Ints, ratio: float = 0.5) -> Value:
    """The operand, of which whole parts are left out in training: a mask of some shape, spread over it."""
    if not call.reader.parts.training:
        return value
    ones = build.full(call.net, 1.0, tuple(shape), value.dtype)
    return call.map(x * y, value, build.dropout(call.net, ones, float(ratio)))


# --- order and places -------------------------------------------------------------------------------------------------


@op("Sort", domain=DOMAIN)
def sort(call: NodeCall, value: Value, *, axis: int = -1, descending: int = 0, stable: int = 0) -> tuple[Value, Value]:
    """Elements in order along an axis, and the places that they had."""
    net, dim = call.net, call.axis(axis, value.ndim)
    made, places = build.sort(net, build.transpose(net, value, dim, -1), descending=bool(descending))
    return build.transpose(net, made, dim, -1), build.transpose(net, places, dim, -1)


@op("ReduceMedian", domain=DOMAIN)
def reduce_median(call: NodeCall, value: Value, *, axes: Ints | None = None, keepdims: int = 1) -> tuple[Value, Value]:
    """The lower median over axes, and its place among their elements."""
    dims = call.axes(axes, value.ndim) if axes else tuple(range(value.ndim))
    return median(call.net, value, dims, keep=bool(keepdims))


@op("ScatterReduce", domain=DOMAIN)
def scatter_reduce(
    call: NodeCall,
    value: Value,
    indices: Item,
    initial: Value | None = None,
    *,
    axis_size: int,
    axis: int = -1,
    reduction: str | int = "sum",
    enable_index_broadcast: int = 1,
) -> Value:
    """Elements joined at their numbers along an axis of a new extent, with what is there at first."""
    dim = call.axis(axis, value.ndim)
    return _joined(
        call, value, numbered(call, indices, axis_size), initial, dim, grouped=False, kind=reduction, size=axis_size
    )


def _joined(
    call: NodeCall,
    value: Value,
    numbers: Value,
    initial: Value | None,
    dim: int,
    *,
    grouped: bool,
    kind: str | int,
    size: int,
) -> Value:
    spread = spread_numbers(call.net, numbers, value.shape, dim, grouped)
    if spread is None:
        raise call.wrong(f"has indices {list(numbers.shape)} for data {list(value.shape)}")
    name = kind if isinstance(kind, str) else tuple(JOINS)[kind]
    return join_at(call.net, value, spread, dim, size, initial=initial, reduction=name)


@op("GroupedGather", domain=DOMAIN)
def grouped_gather(call: NodeCall, value: Value, indices: Item, *, axis: int = 0, group_size: int = 1) -> Value:
    """Entries of one axis by numbers, of each group by numbers of its own."""
    dim = 1 + call.axis(axis, value.ndim - 1) if axis >= 0 else call.axis(axis, value.ndim)
    return take_of_groups(call.net, value, numbered(call, indices, value.shape[dim]), dim)


@op("GroupedScatterReduce", domain=DOMAIN)
def grouped_scatter_reduce(
    call: NodeCall,
    value: Value,
    indices: Item,
    initial: Value | None = None,
    *,
    axis_size: int,
    axis: int = -1,
    reduction: str | int = "sum",
    group_size: int = 1,
    enable_index_broadcast: int = 1,
) -> Value:
    """As ``ScatterReduce`` for each entry of the first dimension, with numbers of its own."""
    dim = 1 + call.axis(axis, value.ndim - 1)
    return _joined(
        call, value, numbered(call, indices, axis_size), initial, dim, grouped=True, kind=reduction, size=axis_size
    )


@op("SplineBasis", domain=DOMAIN)
def spline_basis(
    call: NodeCall, place: Value, kernel_size: Known, is_open: Known, *, degree: int = 1
) -> tuple[Value, Value]:
    """Products of B-splines at each edge's place [edges, dims], and the number of the weight that each belongs to.

    There are (degree + 1) ^ dims of both for each edge. Sizes of the kernel and which dimensions are open are known.
    """
    net, dims = call.net, place.shape[1]
    sizes, opened = (np.asarray(v).reshape(-1).astype(int).tolist() for v in (kernel_size, is_open))
    columns = [build.slice_(net, place, 1, d, d + 1) for d in range(dims)]
    found, numbers = [], []
    for combination in range((degree + 1) ** dims):
        weight, number, rest, offset = None, None, combination, 1
        for d, column in enumerate(columns):
            step, rest = rest % (degree + 1), rest // (degree + 1)
            scaled = x * float(sizes[d] - degree * opened[d])
            own = build.map_(net, _spline(scaled - apply("floor", scaled), step, degree), [column], place.dtype)
            at = apply("rem", apply("floor", scaled) + float(step), float(sizes[d])) * float(offset)
            here = build.map_(net, at, [column], place.dtype)
            weight = own if weight is None else call.map(x * y, weight, own)
            number = here if number is None else call.map(x + y, number, here)
            offset *= sizes[d]
        assert weight is not None
        assert number is not None
        found.append(weight)
        numbers.append(build.cast(net, number, i32))
    return build.concat(net, found, 1), build.concat(net, numbers, 1)


def _spline(v: Expr, step: int, degree: int) -> Expr:
    """The B-spline of a degree in a segment, at a place of [0, 1)."""
    table: dict[int, list[Expr]] = {
        1: [1.0 - v, v],
        2: [0.5 * v * v - v + 0.5, v - v * v + 0.5, 0.5 * v * v],
        3: [
            (1.0 - v) * (1.0 - v) * (1.0 - v) / 6.0,
            (3.0 * v * v * v - 6.0 * v * v + 4.0) / 6.0,
            (3.0 * v * v - 3.0 * v * v * v + 3.0 * v + 1.0) / 6.0,
            v * v * v / 6.0,
        ],
    }
    return table[degree][step]


@op("SplineWeighting", domain=DOMAIN)
def spline_weighting(call: NodeCall, value: Value, weights: Value, basis: Value, numbers: Value) -> Value:
    """For each edge the sum over its splines of basis · features · weights [kernel, inputs, outputs]."""
    net = call.net
    kernel, inputs, outputs = weights.shape
    edges, several = basis.shape
    table = build.reshape(net, weights, (kernel, inputs * outputs))
    net.bound(numbers, kernel, "index")
    rows = build.look_up(net, table, build.reshape(net, build.cast(net, numbers, i32), (edges * several,)))
    wide = build.reshape(net, rows, (edges, several, inputs, outputs))
    mixed = call.map(x * y, wide, build.reshape(net, basis, (edges, several, 1, 1)))
    summed = build.reduce(net, mixed, [1])
    features = build.reshape(net, value, (edges, inputs, 1))
    return build.reduce(net, call.map(x * y, summed, features), [1])


# --- graphs ----------------------------------------------------------------------------------------------------------


@op("Call", domain=DOMAIN)
def call_graph(call: NodeCall, *given: Item, callee: Any) -> Any:
    """Results of a graph."""
    return tuple(call.reader.body(callee, call.net, list(given)))
