"""Factorisations that go over a matrix column by column, as a host runs them: one vertex for a matrix.

On the machine a step is a few maps and reductions over whole stacks of matrices, which then take part in it whether
they are behind the column or not. A host goes on with what is left alone: a third of the elements, and each once. Rows
are stretches of memory, so a step is a multiple of one row taken from every other row, in vector lanes.

Example: a factor of 256 rows takes 255 steps; step 128 reads and writes 127 rows of 127 elements.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, macro, sqrt
from abele.numerics import f32, i32, i64

WIDTH = 16
"""Columns of a block: rows are whole blocks, so that loops over them are whole vectors. A step begins with the block of
its column. Zeros in the row that is taken from others stand for columns before it."""


def whole_blocks(columns: int) -> int:
    """Elements of a row of so many columns."""
    return -(-columns // WIDTH) * WIDTH


@macro
def _take(a, to, row, begin, end, share):
    """Take ``share`` times some elements of ``row`` from a row of ``a`` that starts at ``to``."""
    for j in range(begin, end):
        a[to + j] -= share * row[j]


@macro
def _widen(a, n, out, width):
    """Copy rows of ``n`` elements to rows of ``width``, whose rest is zero."""
    for i in range(i64(len(a)) // n):
        for j in range(n):
            out[i * width + j] = a[i * n + j]
        for j in range(n, width):
            out[i * width + j] = f32(0.0)


@codelet
class HostLu(Vertex):
    """Both factors of P·A in one, the place of each row in them, and the row that each step exchanged with its own.

    Of equal candidates for a pivot the first is taken. A pivot of zero leaves its column, which is zero, as it is.
    """

    a: Input[Vector[f32]]
    out: Output[Vector[f32]]
    places: Output[Vector[i32]]
    swaps: Output[Vector[i32]]
    work: InOut[Vector[f32]]
    row: InOut[Vector[f32]]
    order: InOut[Vector[i32]]

    def compute(self):  # noqa: D102
        m = i64(len(self.places))
        n = i64(len(self.a)) // m
        width = i64(len(self.row))
        _widen(self.a, n, self.work, width)
        for i in range(m):
            self.order[i] = i32(i)
        for k in range(i64(len(self.swaps))):
            best = f32(-1.0)
            other = k
            for i in range(k, m):
                size = abs(self.work[i * width + k])
                if size > best:
                    best = size
                    other = i
            self.swaps[k] = i32(other)
            held = self.order[k]
            self.order[k] = self.order[other]
            self.order[other] = held
            for j in range(width):
                self.row[j] = self.work[other * width + j]
            for j in range(width):
                self.work[other * width + j] = self.work[k * width + j]
            for j in range(width):
                self.work[k * width + j] = self.row[j]
            pivot = self.row[k]
            if pivot == f32(0.0):
                pivot = f32(1.0)
            begin = (k + 1) // WIDTH * WIDTH
            for j in range(begin, k + 1):
                self.row[j] = f32(0.0)
            for i in range(k + 1, m):
                share = self.work[i * width + k] / pivot
                self.work[i * width + k] = share
                _take(self.work, i * width, self.row, begin, width, share=share)
        for i in range(m):
            self.places[self.order[i]] = i32(i)
            for j in range(n):
                self.out[i * n + j] = self.work[i * width + j]


@macro
def _shares(self, a, row, at, width):
    """Shares of the columns of ``a`` from ``at`` on in the reflection by ``self.v`` of rows from ``row`` on."""
    for j in range(at, width):
        self.along[j] = f32(0.0)
    for i in range(row, i64(len(self.v))):
        share = self.v[i] * self.tau[row]
        for j in range(at, width):
            self.along[j] += share * a[i * width + j]


@codelet
class HostQr(Vertex):
    """Q and R by Householder's reflections I − τ·v·vᵀ with v = 1 on the diagonal.

    v's sign is the one that adds to the diagonal instead of cancelling. Q is made from the last reflection on, so that
    each changes only what those after it have filled.
    """

    a: Input[Vector[f32]]
    q: Output[Vector[f32]]
    r: Output[Vector[f32]]
    work: InOut[Vector[f32]]
    product: InOut[Vector[f32]]
    v: InOut[Vector[f32]]
    along: InOut[Vector[f32]]
    tau: InOut[Vector[f32]]

    def compute(self):  # noqa: D102
        m = i64(len(self.v))
        n = i64(len(self.a)) // m
        width = i64(len(self.work)) // m
        columns = i64(len(self.q)) // m
        across = i64(len(self.product)) // m
        steps = i64(len(self.tau))
        _widen(self.a, n, self.work, width)
        for k in range(steps):
            head = self.work[k * width + k]
            tail = f32(0.0)
            for i in range(k + 1, m):
                self.v[i] = self.work[i * width + k]
                tail += self.v[i] * self.v[i]
            self.tau[k] = f32(0.0)
            if tail != f32(0.0):
                norm = sqrt(head * head + tail)
                beta = norm if head < f32(0.0) else -norm
                self.tau[k] = (beta - head) / beta
                self.v[k] = f32(1.0)
                for i in range(k + 1, m):
                    self.v[i] = self.v[i] / (head - beta)
                begin = (k + 1) // WIDTH * WIDTH
                _shares(self, self.work, k, begin, width=width)
                for j in range(begin, k + 1):
                    self.along[j] = f32(0.0)
                for i in range(k, m):
                    _take(self.work, i * width, self.along, begin, width, share=self.v[i])
                self.work[k * width + k] = beta
                for i in range(k + 1, m):
                    self.work[i * width + k] = self.v[i]
        for i in range(m * across):
            self.product[i] = f32(0.0)
        for i in range(columns):
            self.product[i * across + i] = f32(1.0)
        for step in range(steps):
            k = steps - 1 - step
            self.v[k] = f32(1.0)
            for i in range(k + 1, m):
                self.v[i] = self.work[i * width + k]
            _shares(self, self.product, k, k // WIDTH * WIDTH, width=across)
            for i in range(k, m):
                _take(self.product, i * across, self.along, k // WIDTH * WIDTH, across, share=self.v[i])
        for i in range(m):
            for j in range(columns):
                self.q[i * columns + j] = self.product[i * across + j]
        for i in range(i64(len(self.r)) // n):
            for j in range(n):
                self.r[i * n + j] = self.work[i * width + j] if j >= i else f32(0.0)
