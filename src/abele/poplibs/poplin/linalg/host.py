"""Factorisations and solves as a host runs them: rows in one memory, and every element one dot product of two rows.

On the machine, blocks lie on tiles of their own and products between them do most of the work. A host has the whole
matrix near, in f32 and row by row, where both algorithms come down to dot products over elements that lie side by side:

- Cholesky's factor, row by row: L[i, j] = (A[i, j] − L[i, :j] · L[j, :j]) / L[j, j] (the left-looking form). Rows of a
  block of columns are first made for the block's own rows, then for all rows below, which depend on these alone and are
  shared out between threads.
- A triangular solve, one right-hand side at a time: x[i] = (b[i] − A[i, :i] · x[:i]) / A[i, i]. Right-hand sides do not
  depend on each other.

Dot products read two operands per multiply-add where a register tile would read half of one, yet stay in the caches for
matrices that a chip holds, and need neither packing nor another way for the odd rows at the end.

Example: element [3, 1] of Cholesky's factor is (A[3, 1] − L[3, :1] · L[1, :1]) / L[1, 1], a dot product of one element
of rows 3 and 1.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache

import numpy as np

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, macro, sqrt
from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, f32, i64, u32

COLUMNS = 64
"""Columns of a factor that are made between two barriers of the threads; 64 rows of 1,000 columns fit a second-level
cache of 256 KiB. Guessed."""
SHARES = 32
"""Shares that rows below a block are cut into, whatever the number of threads: a few for each of up to eight."""


@cache
def convert_codelet(given: ElementType, wanted: ElementType) -> type:
    """A row in another element type."""

    @codelet(name="HostConvert")
    class HostConvert(Vertex):
        x: Input[Vector[given]]
        out: Output[Vector[wanted]]

        def compute(self):
            for i in range(len(self.x)):
                self.out[i] = wanted(self.x[i])

    return HostConvert


@macro
def _dot(self, one, row, other, column, length):
    """Σ over ``length`` elements of one row times another's."""
    total = f32(0.0)
    for k in range(length):
        total += one[row + k] * other[column + k]
    return total


@macro
def _eliminate_four(self, shared, row, rows, length, target, stride, d):
    """Subtract from four elements ``stride`` apart the products of one row with four others, ``n`` apart; divide by d.

    Four rows share each load of the fifth, and their sums do not wait for each other.
    """
    n = i64(self.n)
    s0 = f32(0.0)
    s1 = f32(0.0)
    s2 = f32(0.0)
    s3 = f32(0.0)
    for k in range(length):
        t = shared[row + k]
        s0 += self.x[rows + k] * t
        s1 += self.x[rows + n + k] * t
        s2 += self.x[rows + 2 * n + k] * t
        s3 += self.x[rows + 3 * n + k] * t
    self.x[target] = (self.x[target] - s0) / d
    self.x[target + stride] = (self.x[target + stride] - s1) / d
    self.x[target + 2 * stride] = (self.x[target + 2 * stride] - s2) / d
    self.x[target + 3 * stride] = (self.x[target + 3 * stride] - s3) / d


@codelet
class HostFactorSquare(Vertex):
    """Columns ``first`` and on of the factor, for the rows of the same numbers; zeros above the diagonal."""

    x: InOut[Vector[f32]]
    n: u32
    first: u32

    def compute(self):  # noqa: D102
        n = i64(self.n)
        first = i64(self.first)
        rows = i64(len(self.x)) // n
        # What the columns before have to do with the square, four columns of a row at a time; then the square alone.
        for i in range(rows):
            at = i * n + first
            fours = min(i // 4 + 1, rows // 4)
            for quad in range(fours):
                where = at + 4 * quad
                _eliminate_four(self, self.x, i * n, 4 * quad * n, first, target=where, stride=1, d=f32(1.0))
            for j in range(4 * fours, i + 1):
                self.x[at + j] = self.x[at + j] - _dot(self, self.x, i * n, self.x, j * n, first)
        for i in range(rows):
            at = i * n + first
            for j in range(i):
                s = self.x[at + j] - _dot(self, self.x, at, self.x, j * n + first, j)
                self.x[at + j] = s / self.x[j * n + first + j]
            self.x[at + i] = sqrt(self.x[at + i] - _dot(self, self.x, at, self.x, at, i))
            for j in range(first + i + 1, n):
                self.x[i * n + j] = f32(0.0)


@codelet
class HostFactorBelow(Vertex):
    """The same columns of the factor for rows ``x`` below; ``top`` are the rows of the square."""

    x: InOut[Vector[f32]]
    top: Input[Vector[f32]]
    n: u32
    first: u32

    def compute(self):  # noqa: D102
        n = i64(self.n)
        first = i64(self.first)
        rows = i64(len(self.x)) // n
        for j in range(i64(len(self.top)) // n):
            at = first + j
            d = self.top[j * n + at]
            for quad in range(rows // 4):
                i = 4 * quad * n
                _eliminate_four(self, self.top, j * n, i, at, target=i + at, stride=n, d=d)
            for i in range(rows // 4 * 4, rows):
                s = self.x[i * n + at] - _dot(self, self.x, i * n, self.top, j * n, at)
                self.x[i * n + at] = s / d


@cache
def substitute_codelet(*, lower: bool, unit: bool) -> type:
    """Right-hand sides ``x``, one after the other, become solutions of the triangular system ``a``, row by row."""

    @codelet(name="HostSubstitute")
    class HostSubstitute(Vertex):
        a: Input[Vector[f32]]
        x: InOut[Vector[f32]]
        n: u32

        def compute(self):
            n = i64(self.n)
            sides = i64(len(self.x)) // n
            for step in range(n):
                i = step if lower else n - 1 - step
                begin = i64(0) if lower else i + 1
                row = i * n + begin
                d = f32(1.0) if unit else self.a[i * n + i]
                for quad in range(sides // 4):
                    x = 4 * quad * n
                    _eliminate_four(self, self.a, row, x + begin, step, target=x + i, stride=n, d=d)
                for side in range(sides // 4 * 4, sides):
                    x = side * n
                    self.x[x + i] = (self.x[x + i] - _dot(self, self.a, row, self.x, x + begin, step)) / d

    return HostSubstitute


def host_cholesky(graph: Graph, a: Tensor, out: Tensor, name: str) -> Sequence:
    """Steps that put the lower factor of ``a`` [batch, n, n] into ``out``."""
    work, steps = _converted(graph, a, name)
    batch, n, _ = a.shape
    flat = work.reshape((batch, n * n))
    for first in range(0, n, COLUMNS):
        end = min(first + COLUMNS, n)
        square = flat[:, first * n : end * n]
        steps.add(_superstep(graph, f"{name}/host_square", HostFactorSquare, x=square, n=n, first=first))
        if end == n:
            break
        share = -(-(n - end) * batch // SHARES)
        cs = graph.compute_set(f"{name}/host_below")
        for begin in range(end, n, share):
            rows = flat[:, begin * n : min(begin + share, n) * n]
            _vertices(cs, HostFactorBelow, x=rows, top=square, n=n, first=first)
        steps.add(Execute(cs))
    steps.add(_convert(graph, work, out, name))
    return steps


def host_solve(graph: Graph, a: Tensor, b: Tensor, out: Tensor, *, lower: bool, unit: bool, name: str) -> Sequence:
    """Steps that put the X of A·X = B into ``out``; ``a`` [batch, n, n], ``b`` and ``out`` [batch, n, r]."""
    matrix, steps = (a, Sequence()) if _is_near(a) else _converted(graph, a, name)
    # Right-hand sides one after the other, each one stretch of memory.
    sides, more = _converted(graph, b.transpose((0, 2, 1)), name)
    batch, right, n = sides.shape
    flat, codes = matrix.reshape((batch, n * n)), substitute_codelet(lower=lower, unit=unit)
    each = 4 * max(1, -(-right * batch // (4 * SHARES)))
    cs = graph.compute_set(f"{name}/host_solve")
    for begin in range(0, right, each):
        some = sides[:, begin : begin + each]
        _vertices(cs, codes, a=flat, x=some.reshape((batch, some.shape[1] * n)), n=n)
    back = _convert(graph, sides, out.transpose((0, 2, 1)), name)
    return Sequence(steps, more, Execute(cs), back)


def _is_near(tensor: Tensor) -> bool:
    """True if the host has a tensor as f32 in one stretch already, in order."""
    return tensor.dtype == f32 and len(tensor.flatten().intervals()[0]) == 1


def _converted(graph: Graph, tensor: Tensor, name: str) -> tuple[Tensor, Sequence]:
    """A new f32 variable, row-major, and the step that fills it with ``tensor``; the machine knows nothing of it."""
    made = graph.variable(f32, tensor.shape, name=f"{name}/host", map="linear")
    return made, Sequence(_convert(graph, tensor, made, name))


def _convert(graph: Graph, source: Tensor, target: Tensor, name: str) -> Execute:
    rows = {"x": source.reshape((-1, source.shape[-1])), "out": target.reshape((-1, target.shape[-1]))}
    return _superstep(graph, f"{name}/host_convert", convert_codelet(source.dtype, target.dtype), **rows)


def _superstep(graph: Graph, name: str, vertex: type, **fields: Tensor | int) -> Execute:
    cs = graph.compute_set(name)
    _vertices(cs, vertex, **fields)
    return Execute(cs)


def _vertices(cs, vertex: type, **fields: Tensor | int) -> None:
    """A vertex for each row of the tensors; they cost nothing."""
    num = next(t.shape[0] for t in fields.values() if isinstance(t, Tensor))
    cs.vertices(vertex, tile=np.zeros(num, np.int32), cycles=np.zeros(num, np.int64), **fields)
