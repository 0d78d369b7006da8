"""Windows of arrays where data says: gathers, scatters and dynamic slices.

JAX has one form for all indexing: a window of one size at each of many starts. Of an array, *batching* dimensions have
starts of their own for each index; along *points* windows begin where the starts say; the rest are whole, or cut at
zero. Here that is a table ``[groups, entries, columns]`` and numbers of its entries. A window of several entries is
several numbers::

    x[30000, 768] by indices [8, 128]: a table 1 x 30000 x 768 as it lies, 1024 numbers
    x[6, 50, 7] by take_along_axis(axis=1) of [6, 9, 1]: a table 6 x 50 x 7, numbers [6, 9]
    x[100, 100] in windows of 3 x 3 at [20, 2]: a table 1 x 10000 x 1, 180 numbers

One window alone is a dynamic slice, and starts that are known are slices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.expr import evaluate
from abele.expr.derivative import arg, substitute
from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.kernels.nest.ir import Const, Expr, apply, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.lookup import MOST_RUNS, EvenRun, even_runs, taken_runs
from abele.numerics import ElementType, bool_, f16, f32, i32

x, y, z = arg(0), arg(1), arg(2)

Label = tuple[str, int]
"""A dimension of values in windows: ``("index", d)`` is dimension d of the indices, ``("array", d)`` of the array."""


# --- starts -----------------------------------------------------------------------------------------------------------


def _mapped(net: BlockBuilder, expression: Expr, values: Sequence[Value], dtype: ElementType) -> Value:
    """An expression of numbers; computed here where all of them are known."""
    known = [net.contents(v) for v in values]
    if any(k is None for k in known):
        return build.map_(net, expression, values, dtype)
    arrays = [k for k in known if k is not None]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    return net.constant(np.broadcast_to(np.asarray(evaluate(expression, arrays)), shape), dtype)


def _written_out(net: BlockBuilder, value: Value) -> tuple[Expr, Value]:
    """Numbers as an expression of what they are computed from: ``i < 0 ? i + extent : i`` and the like of ``i``.

    What is made of them is then one map with that.
    """
    maker = net.makers.get(value)
    if maker is None or value.dtype != i32:
        return x, value
    if maker.kind in ("reshape", "expand"):
        expression, base = _written_out(net, maker.inputs[0])
        make = build.reshape if maker.kind == "reshape" else build.expand
        return (x, value) if base is maker.inputs[0] else (expression, make(net, base, value.shape))
    if maker.kind != "map":
        return x, value
    parts = [_of_map(net, v) for v in maker.inputs]
    base = parts[0][1]
    if base.dtype != i32 or base.shape != value.shape or any(b is not base for _, b in parts):
        return x, value
    return substitute(maker.attrs["expr"], lambda number: parts[number][0]), base


def _of_map(net: BlockBuilder, value: Value) -> tuple[Expr, Value]:
    """Like :func:`_written_out`, for what a map of numbers reads: its conditions as well."""
    maker = net.makers.get(value)
    if maker is None or maker.kind != "map" or len(maker.inputs) != 1:
        return x, value
    (base,) = maker.inputs
    return (maker.attrs["expr"], base) if base.dtype == i32 else (x, value)


def _components(net: BlockBuilder, indices: Value) -> list[Value]:
    """The indices of each dimension, i32, of the indices' shape but for the last dimension."""
    maker, count = net.makers.get(indices), indices.shape[-1]
    if (
        maker is not None
        and maker.kind == "concat"
        and maker.attrs["dim"] == indices.ndim - 1
        and len(maker.inputs) == count
    ):
        parts = list(maker.inputs)
    else:
        parts = [build.slice_(net, indices, -1, k, k + 1) for k in range(count)]
    return [build.reshape(net, _signed(net, part), indices.shape[:-1]) for part in parts]


def _signed(net: BlockBuilder, index: Value) -> Value:
    """Indices as i32; unsigned ones beyond that are as far out of range as it goes."""
    if index.dtype.kind == "uint" and index.dtype.bytes == 4:
        index = _mapped(net, apply("min", x, Const(2**31 - 1, index.dtype)), [index], index.dtype)
    known = net.contents(index)
    return build.cast(net, index, i32) if known is None else net.constant(known, i32)


def _counted(
    net: BlockBuilder, array: Value, parts: Mapping[int, Value], batching: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Dimensions of the array whose starts count up with one of the indices, as in ``x[arange(n), i]``, with that."""
    made = list[tuple[int, int]]()
    for dim, part in parts.items():
        known, extent = net.contents(part), array.shape[dim]
        for other in range(part.ndim) if known is not None and extent > 1 else ():
            shape = [extent if d == other else 1 for d in range(part.ndim)]
            free = part.shape[other] == extent and other not in {d for _, d in (*batching, *made)}
            if free and np.all(known == np.arange(extent).reshape(shape)):
                made.append((dim, other))
                break
    return made


@dataclass(frozen=True)
class Indexing:
    """Starts of windows of an array, and the numbers of what is in them.

    Attributes:
        net: The block.
        shape: Shape of the array.
        sizes: Extent of a window along each of its dimensions.
        batch: Dimensions of the array that go together with the first ones in ``lead``.
        points: Dimensions along which windows begin anywhere.
        columns: The other dimensions, of which windows have the first ``sizes``.
        lead: Dimensions of the indices.
        counts: Extent of each of them.
        starts: For each dimension with starts an expression of the values beside it, of the shape ``counts``.
        clips: True to move windows inside; else those that are not are left out.
    """

    net: BlockBuilder
    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    batch: tuple[int, ...]
    points: tuple[int, ...]
    columns: tuple[int, ...]
    lead: tuple[int, ...]
    counts: tuple[int, ...]
    starts: Mapping[int, tuple[Expr, Value]]
    clips: bool

    @staticmethod
    def of(
        net: BlockBuilder,
        array: Value,
        indices: Value,
        *,
        sizes: Sequence[int],
        starting: Sequence[int],
        batching: Sequence[tuple[int, int]],
        collapsed: Sequence[int],
        clips: bool,
    ) -> Indexing:
        """The windows that dimension numbers describe.

        Args:
            net: The block.
            array: The array; its last dimensions may be the words of keys.
            indices: Starts, [..., number of dimensions with starts].
            sizes: Extent of a window along each dimension of the array.
            starting: The dimension of the array of each start.
            batching: Dimensions of the array and of the indices that go together.
            collapsed: Dimensions of the array that windows do not have.
            clips: True to move windows inside; else those that are not are left out.
        """
        parts = dict(zip(starting, _components(net, indices), strict=True))
        if math.prod(sizes) == 1:
            counted = _counted(net, array, {d: v for d, v in parts.items() if d in collapsed}, batching)
            if len(batching) + len(counted) == indices.ndim - 1:
                batching = [*batching, *counted]
                parts = {d: v for d, v in parts.items() if d not in dict(counted)}
        paired = [d for _, d in batching]
        lead = (*paired, *(d for d in range(indices.ndim - 1) if d not in paired))
        starts: dict[int, tuple[Expr, Value]] = {}
        for dim, part in parts.items():
            expression, base = _written_out(net, part)
            starts[dim] = expression, build.permute(net, base, lead)
        batch = tuple(d for d, _ in batching)
        points = tuple(d for d in sorted(parts) if sizes[d] < array.shape[d])
        columns = tuple(d for d in range(array.ndim) if d not in (*batch, *points))
        counts = tuple(indices.shape[d] for d in lead)
        return Indexing(
            net=net,
            shape=array.shape,
            sizes=tuple(sizes),
            batch=batch,
            points=points,
            columns=columns,
            lead=lead,
            counts=counts,
            starts=starts,
            clips=clips,
        )

    # --- shapes ---------------------------------------------------------------------------------------------------

    @property
    def labels(self) -> list[Label]:
        """Dimensions of windows in the order in which tables have them."""
        return [*(("index", d) for d in self.lead), *(("array", d) for d in (*self.points, *self.columns))]

    @property
    def window_shape(self) -> tuple[int, ...]:
        """Extent of each dimension in ``labels``."""
        return (*self.counts, *(self.sizes[d] for d in (*self.points, *self.columns)))

    @property
    def groups(self) -> int:
        """Number of tables."""
        return math.prod(self.shape[d] for d in self.batch)

    @property
    def entries(self) -> int:
        """Entries of each table."""
        return math.prod(self.shape[d] for d in self.points)

    @property
    def width(self) -> int:
        """Columns of each table."""
        return math.prod(self.sizes[d] for d in self.columns)

    @property
    def alone(self) -> bool:
        """True for one window of the whole array."""
        return math.prod(self.counts) == 1 and self.groups == 1

    # --- numbers --------------------------------------------------------------------------------------------------

    def _limit(self, dim: int) -> int:
        return self.shape[dim] - self.sizes[dim]

    def _moved(self, dim: int, place: Expr) -> Expr:
        """The start nearest to one with which the window is inside."""
        return apply("max", apply("min", place, Const(self._limit(dim), i32)), Const(0, i32))

    def _inside(self, place: Callable[[int], Expr]) -> Expr | None:
        """The condition that windows are inside; None where all are, or are no matter."""
        if self.clips:
            return None
        condition: Expr | None = None
        for dim in self.starts:
            part = apply("and", place(dim) >= Const(0, i32), place(dim) <= Const(self._limit(dim), i32))
            condition = part if condition is None else apply("and", condition, part)
        return condition

    def _places(self, trailing: int = 0) -> tuple[Callable[[int], Expr], list[Value]]:
        """Starts of dimensions as expressions of operands, which have ``trailing`` further dimensions of one index."""
        dims = list(self.starts)
        values = [self.starts[d][1] for d in dims]
        shaped = [build.reshape(self.net, v, (*v.shape, *(1,) * trailing)) for v in values]
        return (lambda dim: substitute(self.starts[dim][0], lambda _: arg(dims.index(dim)))), shaped

    def inside(self) -> Value | None:
        """For each window whether it is inside, of shape ``counts``; None where all are known to be."""
        place, values = self._places()
        condition = self._inside(place)
        if condition is None:
            return None
        made = _mapped(self.net, condition, values, bool_)
        return None if self.net.scalar(made) is True else made

    def numbers(self) -> Value:
        """Numbers of the entries of all windows, i32 [groups, n] or [n]; −1 for those of windows outside."""
        net, trailing = self.net, len(self.points)
        place, values = self._places(trailing)
        number: Expr = Const(0, i32)
        for at, dim in enumerate(self.points):
            part = self._moved(dim, place(dim)) if self.clips else place(dim)
            if self.sizes[dim] > 1:
                extents = [1] * (len(self.counts) + trailing)
                extents[len(self.counts) + at] = self.sizes[dim]
                part = part + arg(len(values))
                values.append(net.constant(np.arange(self.sizes[dim]).reshape(extents), i32))
            number = part if at == 0 else number * Const(self.shape[dim], i32) + part
        condition = self._inside(place)
        # A start in a table's only dimension that is none of an entry is no number of one.
        if condition is not None and not (len(self.starts) == len(self.points) == 1 and self.entries_are_windows):
            number = select(condition, number, Const(-1, i32))
        shape = (*self.counts, *(self.sizes[d] for d in self.points))
        made = _mapped(net, number, values, i32) if values else build.full(net, 0, shape, i32)
        made = build.expand(net, made, shape)
        return build.reshape(net, made, (*self._several, made.size // max(1, self.groups)))

    @property
    def entries_are_windows(self) -> bool:
        """True if each window is one entry."""
        return all(self.sizes[d] == 1 for d in self.points)

    def corner(self, *, moved: bool = True) -> Value:
        """Of one window alone: where it begins along the points, moved inside or as it is given, i32 [points]."""
        net, made = self.net, list[Value]()
        for dim in self.points:
            expression, base = self.starts[dim]
            begin = _mapped(net, self._moved(dim, expression) if moved else expression, [base], i32)
            made.append(build.reshape(net, begin, (1,)))
        return _together(net, made)

    # --- arrays as tables -----------------------------------------------------------------------------------------

    def cut(self, array: Value) -> Value:
        """The array, of whose other dimensions than points there is what windows have."""
        for dim in self.columns:
            array = build.slice_(self.net, array, dim, 0, self.sizes[dim])
        return array

    @property
    def _order(self) -> list[int]:
        return [*self.batch, *self.points, *self.columns]

    def table(self, array: Value) -> Value:
        """The array as [groups, entries, columns], or without groups where there is one."""
        moved = build.permute(self.net, self.cut(array), self._order)
        return build.reshape(self.net, moved, (*self._several, self.entries, self.width))

    @property
    def _several(self) -> tuple[int, ...]:
        return (self.groups,) if self.groups != 1 else ()

    def back(self, table: Value, array: Value) -> Value:
        """``array`` with what windows may have of it replaced by a table."""
        net, like = self.net, self.cut(array).shape
        order = self._order
        moved = build.reshape(net, table, [like[d] for d in order])
        made = build.permute(net, moved, [order.index(d) for d in range(len(order))])
        for dim in reversed(self.columns):
            if made.shape[dim] < self.shape[dim]:
                beside = build.slice_(net, array, dim, self.sizes[dim], self.shape[dim])
                for other in self.columns:
                    if other < dim:
                        beside = build.slice_(net, beside, other, 0, self.sizes[other])
                made = build.concat(net, [made, beside], dim)
        return made

    def rows(self, windows: Value, labels: Sequence[Label]) -> Value:
        """Windows with dimensions as labelled as rows of tables, [groups, n, columns] or without groups."""
        own = [label for label in self.labels if label in labels]
        moved = build.permute(self.net, windows, [labels.index(label) for label in own])
        n = windows.size // max(1, self.groups * self.width)
        return build.reshape(self.net, moved, (*self._several, n, self.width))

    def windows(self, rows: Value, labels: Sequence[Label]) -> Value:
        """Rows of tables as windows with dimensions as labelled."""
        return self.labelled(build.reshape(self.net, rows, self.window_shape), self.labels, labels)

    def labelled(self, value: Value, have: Sequence[Label], labels: Sequence[Label]) -> Value:
        """Dimensions ``have`` as ``labels``, which lack some with one index."""
        kept = [d for d, label in enumerate(have) if label in labels]
        value = build.reshape(self.net, value, [value.shape[d] for d in kept])
        own = [have[d] for d in kept]
        return build.permute(self.net, value, [own.index(label) for label in labels])

    def one(self, window: Value, labels: Sequence[Label]) -> Value:
        """One window alone, in the dimensions of the array, with dimensions as labelled."""
        apart = build.reshape(self.net, window, (*self.counts, *window.shape))
        return self.labelled(apart, [*(("index", d) for d in self.lead), *self.array_labels], labels)

    def of_one(self, windows: Value, labels: Sequence[Label]) -> Value:
        """Windows with dimensions as labelled, of which there is one alone, in the dimensions of the array."""
        own = sorted((label for label in labels), key=lambda label: label)
        moved = build.permute(self.net, windows, [labels.index(label) for label in own])
        return build.reshape(self.net, moved, self.sizes)

    @property
    def rows_as_they_lie(self) -> bool:
        """True if the table is the array itself, with rows that are whole."""
        whole = all(self.sizes[d] == self.shape[d] for d in self.columns)
        return whole and not self.batch and self.points == tuple(range(len(self.points)))

    @property
    def array_labels(self) -> list[Label]:
        """Dimensions of one window alone, as the array has them."""
        return [("array", d) for d in range(len(self.shape))]


# --- gathers ----------------------------------------------------------------------------------------------------------


def _fill_of(call: PrimitiveCall, fill: Any) -> float:
    """Number that a gather has for windows outside."""
    if fill is not None:
        return float(fill)
    dtype = call.dtype
    if dtype.is_float:
        return math.nan
    if dtype == bool_:
        return 1.0
    limits = np.iinfo(dtype.np)
    return float(limits.min if dtype.kind == "int" else limits.max)


@primitive("gather")
def gather(
    call: PrimitiveCall,
    array: Value,
    indices: Value,
    *,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    mode: Any,
    fill_value: Any,
) -> Value:
    """Windows of an array at many starts."""
    net, numbers = call.net, dimension_numbers
    rank = len(slice_sizes)
    batching = list(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    # Outside of what is promised the result is what JAX has elsewhere: windows are moved inside.
    found = Indexing.of(
        net,
        array,
        indices,
        sizes=(*slice_sizes, *array.shape[rank:]),
        starting=numbers.start_index_map,
        batching=batching,
        collapsed=numbers.collapsed_slice_dims,
        clips=mode.name != "FILL_OR_DROP",
    )
    own = iter(d for d in range(rank) if d not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims))
    index = iter(range(indices.ndim - 1))
    labels: list[Label] = [
        ("array", next(own)) if d in numbers.offset_dims else ("index", next(index))
        for d in range(len(numbers.offset_dims) + indices.ndim - 1)
    ]
    labels += [("array", d) for d in range(rank, array.ndim)]
    made, inside = _taken(found, array, labels), found.inside()
    fill = _fill_of(call, fill_value) if inside is not None else 0.0
    if inside is None or (fill == 0 and not found.alone):
        return made
    shape = [call.shape[d] if label[0] == "index" else 1 for d, label in enumerate(labels)]
    shown = found.labelled(inside, [("index", d) for d in found.lead], [lb for lb in labels if lb[0] == "index"])
    return call.map(select(y, x, z), made, build.reshape(net, shown, shape), fill, masks={1})


def _taken(found: Indexing, array: Value, labels: Sequence[Label]) -> Value:
    """Windows of the array; of those outside anything, or zeros where there are several."""
    net = found.net
    if found.alone:
        return found.one(_window(found, found.cut(array)), labels)
    numbers = found.numbers()
    runs = _few_runs(net, numbers, found.entries) if len(found.points) == 1 and not found.batch else None
    if runs is None:
        look_up = build.look_up if numbers.ndim == 1 else build.look_up_groups
        return found.windows(look_up(net, found.table(array), numbers), labels)
    (dim,) = found.points
    taken = taken_runs(net, found.cut(array), dim, runs)
    apart = build.reshape(net, taken, (*taken.shape[:dim], *found.counts, found.sizes[dim], *taken.shape[dim + 1 :]))
    have = found.array_labels
    have[dim:dim] = [("index", d) for d in found.lead]
    return found.labelled(apart, have, labels)


def _few_runs(net: BlockBuilder, numbers: Value, entries: int) -> list[EvenRun] | None:
    """Known numbers, the same for all groups, as a few runs; None where they are not that."""
    known = _same_for_all(net.contents(numbers))
    if known is None or not known.size or known.min() < 0 or known.max() >= entries:
        return None
    runs = list(islice(even_runs(known.tolist(), far_pairs=False), MOST_RUNS + 1))
    return runs if len(runs) <= MOST_RUNS else None


def _same_for_all(known: Array | None) -> Array | None:
    """Known numbers of one group, where all groups have the same."""
    if known is None or known.ndim == 1:
        return known
    return known[0] if len(known) and (known == known[:1]).all() else None


def _window(found: Indexing, array: Value) -> Value:
    """The one window of an array that is cut to it elsewhere."""
    net, starts = found.net, found.corner()
    return _sliced(net, array, found.points, starts, [found.sizes[d] for d in found.points])


def _sliced(net: BlockBuilder, array: Value, dims: Sequence[int], starts: Value, sizes: Sequence[int]) -> Value:
    """A window of ``sizes`` along ``dims`` at ``starts``, which is inside."""
    known = net.contents(starts)
    if known is None:
        return build.read_window(net, array, starts, dims, sizes)
    for dim, begin, size in zip(dims, known.tolist(), sizes, strict=True):
        array = build.slice_(net, array, dim, begin, begin + size)
    return array


def _replaced(net: BlockBuilder, array: Value, window: Value, dims: Sequence[int], starts: Value) -> Value:
    """The array with a window along ``dims`` at ``starts`` replaced by another."""
    known = net.contents(starts)
    if known is None:
        return build.write_window(net, array, window, starts, dims)
    if not dims:
        return window
    (dim, *others), begin = dims, int(known[0])
    end, extent = begin + window.shape[dim], array.shape[dim]
    inner = build.slice_(net, array, dim, begin, end)
    inner = _replaced(net, inner, window, others, net.constant(known[1:], i32))
    around = [build.slice_(net, array, dim, *ends) for ends in ((0, begin), (end, extent))]
    return build.concat(net, [v for v in (around[0], inner, around[1]) if v.shape[dim]], dim)


# --- scatters ---------------------------------------------------------------------------------------------------------

_JOINS: dict[str, Expr] = {
    "set": y,
    "add": x + y,
    "mul": x * y,
    "max": apply("max", x, y),
    "min": apply("min", x, y),
}
"""The element that an element of an array and one of an update become."""
_OF_BOOLS = {"add": apply("or", x, y), "mul": apply("and", x, y), "max": apply("or", x, y), "min": apply("and", x, y)}


def _scattered(call: PrimitiveCall, array: Value, indices: Value, updates: Value, operation: str) -> Value:
    net, found, labels = call.net, *_of_scatter(call, array, indices)
    if not updates.size:
        return array
    if found.alone:
        return _alone(call, found, array, updates, labels, operation)
    numbers, rows = found.numbers(), found.rows(updates, labels)
    known = _known_entries(found, array, numbers, rows, operation)
    if known is not None:
        return known
    if operation == "add" and net.scalar(array) == 0 and found.rows_as_they_lie and array.dtype in (f16, f32):
        # The gradient of what rows were looked up in lies as that does.
        return found.back(build.add_rows(net, rows, numbers, found.entries), array)
    return found.back(build.join_rows(net, found.table(array), rows, numbers, operation), array)


def _of_scatter(call: PrimitiveCall, array: Value, indices: Value) -> tuple[Indexing, list[Label]]:
    """Windows of a scatter, and the labels of the dimensions of its updates."""
    numbers, updates = call.params["dimension_numbers"], call.avals[2].shape
    rank = len(call.avals[0].shape)
    gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    own = [d for d in range(rank) if d not in gone]
    sizes = [1] * rank
    for dim, place in zip(own, numbers.update_window_dims, strict=True):
        sizes[dim] = updates[place]
    index, window = iter(range(indices.ndim - 1)), iter(own)
    labels: list[Label] = [
        ("array", next(window)) if d in numbers.update_window_dims else ("index", next(index))
        for d in range(len(updates))
    ]
    labels += [("array", d) for d in range(rank, array.ndim)]
    found = Indexing.of(
        call.net,
        array,
        indices,
        sizes=(*sizes, *array.shape[rank:]),
        starting=numbers.scatter_dims_to_operand_dims,
        batching=list(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)),
        collapsed=numbers.inserted_window_dims,
        clips=call.params["mode"].name == "CLIP",
    )
    return found, labels


def _alone(
    call: PrimitiveCall, found: Indexing, array: Value, updates: Value, labels: Sequence[Label], operation: str
) -> Value:
    """The array with its one window joined with an update."""
    net, inside = call.net, found.inside()
    # A window of one index lies inside or outside as a whole, where nothing is written.
    drops = operation == "set" and found.entries_are_windows and len(found.starts) == len(found.points)
    if drops and inside is not None and net.contents(inside) is None:
        inside, starts = None, found.corner(moved=False)
    else:
        starts = found.corner()
    dims = [*found.points, *(d for d in found.columns if found.sizes[d] < array.shape[d])]
    if len(dims) > len(found.points):
        starts = build.concat(net, [starts, build.full(net, 0, (len(dims) - len(found.points),), i32)], 0)
    window = found.of_one(updates, labels)
    if operation == "set" and inside is None:
        return _replaced(net, array, window, dims, starts)
    before = _sliced(net, array, dims, starts, [found.sizes[d] for d in dims])
    join = _OF_BOOLS.get(operation, y) if array.dtype == bool_ else _JOINS[operation]
    if inside is None:
        return _replaced(net, array, call.map(join, before, window), dims, starts)
    shown = build.reshape(net, inside, ())
    return _replaced(net, array, call.map(select(z, join, x), before, window, shown, masks={2}), dims, starts)


def _known_entries(found: Indexing, array: Value, numbers: Value, rows: Value, operation: str) -> Value | None:
    """The array, where a few runs of it are set or added to at known numbers: entries and rows laid side by side."""
    net, known = found.net, _same_for_all(found.net.contents(numbers))
    if known is None or operation not in ("set", "add"):
        return None
    there = (known >= 0) & (known < found.entries)
    places = known[there]
    if len(set(places.tolist())) < len(places):
        return None
    source = np.arange(found.entries)
    source[places] = found.entries + np.flatnonzero(there)
    runs = list(islice(even_runs(source.tolist(), far_pairs=False), MOST_RUNS + 1))
    if len(runs) > MOST_RUNS:
        return None
    table = found.table(array)
    dim = table.ndim - 2
    if operation == "set" or net.scalar(array) == 0:
        return found.back(taken_runs(net, build.concat(net, [table, rows], dim), dim, runs), array)
    zeros = build.full(net, 0, table.shape, table.dtype)
    added = taken_runs(net, build.concat(net, [zeros, rows], dim), dim, runs)
    either = apply("or", x, y) if table.dtype == bool_ else x + y
    return found.back(build.map_(net, either, [table, added]), array)


def _register(name: str, operation: str) -> None:
    @primitive(name)
    def scattered(call: PrimitiveCall, array: Value, indices: Value, updates: Value) -> Value:
        return _scattered(call, array, indices, updates, operation)


for _name in ("add", "mul", "min", "max"):
    _register(f"scatter-{_name}", _name)


@primitive("scatter-sub")
def scatter_sub(call: PrimitiveCall, array: Value, indices: Value, updates: Value) -> Value:
    """The array, less updates at many starts."""
    return _scattered(call, array, indices, build.map_(call.net, -x, [updates]), "add")


@primitive("scatter")
def scatter(
    call: PrimitiveCall,
    array: Value,
    indices: Value,
    updates: Value,
    *,
    update_jaxpr: Any,
    update_consts: Sequence[Any],
    unique_indices: bool,
) -> Value:
    """The array with windows at many starts set, or with a function of their own elements."""
    if update_jaxpr is None:
        return _scattered(call, array, indices, updates, "set")
    net, found, labels = call.net, *_of_scatter(call, array, indices)
    if not updates.size:
        return array

    def applied(net: BlockBuilder, value: Value) -> Value:
        return call.reader.of_elements(net, update_jaxpr, update_consts, [value, value])[0]

    if found.alone or unique_indices:
        before = _taken(found, array, labels)
        return _scattered(call, array, indices, applied(net, before), "set")
    # An element that several windows have is computed that often: in turns, in each of which some are left.
    table, numbers = found.table(array), found.numbers()
    times = build.full(net, 1, (*numbers.shape, found.width), i32)
    zeros = build.full(net, 0, table.shape, i32)
    left = build.join_rows(net, zeros, times, numbers, "add")

    def waits(region: BlockBuilder, table: Value, left: Value) -> Value:
        most = build.reduce(region, left, range(left.ndim), "max")
        return build.map_(region, x > 0, [most], bool_)

    def turn(region: BlockBuilder, trip: Value, table: Value, left: Value) -> list[Value]:
        made = build.map_(region, select(z > 0, y, x), [table, applied(region, table), left])
        return [made, build.map_(region, x - 1, [left])]

    return found.back(build.while_(net, [table, left], waits, turn)[0], array)


# --- dynamic slices ---------------------------------------------------------------------------------------------------


def _clamped(
    call: PrimitiveCall, array: Value, sizes: Sequence[int], starts: Sequence[Value]
) -> tuple[list[int], Value]:
    """Dimensions in which a window of ``sizes`` has room, and its starts along them, moved inside."""
    net = call.net
    dims = [d for d, size in enumerate(sizes) if size < array.shape[d]]
    parts = []
    for dim in dims:
        expression, base = _written_out(net, _signed(net, starts[dim]))
        limit = Const(array.shape[dim] - sizes[dim], i32)
        moved = apply("max", apply("min", expression, limit), Const(0, i32))
        parts.append(build.reshape(net, _mapped(net, moved, [base], i32), (1,)))
    return dims, _together(net, parts)


def _together(net: BlockBuilder, numbers: Sequence[Value]) -> Value:
    """Numbers of one element after each other, i32 [n]."""
    known = [net.contents(n) for n in numbers]
    if all(k is not None for k in known):
        return net.constant(np.array([int(k.flat[0]) for k in known if k is not None], np.int32), i32)
    return build.concat(net, numbers, 0)


@primitive("dynamic_slice")
def dynamic_slice(call: PrimitiveCall, array: Value, *starts: Value, slice_sizes: Sequence[int]) -> Value:
    """One window of the array."""
    dims, at = _clamped(call, array, slice_sizes, starts)
    return _sliced(call.net, array, dims, at, [slice_sizes[d] for d in dims])


@primitive("dynamic_update_slice")
def dynamic_update_slice(call: PrimitiveCall, array: Value, update: Value, *starts: Value) -> Value:
    """The array with one window replaced."""
    if not update.size:
        return array
    dims, at = _clamped(call, array, call.avals[1].shape, starts)
    return _replaced(call.net, array, update, dims, at)
