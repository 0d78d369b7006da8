"""Vertices side by side, run row by row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import abele as ab
from abele.codelet import InOut, Input, MultiVertex, Output, Vector, Vertex, codelet, compile_codelet
from abele.codelet.row_order import MOST_BYTES, ByRows, RowLoop, most_beside
from abele.codelet.sizes import UNKNOWN, Size, Sizes
from abele.codelet.tables import build_tables
from abele.codelet.workers import as_one
from abele.numerics import f32, i32
from support.examples import examples


@codelet
class Ranges(MultiVertex):
    """Sums of a cell and those above and below, in a range of rows per worker."""

    x: Vector[Input[Vector[i32]]]
    y: Vector[Output[Vector[i32]]]
    k: i32

    def compute(self, worker_id):
        height = len(self.y)
        twice = 2 * self.k
        for r in range(worker_id * height // 6, (worker_id + 1) * height // 6):
            y = self.y[r]
            for c in range(len(y)):
                y[c] = self.x[r][c] + twice * self.x[r + 1][c + 1] + self.x[r + 2][c + 2] + worker_id


@codelet
class Alternate(MultiVertex):
    """The same, with a row of every six per worker."""

    x: Vector[Input[Vector[i32]]]
    y: Vector[Output[Vector[i32]]]
    k: i32

    def compute(self, worker_id):
        for r in range(worker_id, len(self.y), self.num_workers):
            for c in range(len(self.y[r])):
                self.y[r][c] = self.x[r][c] + 2 * self.k * self.x[r + 1][c + 1] + self.x[r + 2][c + 2]


@codelet
class Alone(Vertex):
    """The same, without workers, in a helper."""

    x: Vector[Input[Vector[i32]]]
    y: Vector[Output[Vector[i32]]]
    k: i32

    def compute(self):
        for r in range(len(self.y)):
            self.row(r)

    def row(self, r):
        for c in range(len(self.y[r])):
            self.y[r][c] = self.x[r][c] + 2 * self.k * self.x[r + 1][c + 1] + self.x[r + 2][c + 2]


@codelet
class Running(Vertex):
    """Rows that add up: each needs the one before."""

    y: Vector[InOut[Vector[f32]]]

    def compute(self):
        for r in range(len(self.y) - 1):
            for c in range(len(self.y[r])):
                self.y[r + 1][c] += self.y[r][c]


@codelet
class Carried(Vertex):
    """A variable that goes from row to row."""

    y: Vector[Output[Vector[i32]]]

    def compute(self):
        cells = 0
        for r in range(len(self.y)):
            for c in range(len(self.y[r])):
                cells = cells + 1
                self.y[r][c] = cells


@codelet
class Own(Vertex):
    """As many rows as the vertex says."""

    y: Vector[Output[Vector[i32]]]
    n: i32

    def compute(self):
        for r in range(self.n):
            for c in range(len(self.y[r])):
                self.y[r][c] = r


@codelet
class Columns(Vertex):
    """A loop over elements, not over rows."""

    y: Vector[Output[Vector[i32]]]

    def compute(self):
        for c in range(len(self.y)):
            self.y[c][0] = c


@codelet
class Twice(Vertex):
    """A loop variable that has a value before."""

    y: Vector[Output[Vector[i32]]]

    def compute(self):
        r = 1
        for r in range(len(self.y)):
            for c in range(len(self.y[r])):
                self.y[r][c] = r


@codelet
class Counts(Vertex):
    """State that every row changes."""

    y: Vector[Output[Vector[i32]]]
    n: i32

    def compute(self):
        before = self.n
        for r in range(len(self.y)):
            for c in range(len(self.y[r])):
                self.y[r][c] = before
            self.n = self.n + 1


def sizes(rows, width):
    return Sizes.of([Size("x", rows + 2, width + 2), Size("y", rows, width)])


def by_rows(vertex, known):
    tree = compile_codelet(vertex.codelet).tree
    together = as_one(tree) if issubclass(vertex, MultiVertex) else None
    return ByRows.of(vertex.codelet.fields, together or tree, known)


@pytest.mark.parametrize("vertex", [Ranges, Alternate, Alone, Running])
def test_by_rows__rows_of_common_bounds__are_found(vertex):
    found = by_rows(vertex, sizes(4, 90))
    assert (found.results.name, found.row_length, found.loop.step) == ("y", 90, 1)
    assert by_rows(vertex, UNKNOWN) is None


def test_by_rows__short_rows__are_asked_for_ahead_instead():
    assert by_rows(Alone, sizes(4, 30)) is None


@pytest.mark.parametrize("vertex", [Carried, Own, Columns, Twice, Counts])
def test_by_rows__what_a_vertex_does_by_itself__is_left_alone(vertex):
    assert by_rows(vertex, sizes(4, 90)) is None


def test_most_beside__rows_of_a_stencil__fit_a_cache():
    fields = Ranges.codelet.fields
    each = (6 * 102 + 4 * 100) * 4 // 4
    assert most_beside(fields, sizes(4, 100)) == MOST_BYTES // each
    assert by_rows(Ranges, sizes(4, 1 << 15)) is None


def test_row_loop__bounds_of_a_worker__are_functions():
    loop = RowLoop.of(compile_codelet(Ranges.codelet).tree, sizes(8, 30))
    assert loop.row.parameters == ("worker_id", "r")
    assert loop.start.parameters == loop.stop.parameters == ("worker_id",)


@examples(5)
@given(
    vertex=st.sampled_from([Ranges, Alternate, Alone]),
    down=st.integers(1, 3),
    across=st.integers(1, 4),
    shape=st.sampled_from([(1, 64), (5, 75), (9, 100)]),
    gap=st.sampled_from([0, 3, 40]),
    order=st.randoms(use_true_random=False),
    share=st.floats(0, 1),
)
def test_codelet__blocks_of_a_grid__as_numpy(vertex, down, across, shape, gap, order, share):
    # Blocks with results side by side, a few elements apart or far apart; in any order; in two calls.
    (height, width), step = shape, shape[1] + gap
    x = np.random.default_rng(down).integers(-99, 99, (down * height + 2, across * step + 2)).astype(np.int32)
    y = np.zeros((down * height, across * step), np.int32)
    blocks = [(i * height, j * step) for i in range(down) for j in range(across)]
    if order.random() < 0.5:
        order.shuffle(blocks)
    vertices = [
        {
            "x": list(x[i : i + height + 2, j : j + width + 2]),
            "y": list(y[i : i + height, j : j + width]),
            "k": np.int32(n % 5),
        }
        for n, (i, j) in enumerate(blocks)
    ]
    tables = build_tables(vertex.codelet, vertices)
    code, cut = compile_codelet(vertex.codelet).run_sized(sizes(height, width)), round(share * len(blocks))
    tables.run(code, 0, cut)
    tables.run(code, cut)
    rows = np.arange(height)
    worker = np.searchsorted(np.arange(1, 6) * height // 6, rows, side="right") if vertex is Ranges else 0 * rows
    wanted = np.zeros_like(y)
    for n, (i, j) in enumerate(blocks):
        part = x[i : i + height + 2, j : j + width + 2]
        total = part[:-2, :-2] + 2 * (n % 5) * part[1:-1, 1:-1] + part[2:, 2:]
        wanted[i : i + height, j : j + width] = total + worker[:, None]
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("vertex", [Running, Counts])
def test_codelet__rows_that_need_one_another__as_numpy(vertex):
    y = np.random.default_rng(0).integers(0, 9, (8, 192)).astype(np.float32 if vertex is Running else np.int32)
    wanted = np.cumsum(y.reshape(2, 4, 192), axis=1).reshape(y.shape) if vertex is Running else np.full_like(y, 5)
    parts = [list(y[i : i + 4, j : j + 64]) for i in (0, 4) for j in (0, 64, 128)]
    state = {} if vertex is Running else {"n": np.int32(5)}
    tables = build_tables(vertex.codelet, [{"y": rows, **state} for rows in parts])
    tables.run(compile_codelet(vertex.codelet).run_sized(sizes(4, 64)))
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_engine__blocks_of_a_grid__are_the_same_on_any_number_of_threads(threads):
    down, across, height, width = 8, 5, 7, 80
    shape = (down * height, across * width)
    graph = ab.Graph("bow")
    x, y = (
        graph.variable(i32, (shape[0] + 2, shape[1] + 2), "x").map_linear(),
        graph.variable(i32, shape, "y").map_linear(),
    )
    corners = [(i * height, j * width) for i in range(down) for j in range(across)]
    step = graph.compute_set("sums")
    step.vertices(
        Alternate,
        tile=np.arange(len(corners)),
        x=[[x[i + r, j : j + width + 2] for r in range(height + 2)] for i, j in corners],
        y=[[y[i + r, j : j + width] for r in range(height)] for i, j in corners],
        k=3,
    )
    engine = ab.Engine(graph, ab.Execute(step), threads=threads)
    values = np.random.default_rng(0).integers(-99, 99, (shape[0] + 2, shape[1] + 2)).astype(np.int32)
    engine["x"] = values
    engine.run()
    np.testing.assert_array_equal(engine["y"], values[:-2, :-2] + 6 * values[1:-1, 1:-1] + values[2:, 2:])
