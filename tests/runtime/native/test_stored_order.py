"""The order in which the host stores tables: the same values, seen through any view, by everyone who may look."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.graph import Copy, Graph, Sequence, Tensor
from abele.kernels.nest.copy_kernel import copy_kernel
from abele.machine import systems
from abele.numerics import f32, i32
from abele.poplibs import popops
from abele.poplibs.popops.slicing import embedding
from abele.runtime import Engine
from abele.runtime.native.stored_order import order_like, order_of_view, row_operands, view_in_order

ROWS, WIDTH, NUM = 96, 24, 40
PARTS = {"unslicedDimSplit": 12}
"""Pieces of two columns: eight bytes of a row lie together."""


@st.composite
def _views(draw: st.DrawFn) -> tuple[tuple[int, ...], Tensor]:
    """A shape, and a view of a variable of it."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    view = Graph(systems.get("bow")).variable(f32, shape, name="x")
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["transpose", "slice", "reshape", "reverse"]))
        dim = draw(st.integers(0, view.ndim - 1))
        if kind == "transpose":
            view = view.transpose(draw(st.permutations(range(view.ndim))))
        elif kind == "slice":
            begin = draw(st.integers(0, view.shape[dim] - 1))
            view = view[
                tuple(
                    slice(begin, None, draw(st.integers(1, 2))) if d == dim else slice(None) for d in range(view.ndim)
                )
            ]
        elif kind == "reverse":
            view = view[tuple(slice(None, None, -1) if d == dim else slice(None) for d in range(view.ndim))]
        else:
            view = view.flatten() if draw(st.booleans()) else view.expand_dims(dim)
    return shape, view


@given(_views(), st.data())
def test_view_in_order__any_view_in_any_order__shows_the_same_elements(
    made: tuple[tuple[int, ...], Tensor], data: st.DataObject
) -> None:
    shape, view = made
    strided = view.strided()
    if strided is None:
        return
    order = data.draw(st.sampled_from(list(permutations(range(len(shape))))))
    elements = np.arange(np.prod(shape), dtype=np.float32)
    found = view_in_order(strided.variable, order, strided.factors, strided.offset)
    if found is None:
        return
    stored = np.ascontiguousarray(elements.reshape(shape).transpose(order)).reshape(-1)
    factors, offset = found
    pairs = [pair for along in factors for pair in along]
    shown = np.lib.stride_tricks.as_strided(stored[offset:], [n for n, _ in pairs], [4 * s for _, s in pairs])
    np.testing.assert_array_equal(shown.reshape(-1), strided.of(elements).reshape(-1))


def test_view_in_order__number_shown_many_times__needs_no_dim() -> None:
    x = Graph(systems.get("bow")).variable(f32, (), name="x")
    assert view_in_order(x, (), (((3, 0),), ((1, 1),)), 0) == ((((3, 0),), ((1, 0),)), 0)


def test_view_in_order__run_past_the_end_of_a_dim__is_split_or_refused() -> None:
    x = Graph(systems.get("bow")).variable(f32, (4, 6), name="x")
    assert view_in_order(x, (1, 0), (((24, 1),),), 0) == ((((4, 1), (6, 4)),), 0)
    # Half of a row, on past its end: no number of steps along each dim.
    assert view_in_order(x, (1, 0), (((6, 1),),), 3) is None
    assert view_in_order(x, (1, 0), (((5, 4),),), 0) is None


def test_order_of_view__blocked_table__has_rows_before_parts() -> None:
    x = Graph(systems.get("bow")).variable(f32, (1, 12, 96, 2), name="x")
    strided = x.transpose((0, 2, 1, 3)).reshape((1, 96, 24)).strided()
    assert strided is not None
    assert order_of_view(strided.variable, strided.factors, strided.offset) == (0, 2, 1, 3)
    part = x[:, 2:].strided()
    assert part is not None
    assert order_of_view(part.variable, part.factors, part.offset) is None


def test_order_of_view__rows_of_several_dims__has_rows_first() -> None:
    x = Graph(systems.get("bow")).variable(f32, (1, 12, 96, 2), name="x")
    strided = x.transpose((0, 2, 1, 3)).reshape((96, 4, 6)).strided()
    assert strided is not None
    assert order_of_view(strided.variable, strided.factors, strided.offset) == (0, 2, 1, 3)
    # The parts in another order than the variable has them are no dim of it.
    turned = x.transpose((0, 2, 1, 3)).reshape((96, 4, 3, 2)).transpose((0, 2, 1, 3)).strided()
    assert turned is not None
    assert order_of_view(turned.variable, turned.factors, turned.offset) is None


def _elements_as_stored(shape: tuple[int, ...], order: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).transpose(order).reshape(-1)


@pytest.mark.parametrize(
    ("shape", "order", "other"),
    [
        ((1, 12, 96, 2), (0, 2, 1, 3), (12, 96, 2)),
        ((1, 12, 96, 2), (0, 2, 1, 3), (12, 96, 1, 2)),
        ((12, 96), (1, 0), (3, 4, 96)),
        ((3, 4, 96), (2, 0, 1), (12, 96)),
    ],
)
def test_order_like__other_shape__puts_each_element_where_the_first_has_it(
    shape: tuple[int, ...], order: tuple[int, ...], other: tuple[int, ...]
) -> None:
    found = order_like(Graph(systems.get("bow")).variable(f32, shape, name="x"), order, other)
    assert found is not None
    np.testing.assert_array_equal(_elements_as_stored(other, found), _elements_as_stored(shape, order))


def test_order_like__dims_joined_that_the_order_parts__is_none() -> None:
    x = Graph(systems.get("bow")).variable(f32, (3, 4, 5), name="x")
    assert order_like(x, (1, 0, 2), (12, 5)) is None


def test_row_operands__copy__has_none() -> None:
    assert not list(row_operands(copy_kernel((4,), i32)))


class _Table:
    """A table in narrow parts of columns, its rows looked up by what a stream brings, and updated."""

    def __init__(self, *, update: bool = False, from_stream: bool = False, look: bool = False) -> None:
        self.graph, self.program = Graph(systems.get("bow")), Sequence()
        plan = embedding.plan(self.graph, f32, ROWS, WIDTH, NUM, options={"planConstraints": PARTS})
        self.table = popops.create_sliceable_tensor(self.graph, f32, (ROWS, WIDTH), [0], [1], plan, name="table")
        numbers = self.graph.variable(i32, (NUM,), name="numbers").map_linear()
        self.program.add(Copy(self.graph.host_stream_in("numbers", i32, (NUM,)), numbers))
        if from_stream:
            self.program.add(Copy(self.graph.host_stream_in("table", f32, (ROWS, WIDTH)), self.table))
        rows = popops.multi_slice(self.graph, self.table, numbers, [0], [1], self.program, plan)
        self.program.add(Copy(rows.reshape((NUM, WIDTH)), self.graph.host_stream_out("rows", f32, (NUM, WIDTH))))
        if update:
            popops.mul_in_place(self.graph, self.table, 2.0, self.program)
        if look:
            popops.add_in_place(self.graph, self.table.flatten()[5:95], 1.0, self.program)

    def run(self, values: np.ndarray, numbers: np.ndarray, **options: object) -> tuple[np.ndarray, Engine]:
        engine = Engine(self.graph, self.program, keep=[], **options)  # type: ignore[arg-type]
        out = np.zeros((NUM, WIDTH), np.float32)
        engine.connect("numbers", numbers)
        engine.connect("rows", out)
        if "table" in self.graph.streams:
            engine.connect("table", values)
        else:
            engine[self.table] = values
        engine.run()
        return out, engine


VALUES = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
NUMBERS = np.random.default_rng(1).integers(0, ROWS, NUM).astype(np.int32)


def test_table__momentum_of_another_shape_from_zero__lies_as_the_table_does() -> None:
    made = _Table()
    momentum = made.graph.variable(f32, (12, ROWS, 2), "momentum").map_linear()
    seen = momentum.transpose((1, 0, 2)).reshape((ROWS, WIDTH))
    made.graph.initialise(seen, 0.5)
    popops.add_in_place(made.graph, seen, made.table, made.program)
    _, engine = made.run(VALUES, NUMBERS)
    stored = engine.deployment.image.arena.array(momentum.variables[0])
    assert stored.transpose((1, 0, 2)).flags.c_contiguous
    np.testing.assert_array_equal(engine[seen], VALUES + np.float32(0.5))


def test_table__rows_in_pieces__is_stored_in_rows() -> None:
    made = _Table()
    out, engine = made.run(VALUES, NUMBERS)
    stored = engine.deployment.image.arena.array(made.table.variables[0])
    np.testing.assert_array_equal(out, VALUES[NUMBERS])
    np.testing.assert_array_equal(engine[made.table], VALUES)
    # The view of rows is what lies in memory one after the other.
    assert stored.transpose((0, 2, 1, 3)).flags.c_contiguous
    engine[made.table[3:5, 1:7]] = 7.0
    expected = VALUES.copy()
    expected[3:5, 1:7] = 7.0
    np.testing.assert_array_equal(engine[made.table], expected)


@pytest.mark.parametrize("options", [{"mode": "tiles"}, {"checks": "uninitialised"}, {"checks": "nan"}])
def test_table__seen_by_vertices_or_checks__lies_as_the_graph_says(options: dict[str, object]) -> None:
    made = _Table()
    out, engine = made.run(VALUES, NUMBERS, **options)
    assert engine.deployment.image.arena.array(made.table.variables[0]).flags.c_contiguous
    np.testing.assert_array_equal(out, VALUES[NUMBERS])


def test_table__changed_in_runs__keeps_its_values_from_run_to_run() -> None:
    made = _Table(update=True)
    out, engine = made.run(VALUES, NUMBERS)
    np.testing.assert_array_equal(engine[made.table], 2 * VALUES)
    engine.run()
    np.testing.assert_array_equal(out, 2 * VALUES[NUMBERS])
    np.testing.assert_array_equal(engine[made.table], 4 * VALUES)


def test_table__view_without_a_form_in_rows__is_stored_as_it_is() -> None:
    made = _Table(look=True)
    out, engine = made.run(VALUES, NUMBERS)
    expected = VALUES.copy().reshape(-1)
    expected[5:95] += 1.0
    np.testing.assert_array_equal(out, VALUES[NUMBERS])
    np.testing.assert_array_equal(engine[made.table].reshape(-1), expected)


def test_table__from_a_stream__is_looked_up_where_the_host_has_it() -> None:
    made = _Table(from_stream=True)
    out, engine = made.run(VALUES, NUMBERS)
    np.testing.assert_array_equal(out, VALUES[NUMBERS])
    with engine.profiling():
        engine.run()
    # Nothing stores a copy of the table.
    assert sum(engine.profile().leaves["written_bytes"]) < VALUES.nbytes


def test_table__debugged__is_handed_over_in_the_order_of_the_graph() -> None:
    made = _Table()
    _, engine = made.run(VALUES, NUMBERS)
    debugger = engine.debug()
    np.testing.assert_array_equal(debugger.read(made.table), VALUES)
    debugger.close()
