"""One loop over all rows in place of workers whose rows alternate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.codelet import Input, MultiVertex, Output, Vector, codelet, compile_codelet
from abele.codelet.tables import build_tables
from abele.codelet.tree import For
from abele.codelet.workers import as_one
from abele.numerics import f32, i32


@codelet
class Rows(MultiVertex):
    """Rows of their own, with a helper, an inner loop and a branch."""

    x: Vector[Input[Vector[f32]]]
    y: Vector[Output[Vector[f32]]]

    def compute(self, worker_id):
        height = len(self.y)
        for r in range(worker_id, height, self.num_workers):
            self.row(r)

    def row(self, r):
        x = self.x[r]
        y = self.y[r]
        for c in range(len(y)):
            total = x[c] + x[c + 1]
            y[c] = total if r % 2 == 0 else 2.0 * total


@codelet
class Halves(MultiVertex):
    """A variable that both sides of a branch set before it is read."""

    y: Output[Vector[i32]]

    def compute(self, worker_id):
        for r in range(worker_id, len(self.y), self.num_workers):
            if r % 2 == 0:
                half = r // 2
                sign = 1
            else:
                half = r
                sign = 0 - 1
            self.y[r] = half * sign


@codelet
class Counted(MultiVertex):
    """A variable with the number of rows so far."""

    y: Output[Vector[i32]]

    def compute(self, worker_id):
        count = 0
        for r in range(worker_id, len(self.y), self.num_workers):
            count = count + 1
            self.y[r] = count


@codelet
class Numbered(MultiVertex):
    """A worker's number in its results."""

    y: Output[Vector[i32]]

    def compute(self, worker_id):
        for r in range(worker_id, len(self.y), self.num_workers):
            self.y[r] = worker_id


@codelet
class Maybe(MultiVertex):
    """A variable that an inner loop without iterations leaves as the row before set it."""

    y: Output[Vector[i32]]

    def compute(self, worker_id):
        last = 0
        for r in range(worker_id, len(self.y), self.num_workers):
            for c in range(r % 2):
                last = r + c
            self.y[r] = last


@codelet
class Ends(MultiVertex):
    """A worker that ends early."""

    y: Output[Vector[i32]]

    def compute(self, worker_id):
        for r in range(worker_id, len(self.y), self.num_workers):
            if r > 10:
                return
            self.y[r] = r


@codelet
class Later(MultiVertex):
    """A variable of a worker's last row that its second loop reads."""

    y: Output[Vector[i32]]
    z: Output[Vector[i32]]

    def compute(self, worker_id):
        last = 0
        for r in range(worker_id, len(self.y), self.num_workers):
            last = r
            self.y[r] = last
        for r in range(worker_id, len(self.z), self.num_workers):
            self.z[r] = last


@codelet
class Renumbered(MultiVertex):
    """A worker that takes another's rows."""

    y: Output[Vector[i32]]

    def compute(self, worker_id):
        worker_id = 3
        for r in range(worker_id, len(self.y), self.num_workers):
            self.y[r] = r


@codelet
class Before(MultiVertex):
    """Rows that continue a worker's last row, then a loop over them."""

    x: Input[Vector[i32]]
    y: Output[Vector[i32]]
    z: Output[Vector[i32]]

    def compute(self, worker_id):
        for r in range(worker_id, len(self.x), self.num_workers):
            self.y[r + 6] = self.y[r] + self.x[r]
        for r in range(worker_id, len(self.z), self.num_workers):
            self.z[r] = self.y[r + 6] + r


def tree(vertex):
    return compile_codelet(vertex.codelet).tree


@pytest.mark.parametrize("vertex", [Rows, Halves, Before])
def test_as_one__rows_for_themselves__is_one_loop(vertex):
    together = as_one(tree(vertex))
    loop = next(s for s in together.body if isinstance(s, For))
    assert (loop.start.value, loop.step) == (0, 1)
    assert next(s for s in tree(vertex).body if isinstance(s, For)).step == 6


@pytest.mark.parametrize("vertex", [Counted, Numbered, Maybe, Ends, Later, Renumbered])
def test_as_one__a_worker_that_matters__is_left_alone(vertex):
    assert as_one(tree(vertex)) is None


def test_codelet__workers_that_matter__run_one_by_one():
    wanted = {
        Counted: np.arange(20) // 6 + 1,
        Numbered: np.arange(20) % 6,
        Ends: np.where(np.arange(20) > 10, 0, np.arange(20)),
        Halves: np.where(np.arange(20) % 2, -np.arange(20), np.arange(20) // 2),
    }
    for vertex, values in wanted.items():
        y = np.zeros(20, np.int32)
        build_tables(vertex.codelet, [{"y": y}]).run(compile_codelet(vertex.codelet).run)
        np.testing.assert_array_equal(y, values)


def test_codelet__rows_that_continue_others_of_a_worker__follow_them():
    x, y, z = np.arange(20, dtype=np.int32), np.zeros(26, np.int32), np.zeros(20, np.int32)
    build_tables(Before.codelet, [{"x": x, "y": y, "z": z}]).run(compile_codelet(Before.codelet).run)
    wanted = [sum(range(r, -1, -6)) for r in range(20)]
    np.testing.assert_array_equal(y[6:], wanted)
    np.testing.assert_array_equal(z, wanted + np.arange(20))


@given(height=st.integers(0, 20), width=st.integers(0, 40))
def test_codelet__rows_of_workers__as_numpy(height, width):
    x = np.random.default_rng(height).integers(-9, 9, (height, width + 1)).astype(np.float32)
    y = np.zeros((height, width), np.float32)
    build_tables(Rows.codelet, [{"x": list(x), "y": list(y)}]).run(compile_codelet(Rows.codelet).run)
    even = (np.arange(height) % 2 == 0)[:, None]
    total = x[:, :-1] + x[:, 1:]
    np.testing.assert_array_equal(y, np.where(even, total, 2 * total))
