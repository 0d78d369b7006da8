"""Primitives of ``jax.lax`` as vertices: those of popops by name, and those of this room where popops has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive

from abele.errors import UnsupportedOpError
from abele.frontends.jax.tessellate.mapping import TileView, primitive_clone, register_ipu_tile_primitive
from abele.frontends.jax.tessellate.types import (
    IpuTileMapEquation,
    IpuType,
    IpuVertexAttributeI32,
    IpuVertexIOInfo,
    Shape,
    make_ipu_vertex_constant_info,
    make_ipu_vertex_in_info,
    make_ipu_vertex_inout_info,
    make_ipu_vertex_out_info,
    user_line,
)

Avals = Sequence[Any]
Params = Mapping[str, Any]


def kind_of(aval: Any) -> str:
    """Poplar's name of the type of an abstract value."""
    return str(IpuType.of(aval).value)


def results_of(p: Primitive, inavals: Avals, attributes: Params) -> list[ShapedArray]:
    """Abstract values of the results for one row."""
    shapes = jax.eval_shape(
        lambda *row: p.bind(*row, **attributes), *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in inavals)
    )
    return [ShapedArray(s.shape, s.dtype) for s in (shapes if p.multiple_results else [shapes])]


def equation(
    p: Primitive,
    tiles: Any,
    vname: str,
    inputs: Sequence[IpuVertexIOInfo],
    outputs: Sequence[IpuVertexIOInfo],
    **numbers: Any,
) -> IpuTileMapEquation:
    """A call of a vertex, with its fields of whole numbers by name."""
    return IpuTileMapEquation(
        vname=vname,
        pname=p.name,
        tiles=tiles,
        inputs_info=tuple(inputs),
        outputs_info=tuple(outputs),
        attributes_i32=tuple(IpuVertexAttributeI32(n, int(v)) for n, v in numbers.items()),
    )


def refuse(p: Primitive, what: str, remedy: str | None = None) -> UnsupportedOpError:
    """The error that a primitive is no vertex as it is called."""
    return UnsupportedOpError(f"tile_map of {p.name} {what}", at=user_line(), remedy=remedy)


# --- element by element -----------------------------------------------------------------------------------------------

UNARY = {
    "abs": "ABSOLUTE",
    "asin": "ASIN",
    "cbrt": "CBRT",
    "ceil": "CEIL",
    "clz": "COUNT_LEADING_ZEROS",
    "cos": "COS",
    "erf": "ERF",
    "exp": "EXPONENT",
    "exp2": "EXPONENT2",
    "expm1": "EXPONENT_MINUS_ONE",
    "floor": "FLOOR",
    "is_finite": "IS_FINITE",
    "log": "LOGARITHM",
    "log1p": "LOGARITHM_ONE_PLUS",
    "logistic": "SIGMOID",
    "neg": "NEGATE",
    "not": "BITWISE_NOT",
    "population_count": "POPCOUNT",
    "round": "ROUND",
    "rsqrt": "RSQRT",
    "sign": "SIGNUM",
    "sin": "SIN",
    "sqrt": "SQRT",
    "square": "SQUARE",
    "tan": "TAN",
    "tanh": "TANH",
}
"""PopLibs' operations on one element, by names of primitives."""

BINARY = {
    "add": "ADD",
    "add_any": "ADD",
    "and": "BITWISE_AND",
    "atan2": "ATAN2",
    "div": "DIVIDE",
    "eq": "EQUAL",
    "ge": "GREATER_THAN_EQUAL",
    "gt": "GREATER_THAN",
    "le": "LESS_THAN_EQUAL",
    "lt": "LESS_THAN",
    "max": "MAXIMUM",
    "min": "MINIMUM",
    "mul": "MULTIPLY",
    "ne": "NOT_EQUAL",
    "or": "BITWISE_OR",
    "pow": "POWER",
    "rem": "REMAINDER",
    "shift_left": "SHIFT_LEFT",
    "shift_right_arithmetic": "SHIFT_RIGHT_SIGN_EXTEND",
    "shift_right_logical": "SHIFT_RIGHT",
    "sub": "SUBTRACT",
    "xor": "BITWISE_XOR",
}
"""PopLibs' operations on two elements, by names of primitives."""

_OF_BOOLS = {"BITWISE_NOT": "LOGICAL_NOT", "BITWISE_AND": "LOGICAL_AND", "BITWISE_OR": "LOGICAL_OR"} | {
    "BITWISE_XOR": "NOT_EQUAL"
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    name: {"accuracy": None}
    for name in ("cbrt", "cos", "exp", "exp2", "expm1", "log", "log1p", "logistic", "rsqrt", "sin", "sqrt", "tan")
} | {
    "tanh": {"accuracy": None},
    "mul": {"out_dtype": None},
    "round": {"rounding_method": lax.RoundingMethod.AWAY_FROM_ZERO},
}


def _operation(name: str, aval: Any, attributes: Params) -> str:
    if name == "ROUND" and attributes.get("rounding_method") is lax.RoundingMethod.TO_NEAREST_EVEN:
        return "NEARBY_INT"
    return _OF_BOOLS.get(name, name) if kind_of(aval) == "bool" else name


def _unary(operation: str, in_place: bool) -> Callable[..., Any]:
    def translate(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> IpuTileMapEquation:
        (value,), (made,) = inavals, results_of(p, inavals, attributes)
        names = f"<popops::expr::UnaryOpType::{_operation(operation, value, attributes)},{kind_of(value)}>"
        if in_place:
            field = [make_ipu_vertex_inout_info("inOut", value)]
            return equation(p, tiles, f"popops::UnaryOp1DInPlace{names}", field, field)
        return equation(
            p,
            tiles,
            f"popops::UnaryOp1D{names}",
            [make_ipu_vertex_in_info("in", value)],
            [make_ipu_vertex_out_info("out", made)],
        )

    return translate


def _binary(operation: str, in_place: bool) -> Callable[..., Any]:
    def translate(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> IpuTileMapEquation:
        (first, second), (made,) = inavals, results_of(p, inavals, attributes)
        names = f"<popops::expr::BinaryOpType::{_operation(operation, first, attributes)},{kind_of(first)}>"
        if in_place:
            both = make_ipu_vertex_inout_info("in1Out", first)
            other = make_ipu_vertex_in_info("in2", second)
            return equation(p, tiles, f"popops::BinaryOp1DInPlace{names}", [both, other], [both])
        return equation(
            p,
            tiles,
            f"popops::BinaryOp1D{names}",
            [make_ipu_vertex_in_info("in1", first), make_ipu_vertex_in_info("in2", second)],
            [make_ipu_vertex_out_info("out", made)],
        )

    return translate


IN_PLACE: dict[str, Primitive] = {}
"""Primitives that overwrite their first operand, by the names ``…_inplace_p``."""

_AS_BOOLS = ("eq", "ge", "gt", "is_finite", "le", "lt", "ne")


def _register_elements() -> None:
    for table, maker in ((UNARY, _unary), (BINARY, _binary)):
        for name, operation in table.items():
            p = _primitive_of(name)
            if p is None:
                continue
            register_ipu_tile_primitive(p, maker(operation, False), _DEFAULTS.get(name))
            if name not in _AS_BOOLS and name != "add_any":
                clone = IN_PLACE[f"{name}_inplace_p"] = primitive_clone(p, f"{name}_inplace")
                register_ipu_tile_primitive(clone, maker(operation, True), _DEFAULTS.get(name))


def _primitive_of(name: str) -> Primitive | None:
    from jax.extend.core import primitives

    return getattr(lax, f"{name}_p", None) or getattr(primitives, f"{name}_p", None)


# --- choices, bounds, conversions -------------------------------------------------------------------------------------


def _select(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> IpuTileMapEquation:
    which, *cases = inavals
    if len(cases) != 2 or kind_of(which) != "bool":
        raise refuse(p, f"of {len(cases)} cases by {kind_of(which)}", "choose between two by bools")
    otherwise, chosen = cases
    kind = kind_of(chosen)
    scalar = which.shape != chosen.shape
    flag = make_ipu_vertex_in_info("in3", which, rank=1 if scalar else 2)
    return equation(
        p,
        tiles,
        f"popops::{'BroadcastSelectorSelect' if scalar else 'Select'}<{kind}>",
        [flag, make_ipu_vertex_in_info("in2", otherwise), make_ipu_vertex_in_info("in1", chosen)],
        [make_ipu_vertex_out_info("out", chosen)],
    )


def _clamp(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> IpuTileMapEquation:
    low, value, high = inavals
    if (low.shape == ()) != (high.shape == ()) and value.shape:
        raise refuse(p, "between a number and an array", "give both bounds alike")
    scalar = low.shape == () and value.shape != ()
    return equation(
        p,
        tiles,
        f"popops::{'BroadcastClamp' if scalar else 'Clamp'}<{kind_of(value)}>",
        [
            make_ipu_vertex_in_info("in2", low),
            make_ipu_vertex_in_info("in1", value),
            make_ipu_vertex_in_info("in3", high),
        ],
        [make_ipu_vertex_out_info("out", value)],
    )


def _convert(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> Any:
    (value,), (made,) = inavals, results_of(p, inavals, attributes)
    if value.dtype == made.dtype:
        return TileView()
    return equation(
        p,
        tiles,
        f"popops::Cast1D<{kind_of(value)},{kind_of(made)}>",
        [make_ipu_vertex_in_info("src", value)],
        [make_ipu_vertex_out_info("dst", made)],
    )


def _view(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> Any:
    (value,), (made,) = inavals, results_of(p, inavals, attributes)
    if p.name == "reshape" and attributes.get("dimensions") is not None:
        raise refuse(p, "with an order of dimensions", "lax.transpose_p first")
    if value.dtype != made.dtype and (np.dtype(value.dtype).itemsize != np.dtype(made.dtype).itemsize):
        raise refuse(p, f"from {value.dtype} to {made.dtype}", "types of as many bits")
    return TileView()


def _power(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> Any:
    (value,), power = inavals, int(attributes["y"])
    if power == 1:
        return TileView()
    if power == -1:
        return _unary("INVERSE", False)(p, tiles, inavals, attributes)
    if power == 2:
        return _unary("SQUARE", False)(p, tiles, inavals, attributes)
    return equation(
        p,
        tiles,
        f"tessellate::Power<{kind_of(value)},{power}>",
        [make_ipu_vertex_in_info("x", value)],
        [make_ipu_vertex_out_info("out", value)],
    )


# --- along a dimension ------------------------------------------------------------------------------------------------


def _around(shape: Shape, axes: Sequence[int]) -> tuple[int, int, int]:
    """Elements outside of, along and inside of neighbouring dimensions."""
    first, last = min(axes), max(axes)
    sizes = [int(np.prod(part, dtype=np.int64)) for part in (shape[:first], shape[first : last + 1], shape[last + 1 :])]
    return sizes[0], sizes[1], sizes[2]


_REDUCE = {
    "reduce_sum": ("ReduceAdd", "add"),
    "reduce_max": ("ReduceMax", "max"),
    "reduce_min": ("ReduceMin", "min"),
    "reduce_prod": ("ReduceMul", "mul"),
    "reduce_and": ("ReduceAnd", "and"),
    "reduce_or": ("ReduceOr", "or"),
    "reduce_xor": ("", "xor"),
}
_COUNT_LIMIT = 2**16
"""Counts that the fields of the libraries' reductions hold: unsigned short."""


def _reduce(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> Any:
    (value,), (made,) = inavals, results_of(p, inavals, attributes)
    axes = [a % len(value.shape) for a in attributes["axes"]]
    if not axes:
        return TileView()
    (named, op), kind = _REDUCE[p.name], kind_of(value)
    if not all(value.shape[a] for a in axes):
        raise refuse(p, "over no elements")
    joined = _neighbours(value.shape, axes)
    if joined is None:
        others = [d for d in range(len(value.shape)) if d not in axes]
        return equation(
            p,
            tiles,
            f"tessellate::ReduceAnywhere<{op},{kind}>",
            [
                make_ipu_vertex_in_info("x", value),
                *_positions(firsts=_offsets(value.shape, others), terms=_offsets(value.shape, sorted(axes))),
            ],
            [make_ipu_vertex_out_info("out", made)],
        )
    outer, num, inner = joined
    popops = (
        named and kind in ("float", "half", "int", "unsigned int", "bool") and max(outer, num, inner) < _COUNT_LIMIT
    )
    if kind == "bool" and op not in ("and", "or"):
        popops = False
    if popops and inner == 1:
        return equation(
            p,
            tiles,
            f"popops::ContinuousReduce<popops::{named},{kind},{kind},false>",
            [make_ipu_vertex_in_info("partials", value)],
            [make_ipu_vertex_out_info("out", made)],
            numOutputsM1=outer - 1,
            numPartials=num,
        )
    if popops and outer == 1:
        return equation(
            p,
            tiles,
            f"popops::StridedReduce<popops::{named},{kind},{kind},false>",
            [make_ipu_vertex_in_info("partials", value)],
            [make_ipu_vertex_out_info("out", made)],
            numOutputsM1=inner - 1,
            numPartialsM1=num - 1,
            partialsWidth=inner,
        )
    return _along(p, tiles, f"tessellate::Reduce<{op},{kind}>", value, made, num=num, inner=inner)


def _neighbours(shape: Shape, axes: Sequence[int]) -> tuple[int, int, int] | None:
    """Elements outside of, along and inside of dimensions that are neighbours, but for those of one element."""
    wide = [a for a in axes if shape[a] != 1] or [axes[0]]
    between = [d for d in range(min(wide), max(wide)) if d not in wide and shape[d] != 1]
    return None if between else _around(shape, [min(wide), max(wide)])


def _along(p: Primitive, tiles: Any, vname: str, value: Any, made: Any, num: int, inner: int) -> IpuTileMapEquation:
    ends = [make_ipu_vertex_in_info("x", value)], [make_ipu_vertex_out_info("out", made)]
    return equation(p, tiles, vname, *ends, num=num, inner=inner)


_SCAN = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}


def _scan(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> IpuTileMapEquation:
    (value,) = inavals
    _, num, inner = _around(value.shape, [attributes["axis"] % len(value.shape)])
    turned = "true" if attributes["reverse"] else "false"
    name = f"tessellate::Scan<{_SCAN[p.name]},{kind_of(value)},{turned}>"
    return _along(p, tiles, name, value, value, num=num, inner=inner)


def _extremum(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> IpuTileMapEquation:
    (value,), (made,) = inavals, results_of(p, inavals, attributes)
    _, num, inner = _around(value.shape, [a % len(value.shape) for a in attributes["axes"]])
    name = f"tessellate::ArgExtremum<{p.name.removeprefix('arg')},{kind_of(value)},{kind_of(made)}>"
    return _along(p, tiles, name, value, made, num=num, inner=inner)


# --- products ---------------------------------------------------------------------------------------------------------


def _offsets(shape: Shape, dims: Sequence[int]) -> Any:
    """Offset of each index along some dimensions, the last one fastest."""
    strides = [int(np.prod(shape[d + 1 :], dtype=np.int64)) for d in range(len(shape))]
    found = np.zeros(1, np.int64)
    for d in dims:
        found = (found[:, None] + np.arange(shape[d]) * strides[d]).reshape(-1)
    return found


def _positions(**named: Any) -> list[IpuVertexIOInfo]:
    """Offsets of elements as constants of a vertex."""
    return [make_ipu_vertex_constant_info(n, np.asarray(v, np.uint32)) for n, v in named.items()]


UNITS = 16
"""Rows and columns of the right side that the matrix units hold at once. Source: machine reference §4.10, AMP."""
_LIMIT = 2**16


def _matrix_units(p: Primitive, tiles: Any, lhs: Any, rhs: Any, made: Any) -> IpuTileMapEquation:
    """Products of rows with 16 rows of 16, which the matrix units hold.

    The six work lists are positions: the first output in units of 8 bytes, their number less 3, the first input.
    """
    rows, kinds = lhs.shape[0], (kind_of(lhs), kind_of(made))
    begin = np.minimum(np.arange(7) * -(-rows // 6), rows)
    bytes_in, bytes_out = (UNITS * IpuType.of(a).bytes for a in (lhs, made))
    limited = max(rows * bytes_in, rows * bytes_out) // 8 < _LIMIT
    lists = np.stack([begin[:-1] * bytes_out // 8, np.diff(begin) - 3, begin[:-1] * bytes_in // 8], 1)
    words = lists.astype(np.uint16 if limited else np.uint32).reshape(-1)
    return equation(
        p,
        tiles,
        f"poplin::ConvPartial1x1Out<{kinds[0]},{kinds[1]},{str(limited).lower()},true,{UNITS},4,false>",
        [
            make_ipu_vertex_in_info("in", lhs, vertex_dim2=rows * UNITS),
            make_ipu_vertex_in_info("weights", rhs, vertex_dim2=UNITS * UNITS),
            make_ipu_vertex_constant_info("worklists", words),
        ],
        [make_ipu_vertex_out_info("out", made, vertex_dim2=rows * UNITS)],
        numConvGroupsM1=0,
        numOutGroupsM1=0,
        numInGroups=1,
        transformedInStride=1,
        outChansPerGroup=UNITS,
        inChansPerGroup=UNITS,
    )


def _dot(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> IpuTileMapEquation:
    (lhs, rhs), (made,) = inavals, results_of(p, inavals, attributes)
    ((along, across), (batch, others)) = attributes["dimension_numbers"]
    numbers = (tuple(along), tuple(across), tuple(batch))
    fits = (len(lhs.shape), rhs.shape, numbers) == (2, (UNITS, UNITS), ((1,), (1,), ()))
    if fits and kind_of(lhs) == kind_of(rhs) and {kind_of(lhs), kind_of(made)} <= {"float", "half"}:
        return _matrix_units(p, tiles, lhs, rhs, made)
    rows = [d for d in range(len(lhs.shape)) if d not in (*along, *batch)]
    columns = [d for d in range(len(rhs.shape)) if d not in (*across, *others)]
    # Rows of each sample, then columns of each: the vertex goes through all sums in the order of the result.
    left, right = _offsets(lhs.shape, [*batch, *rows]), _offsets(rhs.shape, [*others, *columns])
    terms, partners = _offsets(lhs.shape, along), _offsets(rhs.shape, across)
    num, steps = len(terms), [int(t[1] - t[0]) if len(t) > 1 else 1 for t in (terms, partners)]
    samples = max(1, int(np.prod([lhs.shape[d] for d in batch], dtype=np.int64)))
    counts = {"columns": len(right) // samples, "batch_rows": len(left) // samples}
    kinds = f"<{kind_of(lhs)},{kind_of(made)}>"
    ends = [make_ipu_vertex_in_info("lhs", lhs), make_ipu_vertex_in_info("rhs", rhs)]
    ends += _positions(left=left, right=right)
    out = [make_ipu_vertex_out_info("out", made)]
    if any(len(t) > 1 and (np.diff(t) != s).any() for t, s in zip((terms, partners), steps, strict=True)):
        ends += _positions(left_terms=terms, right_terms=partners)
        return equation(p, tiles, f"tessellate::DotAnywhere{kinds}", ends, out, **counts)
    return equation(
        p,
        tiles,
        f"tessellate::Dot{kinds}",
        ends,
        out,
        **counts,
        num=num,
        left_step=steps[0],
        right_step=steps[1],
    )


# --- orders of elements -----------------------------------------------------------------------------------------------


def _transpose(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> Any:
    (value,), (made,) = inavals, results_of(p, inavals, attributes)
    order = [d for d in attributes["permutation"] if value.shape[d] != 1]
    strides = {d: int(np.prod(value.shape[d + 1 :], dtype=np.int64)) for d in order}
    if order == sorted(order):
        return TileView()
    # Dimensions that stay beside each other are one.
    merged: list[list[int]] = []
    for d in order:
        last = merged[-1][-1] if merged else None
        if last is not None and last < d and all(value.shape[m] == 1 for m in range(last + 1, d)):
            merged[-1].append(d)
        else:
            merged.append([d])
    if len(merged) > 4:
        places = _positions(firsts=_offsets(value.shape, attributes["permutation"]), terms=[0])
        whole = f"tessellate::ReduceAnywhere<max,{kind_of(value)}>"  # of one element each
        ends = [make_ipu_vertex_in_info("x", value), *places]
        return equation(p, tiles, whole, ends, [make_ipu_vertex_out_info("out", made)])
    sizes = [1] * (4 - len(merged)) + [int(np.prod([value.shape[d] for d in group])) for group in merged]
    steps = [0] * (4 - len(merged)) + [strides[group[-1]] for group in merged]
    return equation(
        p,
        tiles,
        f"tessellate::Permute<{kind_of(value)}>",
        [make_ipu_vertex_in_info("x", value)],
        [make_ipu_vertex_out_info("out", made)],
        **{f"size{n}": sizes[n] for n in (1, 2, 3)},
        **{f"step{n}": steps[n] for n in range(4)},
    )


def _iota(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> IpuTileMapEquation:
    (made,), shape = results_of(p, (), attributes), tuple(attributes["shape"])
    _, num, inner = _around(shape, [attributes["dimension"] % len(shape)])
    out = [make_ipu_vertex_out_info("out", made)]
    return equation(p, tiles, f"tessellate::Iota<{kind_of(made)}>", [], out, num=num, inner=inner)


def _gather(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> IpuTileMapEquation:
    (table, indices), (made,) = inavals, results_of(p, inavals, attributes)
    numbers, width = attributes["dimension_numbers"], int(np.prod(table.shape[1:], dtype=np.int64))
    whole = tuple(attributes["slice_sizes"]) == (1, *table.shape[1:])
    first = tuple(numbers.start_index_map) == (0,) and tuple(numbers.collapsed_slice_dims) == (0,)
    behind = tuple(numbers.offset_dims) == tuple(range(len(made.shape) - len(table.shape) + 1, len(made.shape)))
    outside = _outside(attributes["mode"], "fill")
    if not (whole and first and behind) or numbers.operand_batching_dims or outside == "fill":
        filler = make_ipu_vertex_constant_info("filler", np.full(1, _filler(table, attributes), table.dtype))
        windows = _windows(
            table.shape,
            indices.shape,
            made.shape,
            sizes=attributes["slice_sizes"],
            inside=numbers.offset_dims,
            left_out=(*numbers.collapsed_slice_dims, *numbers.operand_batching_dims),
            indexed=numbers.start_index_map,
            batches=(numbers.operand_batching_dims, numbers.start_indices_batching_dims),
        )
        ends = [make_ipu_vertex_in_info("x", table), make_ipu_vertex_in_info("indices", indices), filler, *windows]
        name = f"tessellate::GatherWindows<{kind_of(table)},{outside}>"
        return equation(p, tiles, name, ends, [make_ipu_vertex_out_info("out", made)])
    return equation(
        p,
        tiles,
        f"popops::MultiSlice<{kind_of(table)}>",
        [make_ipu_vertex_in_info("baseT", table), make_ipu_vertex_in_info("offsets", indices)],
        [make_ipu_vertex_out_info("subT", made)],
        baseOffset=0,
        numBaseElements=table.shape[0],
        regionSize=width,
    )


def _outside(mode: Any, otherwise: str) -> str:
    """Template argument for windows outside of an array: ``otherwise`` where JAX fills or drops them, else ``clip``."""
    found = lax.GatherScatterMode.from_any(mode) if isinstance(mode, (str, type(None))) else mode
    return otherwise if found == lax.GatherScatterMode.FILL_OR_DROP else "clip"


def _filler(table: Any, attributes: Params) -> Any:
    """The number in place of what lies outside of an array, as JAX chooses it."""
    if attributes.get("fill_value") is not None:
        return attributes["fill_value"]
    kind = np.dtype(table.dtype)
    if kind.kind == "b":
        return True
    return np.nan if kind.kind not in "iu" else np.iinfo(kind).max if kind.kind == "u" else np.iinfo(kind).min


def _windows(
    shape: Shape,
    indices: Shape,
    result: Shape,
    *,
    sizes: Sequence[int],
    inside: Sequence[int],
    left_out: Sequence[int],
    indexed: Sequence[int],
    batches: tuple[Sequence[int], Sequence[int]],
) -> list[IpuVertexIOInfo]:
    """Fields of a vertex that reads or changes windows of an array.

    Args:
        shape: Shape of the array.
        indices: Shape of the indices, whose last dimension is that of one index.
        result: Shape of what is gathered, or of the updates.
        sizes: Extents of a window.
        inside: Dimensions of ``result`` within a window; the others are those of indices.
        left_out: Dimensions of the array that ``inside`` has none of.
        indexed: Dimension of the array that each number of an index is of.
        batches: Dimensions of the array, and those of indices, that go together.
    """
    strides = [int(np.prod(shape[d + 1 :], dtype=np.int64)) for d in range(len(shape))]
    kept = [d for d in range(len(shape)) if d not in left_out]
    offsets = np.zeros(1, np.int64)
    for d in kept:
        offsets = (offsets[:, None] + np.arange(sizes[d]) * strides[d]).reshape(-1)
    bases = np.zeros(indices[:-1], np.int64)
    for d, e in zip(*batches, strict=True):
        along = np.arange(indices[e]) * strides[d]
        bases += along.reshape([-1 if n == e else 1 for n in range(len(indices) - 1)])
    outer = [d for d in range(len(result)) if d not in inside]
    numbers = {
        "strides": np.array([strides[d] for d in indexed], np.int32),
        "limits": np.array([shape[d] - sizes[d] for d in indexed], np.int32),
    }
    return [
        *(make_ipu_vertex_constant_info(n, v) for n, v in numbers.items()),
        *_positions(offsets=offsets, bases=bases.reshape(-1)),
        *_positions(rows=_offsets(result, outer), columns=_offsets(result, inside)),
    ]


_SCATTER = {"scatter": None, "scatter-add": "ADD", "scatter_add": "ADD", "scatter-mul": "MUL", "scatter_mul": "MUL"} | {
    "scatter-max": "MAX",
    "scatter_max": "MAX",
    "scatter-min": "MIN",
    "scatter_min": "MIN",
    "scatter-sub": "SUB",
    "scatter_sub": "SUB",
}


def _scatter(p: Primitive, tiles: Any, inavals: Avals, attributes: Params) -> IpuTileMapEquation:
    table, indices, rows = inavals
    numbers, join = attributes["dimension_numbers"], _SCATTER[p.name]
    kind, width = kind_of(table), int(np.prod(table.shape[1:], dtype=np.int64))
    first = tuple(numbers.scatter_dims_to_operand_dims) == (0,) and tuple(numbers.inserted_window_dims) == (0,)
    behind = tuple(numbers.update_window_dims) == tuple(range(len(rows.shape) - len(table.shape) + 1, len(rows.shape)))
    outside = _outside(attributes["mode"], "drop")
    in_popops = join not in ("MIN", "SUB") and first and behind and not numbers.operand_batching_dims
    if (
        not in_popops
        or outside == "drop"
        or tuple(rows.shape[len(rows.shape) - len(table.shape) + 1 :]) != tuple(table.shape[1:])
    ):
        left_out = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
        extents = iter([rows.shape[d] for d in numbers.update_window_dims])
        sizes = [1 if d in left_out else next(extents) for d in range(len(table.shape))]
        windows = _windows(
            table.shape,
            indices.shape,
            rows.shape,
            sizes=sizes,
            inside=numbers.update_window_dims,
            left_out=left_out,
            indexed=numbers.scatter_dims_to_operand_dims,
            batches=(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims),
        )
        changed = make_ipu_vertex_inout_info("x", table)
        others = [make_ipu_vertex_in_info("indices", indices), make_ipu_vertex_in_info("updates", rows)]
        name = f"tessellate::ScatterWindows<{kind},{(join or 'set').lower()},{outside}>"
        return equation(p, tiles, name, [changed, *others, *windows], [changed])
    base = make_ipu_vertex_inout_info("baseT", table)
    inputs = [base, make_ipu_vertex_in_info("offsets", indices), make_ipu_vertex_in_info("subT", rows)]
    name = f"popops::MultiUpdate<{kind},false>"
    if join == "ADD":
        inputs.append(make_ipu_vertex_constant_info("scale", np.ones((), np.dtype(table.dtype))))
        name = f"popops::MultiUpdateAdd<{kind},{kind},false>"
    elif join is not None:
        name = f"popops::MultiUpdateOp<{kind},false,popops::Operation::{join}>"
    return equation(p, tiles, name, inputs, [base], baseOffset=0, numBaseElements=table.shape[0], regionSize=width)


def _host_scatter(function: Callable[..., Any]) -> Callable[..., Any]:
    def meaning(table: Any, indices: Any, rows: Any, *, dimension_numbers: Any, mode: Any, **_: Any) -> Any:
        return function(table, indices, rows, dimension_numbers, mode=mode)

    return meaning


# --- the table --------------------------------------------------------------------------------------------------------


def _register() -> None:
    _register_elements()
    sharded: dict[str, Any] = {"sharding": None}
    sums: dict[str, Any] = {"out_sharding": None}
    precise: dict[str, Any] = {"precision": None, "preferred_element_type": None, "out_sharding": None}
    indexed: dict[str, Any] = {"mode": lax.GatherScatterMode.PROMISE_IN_BOUNDS, "unique_indices": False}
    indexed |= {"indices_are_sorted": False}
    changed = {**indexed, "update_jaxpr": None, "update_consts": ()}
    table: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
        ("select_n", _select, {}),
        ("clamp", _clamp, {}),
        ("convert_element_type", _convert, {"weak_type": False, **sharded}),
        ("bitcast_convert_type", _view, {}),
        ("reshape", _view, {"dimensions": None, **sharded}),
        ("squeeze", _view, {}),
        ("integer_pow", _power, {}),
        ("dot_general", _dot, precise),
        ("transpose", _transpose, {}),
        ("iota", _iota, {"dimension": 0, **sharded}),
        ("gather", _gather, {**indexed, "fill_value": None}),
        ("argmax", _extremum, {"index_dtype": np.dtype(np.int32)}),
        ("argmin", _extremum, {"index_dtype": np.dtype(np.int32)}),
        *((name, _scan, {"axis": 0, "reverse": False}) for name in _SCAN),
        *((name, _reduce, sums if name == "reduce_sum" else {}) for name in _REDUCE),
    ]
    for name, translation, defaults in table:
        found = _primitive_of(name)
        if found is not None:
            register_ipu_tile_primitive(found, translation, defaults)
    for name in ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_max", "scatter_min"):
        register_ipu_tile_primitive(getattr(lax, f"{name}_p"), _scatter, changed, _host_scatter(getattr(lax, name)))


_register()
