"""Neighbours in a row, and elements that may be read without a condition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.codelet import Input, Output, Vector, Vertex, codelet, compile_codelet
from abele.codelet.driver import value_module
from abele.codelet.neighbours import certain, neighbours
from abele.codelet.tables import build_tables
from abele.codelet.tree import For, walk
from abele.llvm.cpus import cpu_named
from abele.llvm.host import code_for
from abele.llvm.jit import optimised_ir
from abele.numerics import f32, i32, u8


@codelet
class Taps(Vertex):
    """A filter over a row: the first and the last tap in the middle of the source, one of them twice."""

    x: Input[Vector[f32]]
    z: Input[Vector[i32]]
    y: Output[Vector[f32]]
    n: Output[Vector[i32]]

    def compute(self):
        for i in range(len(self.y)):
            self.y[i] = 4.0 * self.x[i + 2] + self.x[i] - 0.5 * self.x[i + 5] + self.x[i + 2]
            self.n[i] = self.z[i + 1] - self.z[i]


@codelet
class Inner(Vertex):
    """As ``Taps``, from the second element on."""

    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self):
        for i in range(1, len(self.y) - 1):
            self.y[i] = self.x[i - 1] + self.x[1 + i]


@codelet
class Unsafe(Vertex):
    """Elements that some iterations read, and others do not."""

    x: Input[Vector[f32]]
    w: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.y)):
            a = self.x[i] + self.x[i + 2]
            self.y[i] = self.x[i + 1] if a > 0.0 else (self.w[i] if self.x[i + 3] > 0.0 else self.w[i + 1])


@codelet
class Life(Vertex):
    """A choice whose condition reads an element, of bytes."""

    x: Input[Vector[u8]]
    y: Output[Vector[u8]]

    def compute(self):
        for i in range(len(self.y)):
            k = self.x[i] + self.x[i + 2]
            self.y[i] = u8(1) if k == 1 or (k == 2 and self.x[i + 1] == 1) else u8(0)


def loop_of(vertex) -> For:
    return next(s for s in walk(compile_codelet(vertex.codelet).tree.body) if isinstance(s, For))


def test_neighbours__of_a_filter__are_its_taps_by_distance():
    found = list(neighbours(loop_of(Taps), 16))
    assert [list(n.distances) for n in found] == [[0, 1, 2, 3, 4, 5], [0, 1]]
    assert {k: len(uses) for k, uses in found[0].uses.items()} == {2: 2, 0: 1, 5: 1}
    assert [n.one.field.name for n in found] == ["x", "z"]
    assert [n.distances for n in neighbours(loop_of(Inner), 16)] == [range(-1, 2)]


def test_neighbours__more_than_registers_hold__are_left_out():
    assert [n.apart for n in neighbours(loop_of(Taps), 4)] == [1]
    assert not list(neighbours(loop_of(Taps), 0))


def test_neighbours__of_bytes_or_at_times__are_left_out():
    assert not list(neighbours(loop_of(Life), 16))
    assert [n.one.field.name for n in neighbours(loop_of(Unsafe), 16)] == ["x"]
    assert [sorted(n.uses) for n in neighbours(loop_of(Unsafe), 16)] == [[0, 2]]


def test_certain__elements_between_those_of_every_iteration__and_no_others():
    names = sorted((e.field.name, str(e.index[-1].__class__.__name__)) for e in certain(loop_of(Unsafe)))
    assert names == [("x", "BinaryExpr"), ("x", "BinaryExpr"), ("x", "Local")]
    assert len(certain(loop_of(Life))) == 3


@pytest.mark.parametrize("cpu", ["znver3", "znver4", "x86-64-v2"])
def test_code__of_a_choice_of_certain_elements__is_vectors_on_every_cpu(cpu):
    with code_for(cpu_named(cpu)):
        assert " x i8>" in optimised_ir(value_module(Life.codelet, compile_codelet(Life.codelet).tree))


@given(lengths=st.lists(st.integers(0, 70), min_size=1, max_size=4), seed=st.integers(0, 9))
def test_codelet__neighbours_in_rows_of_any_length__as_numpy(lengths, seed):
    rng = np.random.default_rng(seed)
    vertices = []
    for n in lengths:
        x, z = rng.integers(-9, 9, n + 5 * (n > 0)).astype(np.float32), rng.integers(-9, 9, n + (n > 0), np.int32)
        vertices.append({"x": x, "z": z, "y": np.full(n, 7, np.float32), "n": np.zeros(n, np.int32)})
    tables = build_tables(Taps.codelet, vertices)
    tables.run(compile_codelet(Taps.codelet).run)
    for v in vertices:
        n, x, z = len(v["y"]), v["x"], v["z"]
        if n:
            np.testing.assert_array_equal(v["y"], 5 * x[2 : n + 2] + x[:n] - x[5:] / 2)
            np.testing.assert_array_equal(v["n"], z[1:] - z[:n])


@given(n=st.integers(0, 70))
def test_codelet__neighbours_before_and_behind__as_numpy(n):
    x, y = np.random.default_rng(n).integers(-9, 9, n).astype(np.float32), np.full(n, 7, np.float32)
    build_tables(Inner.codelet, [{"x": x, "y": y}]).run(compile_codelet(Inner.codelet).run)
    np.testing.assert_array_equal(y[1:-1], x[:-2] + x[2:])
    assert (y[:1] == 7).all()
    assert (y[-1:] == 7).all()


@given(n=st.integers(1, 70), seed=st.integers(0, 9))
def test_codelet__elements_read_without_a_condition__as_numpy(n, seed):
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(n + 3).astype(np.float32) for _ in range(2))
    y = np.zeros(n, np.float32)
    build_tables(Unsafe.codelet, [{"x": x, "w": w, "y": y}]).run(compile_codelet(Unsafe.codelet).run)
    wanted = np.where(x[:n] + x[2 : n + 2] > 0, x[1 : n + 1], np.where(x[3:] > 0, w[:n], w[1 : n + 1]))
    np.testing.assert_array_equal(y, wanted)
