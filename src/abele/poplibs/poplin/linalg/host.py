"""Factorisations and solves as a host runs them: rows in one memory, and lanes along what does not depend on itself.

On the machine, blocks lie on tiles of their own and products between them do most of the work. A host has the whole
matrix near, in f32. Both algorithms are the same there: rows are made one after the other, each from those before it,
and elements of a row are independent of each other, so that they fill vector lanes.

- A triangular solve: X[i, :] = (B[i, :] − Σ A[i, k] · X[k, :]) / A[i, i], over the rows k that are known.
- Cholesky's factor, as the upper one: U[i, :] = (A[i, :] − Σ U[k, i] · U[k, :]) / U[i, i], over k < i. The lower factor
  is its transpose.

Columns are held in *panels*, ``WIDTH`` side by side: a stretch of memory of its own, row after row. So four rows of a
panel are a register tile that stays in registers while k runs: for each k one row of the panel is loaded, and four
numbers. Panels do not depend on each other and are shared out between threads. In Cholesky's factorisation those behind
a square of ``SQUARE`` columns wait for it, and no others.

Example: 256 rows of Cholesky's factor are 16 panels. Four of them make the first square; then the other twelve get
their first 64 rows, each by itself.

A system with fewer than ``FEW`` right-hand sides would leave lanes empty. There the sum over k fills them, one dot
product for each element.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

import math
from functools import cache

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, macro, sqrt
from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, f32, i32, i64, u32
from abele.poplibs.poplin.linalg.host_columns import HostLu, HostQr, whole_blocks
from abele.poplibs.poputil.host_body import host_vertices

WIDTH = 16
"""Columns of a panel: four rows of it are 8 vectors of 256 bits, half of the registers that AVX2 has."""
ROWS = 4
"""Rows of a register tile."""
SQUARE = 64
"""Rows of a factor between two barriers of the threads."""
FEW = 4
"""Right-hand sides up to which a solve goes along the rows of the matrix instead."""


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
def _eliminate(self, known, at, a, of, row, step, count):
    """Subtract from the four rows of ``self.s`` their shares of ``count`` known rows of a panel.

    Args:
        self: The vertex; ``self.s`` holds four rows, one after the other.
        known: Field with the known rows, the first of them at ``at``.
        at: Place of the first known row.
        a: Field with the shares.
        of: Place of the first row's share of the first known row.
        row: Distance of the next row's share of the same known row.
        step: Distance of the share of the next known row.
        count: Known rows.
    """
    for k in range(count):
        a0 = a[of + k * step]
        a1 = a[of + k * step + row]
        a2 = a[of + k * step + 2 * row]
        a3 = a[of + k * step + 3 * row]
        for c in range(16):
            t = known[at + 16 * k + c]
            self.s[c] -= a0 * t
            self.s[16 + c] -= a1 * t
            self.s[32 + c] -= a2 * t
            self.s[48 + c] -= a3 * t


@macro
def _divide_row(self, row, d):
    """Divide a row of ``self.s``."""
    for c in range(16):
        self.s[16 * row + c] = self.s[16 * row + c] / d


@macro
def _subtract_row(self, row, other, t):
    """Subtract a multiple of one row of ``self.s`` from another."""
    for c in range(16):
        self.s[16 * row + c] -= t * self.s[16 * other + c]


@macro
def _move(target, to, source, begin, count):
    """Copy ``count`` elements."""
    for c in range(count):
        target[to + c] = source[begin + c]


# Cholesky's factor. Panel p, row k, column c is U[k, 16 p + c], which is element [16 p + c, k] of the lower factor.


@codelet
class HostPanel(Vertex):
    """Rows of a matrix, as columns of a panel: a square of them at a time. What is left of the panel is zero."""

    rows: Vector[Input[Vector[f32]]]
    x: Output[Vector[f32]]

    def compute(self):  # noqa: D102
        lines = i64(len(self.rows))
        length = i64(len(self.rows[0]))
        whole = length // 16 if lines == 16 else i64(0)
        for block in range(whole):
            for c in range(16):
                for k in range(16):
                    self.x[256 * block + 16 * k + c] = self.rows[c][16 * block + k]
        for place in range(256 * whole, i64(len(self.x))):
            self.x[place] = f32(0.0)
        for c in range(lines):
            for k in range(16 * whole, length):
                self.x[16 * k + c] = self.rows[c][k]


@codelet
class HostRows(Vertex):
    """Columns of a panel, the first of them ``first``, as rows of a lower factor: zeros after the diagonal."""

    x: Input[Vector[f32]]
    rows: Vector[Output[Vector[f32]]]
    first: u32

    def compute(self):  # noqa: D102
        first = i64(self.first)
        lines = i64(len(self.rows))
        whole = first // 16 if lines == 16 else i64(0)
        for block in range(whole):
            for c in range(16):
                for k in range(16):
                    self.rows[c][16 * block + k] = self.x[256 * block + 16 * k + c]
        for c in range(lines):
            for k in range(16 * whole, first + c + 1):
                self.rows[c][k] = self.x[16 * k + c]
            for k in range(first + c + 1, i64(len(self.rows[c]))):
                self.rows[c][k] = f32(0.0)


@codelet
class HostFactorSquare(Vertex):
    """Rows ``first`` and on of the factor, in the panels ``x`` that have their diagonal."""

    x: InOut[Vector[f32]]
    s: InOut[Vector[f32]]
    first: u32
    height: u32

    def compute(self):  # noqa: D102
        first = i64(self.first)
        each = 16 * i64(self.height)
        for panel in range(i64(len(self.x)) // each):
            at = panel * each
            for quad in range(4 * panel + 4):
                if first + 4 * quad < i64(self.height):
                    i = first + 4 * quad
                    # The panel where these four rows have their diagonal, and where in its rows.
                    inside = 4 * (quad % 4)
                    home = quad // 4 * each + inside
                    _move(self.s, 0, self.x, at + 16 * i, count=64)
                    _eliminate(self, self.x, at, self.x, home, row=1, step=16, count=i)
                    for row in range(4):
                        if quad // 4 == panel:
                            d = sqrt(self.s[17 * row + inside])
                            _divide_row(self, row, d=d)
                            for later in range(row + 1, 4):
                                t = self.s[16 * row + inside + later]
                                _subtract_row(self, later, row, t=t)
                        else:
                            d = self.x[home + 16 * (i + row) + row]
                            _divide_row(self, row, d=d)
                            for later in range(row + 1, 4):
                                t = self.x[home + 16 * (i + row) + later]
                                _subtract_row(self, later, row, t=t)
                    _move(self.x, at + 16 * i, self.s, 0, count=64)


@codelet
class HostFactorBehind(Vertex):
    """The same rows of the factor in a panel behind; ``top`` are the panels with the square."""

    x: InOut[Vector[f32]]
    top: Input[Vector[f32]]
    s: InOut[Vector[f32]]
    first: u32

    def compute(self):  # noqa: D102
        first = i64(self.first)
        each = i64(len(self.x))
        for quad in range(i64(len(self.top)) // each * 4):
            i = first + 4 * quad
            home = quad // 4 * each + 4 * (quad % 4)
            _move(self.s, 0, self.x, 16 * i, count=64)
            _eliminate(self, self.x, 0, self.top, home, row=1, step=16, count=i)
            for row in range(4):
                d = self.top[home + 16 * (i + row) + row]
                _divide_row(self, row, d=d)
                for later in range(row + 1, 4):
                    t = self.top[home + 16 * (i + row) + later]
                    _subtract_row(self, later, row, t=t)
            _move(self.x, 16 * i, self.s, 0, count=64)


# Triangular solves.


@cache
def solve_codelet(*, lower: bool, unit: bool, turned: bool) -> type:
    """Right-hand sides ``b`` [n, up to 16] of the triangular system ``a`` [n, n] become solutions ``out``.

    Args:
        lower: True if the lower triangle is meant.
        unit: True if the diagonal is taken as ones.
        turned: True if ``a`` holds columns instead of rows.
    """

    @codelet(name="HostSolve")
    class HostSolve(Vertex):
        a: Input[Vector[f32]]
        b: Vector[Input[Vector[f32]]]
        out: Vector[Output[Vector[f32]]]
        x: InOut[Vector[f32]]
        s: InOut[Vector[f32]]

        def compute(self):
            n = i64(len(self.b))
            row = i64(1) if turned else n
            step = n if turned else i64(1)
            for i in range(n):
                for c in range(16):
                    self.x[16 * i + c] = f32(0.0)
                for c in range(i64(len(self.b[i]))):
                    self.x[16 * i + c] = self.b[i][c]
            # Rows that no tile of four has come last; the one row is then the first of a tile.
            for tile in range((n + 3) // 4):
                first = 4 * tile if lower else n - 4 - 4 * tile
                rows = min(n - 4 * tile, i64(4))
                begin = i64(0) if lower else first + 4
                known = 4 * tile
                if rows == 4:
                    _move(self.s, 0, self.x, 16 * first, count=64)
                    of = first * row + begin * step
                    _eliminate(self, self.x, 16 * begin, self.a, of, row=row, step=step, count=known)
                    for done in range(4):
                        line = done if lower else 3 - done
                        at = (first + line) * (n + 1)
                        if not unit:
                            d = self.a[at]
                            _divide_row(self, line, d=d)
                        for other in range(done + 1, 4):
                            later = other if lower else 3 - other
                            t = self.a[at + (later - line) * row]
                            _subtract_row(self, later, line, t=t)
                    _move(self.x, 16 * first, self.s, 0, count=64)
                else:
                    for done in range(rows):
                        line = known + done if lower else rows - 1 - done
                        for k in range(known + done):
                            other = k if lower else n - 1 - k
                            t = self.a[line * row + other * step]
                            for c in range(16):
                                self.x[16 * line + c] -= t * self.x[16 * other + c]
                        if not unit:
                            d = self.a[line * (n + 1)]
                            for c in range(16):
                                self.x[16 * line + c] = self.x[16 * line + c] / d
            for i in range(n):
                for c in range(i64(len(self.out[i]))):
                    self.out[i][c] = self.x[16 * i + c]

    return HostSolve


@cache
def substitute_codelet(*, lower: bool, unit: bool) -> type:
    """One right-hand side ``x`` becomes the solution of the triangular system ``a``, row by row."""

    @codelet(name="HostSubstitute")
    class HostSubstitute(Vertex):
        a: Input[Vector[f32]]
        x: InOut[Vector[f32]]

        def compute(self):
            n = i64(len(self.x))
            for step in range(n):
                i = step if lower else n - 1 - step
                begin = i64(0) if lower else i + 1
                total = f32(0.0)
                for k in range(step):
                    total += self.a[i * n + begin + k] * self.x[begin + k]
                d = f32(1.0) if unit else self.a[i * n + i]
                self.x[i] = (self.x[i] - total) / d

    return HostSubstitute


def host_cholesky(graph: Graph, a: Tensor, out: Tensor, name: str) -> Sequence:
    """Steps that put the lower factor of ``a`` [batch, n, n] into ``out``."""
    given, steps = (a, Sequence()) if _is_near(a) else _converted(graph, a, name)
    made = out if _is_near(out) else _scratch(graph, out.shape, name)
    batch, n, _ = a.shape
    num, height = -(-n // WIDTH), -(-n // ROWS) * ROWS
    panels = _scratch(graph, (batch, num, height * WIDTH), name)
    tiles = _scratch(graph, (batch, num, ROWS * WIDTH), name)
    lines = [slice(first, min(first + WIDTH, n)) for first in range(0, n, WIDTH)]
    cs = graph.compute_set(f"{name}/host_panels")
    for panel, line in enumerate(lines):
        host_vertices(cs, HostPanel, rows=given[:, line, : line.stop], x=panels[:, panel])
    steps.add(Execute(cs))
    for first in range(0, n, SQUARE):
        begin, end = first // WIDTH, min((first + SQUARE) // WIDTH, num)
        square = panels[:, begin:end].reshape((batch, -1))
        fields = {"x": square, "s": tiles[:, begin], "first": first, "height": height}
        steps.add(_superstep(graph, f"{name}/host_square", HostFactorSquare, **fields))
        if end < num:
            cs = graph.compute_set(f"{name}/host_behind")
            for panel in range(end, num):
                host_vertices(cs, HostFactorBehind, x=panels[:, panel], top=square, s=tiles[:, panel], first=first)
            steps.add(Execute(cs))
    cs = graph.compute_set(f"{name}/host_rows")
    for panel, line in enumerate(lines):
        host_vertices(cs, HostRows, x=panels[:, panel], rows=made[:, line], first=line.start)
    steps.add(Execute(cs))
    if made is not out:
        steps.add(_convert(graph, made, out, name))
    return steps


def host_solve(graph: Graph, a: Tensor, b: Tensor, out: Tensor, *, lower: bool, unit: bool, name: str) -> Sequence:
    """Steps that put the X of A·X = B into ``out``; ``a`` [batch, n, n], ``b`` and ``out`` [batch, n, r]."""
    batch, n, right = b.shape
    across = a.transpose((0, 2, 1))
    turned = right > FEW and not _is_near(a) and _is_near(across)
    steps = Sequence()
    if turned:
        a = across
    elif not _is_near(a):
        a, steps = _converted(graph, a, name)
    matrix = a.reshape((batch, n * n))
    cs = graph.compute_set(f"{name}/host_solve")
    if right <= FEW:
        # Right-hand sides one after the other, each one stretch of memory.
        sides, more = _converted(graph, b.transpose((0, 2, 1)), name)
        for side in range(right):
            host_vertices(cs, substitute_codelet(lower=lower, unit=unit), a=matrix, x=sides[:, side])
        return Sequence(steps, more, Execute(cs), _convert(graph, sides, out.transpose((0, 2, 1)), name))
    narrow = b.dtype != f32
    given, before = _converted(graph, b, name) if narrow else (b, Sequence())
    made = _scratch(graph, out.shape, name) if narrow else out
    num = -(-right // WIDTH)
    panels, tiles = (_scratch(graph, (batch, num, rows * WIDTH), name) for rows in (n, ROWS))
    for panel in range(num):
        columns = slice(panel * WIDTH, min((panel + 1) * WIDTH, right))
        fields = {"b": given[:, :, columns], "out": made[:, :, columns], "x": panels[:, panel], "s": tiles[:, panel]}
        host_vertices(cs, solve_codelet(lower=lower, unit=unit, turned=turned), a=matrix, **fields)
    after = Sequence(_convert(graph, made, out, name)) if narrow else Sequence()
    return Sequence(steps, before, Execute(cs), after)


def _is_near(tensor: Tensor, dtype: ElementType = f32) -> bool:
    """True if the host has a tensor in one stretch of such elements already, in order."""
    return tensor.dtype == dtype and len(tensor.flatten().intervals()[0]) == 1


def _scratch(graph: Graph, shape: tuple[int, ...], name: str, dtype: ElementType = f32) -> Tensor:
    """A new variable, row-major; the machine knows nothing of it."""
    return graph.variable(dtype, shape, name=f"{name}/host", map="linear")


def _converted(graph: Graph, tensor: Tensor, name: str) -> tuple[Tensor, Sequence]:
    """A new f32 variable, row-major, and the step that fills it with ``tensor``."""
    made = _scratch(graph, tensor.shape, name)
    return made, Sequence(_convert(graph, tensor, made, name))


def _convert(graph: Graph, source: Tensor, target: Tensor, name: str) -> Execute:
    rows = {"x": source.reshape((-1, source.shape[-1])), "out": target.reshape((-1, target.shape[-1]))}
    return _superstep(graph, f"{name}/host_convert", convert_codelet(source.dtype, target.dtype), **rows)


def _superstep(graph: Graph, name: str, vertex: type, **fields: Tensor | int) -> Execute:
    cs = graph.compute_set(name)
    host_vertices(cs, vertex, **fields)
    return Execute(cs)


# Factorisations by columns: a vertex for each matrix (:mod:`abele.poplibs.poplin.linalg.host_columns`).


def host_lu(graph: Graph, a: Tensor, packed: Tensor, places: Tensor, swaps: Tensor, name: str) -> Sequence:
    """Steps that factor ``a`` [b, m, n] with pivots: ``packed`` [b, m, n], ``places`` [b, m], ``swaps`` [b, min(m, n)].

    ``packed`` has L below its diagonal and U from there on, ``places`` the place of each row of ``a`` in it, and
    ``swaps`` for each step the row that it exchanged with its own.
    """
    batch, m, n = a.shape
    width = whole_blocks(n)
    scratch = {field: _scratch(graph, (batch, size), name) for field, size in (("work", m * width), ("row", width))}
    scratch["order"] = _scratch(graph, (batch, m), name, i32)
    return _by_matrix(graph, HostLu, name, a, {"out": packed, "places": places, "swaps": swaps}, scratch)


def host_qr(graph: Graph, a: Tensor, q: Tensor, r: Tensor, name: str) -> Sequence:
    """Steps that factor ``a`` [b, m, n]: ``q`` [b, m, k] and ``r`` [b, k, n]."""
    batch, m, n = a.shape
    width, across = whole_blocks(n), whole_blocks(q.shape[2])
    sizes = {"work": m * width, "product": m * across, "v": m, "along": max(width, across), "tau": min(m, n)}
    scratch = {field: _scratch(graph, (batch, size), name) for field, size in sizes.items()}
    return _by_matrix(graph, HostQr, name, a, {"q": q, "r": r}, scratch)


def _by_matrix(
    graph: Graph, vertex: type, name: str, a: Tensor, results: dict[str, Tensor], scratch: dict[str, Tensor]
) -> Sequence:
    """A vertex for each matrix, from where the host has it to where the results belong."""
    given, steps = (a, Sequence()) if _is_near(a) else _converted(graph, a, name)
    made = {
        field: out if _is_near(out, out.dtype) else _scratch(graph, out.shape, name, out.dtype)
        for field, out in results.items()
    }
    fields = {"a": given, **made, **scratch}
    rows = {field: t.reshape((t.shape[0], math.prod(t.shape[1:]))) for field, t in fields.items()}
    steps.add(_superstep(graph, f"{name}/host", vertex, **rows))
    for field, out in results.items():
        if made[field] is not out:
            steps.add(_convert(graph, made[field], out, name))
    return steps
