"""Vertices for what the libraries have none of one tile for: products, scans, orders of dimensions, draws.

Their names begin with ``tessellate::``, as in ``tessellate::Dot<half,float>``. Loops over results are shared by the six
workers; every result is made by one of them, so that sums run in order.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from abele.codelet import (
    CodeletDef,
    InOut,
    Input,
    MultiVertex,
    Output,
    Vector,
    Vertex,
    codelet,
    cos,
    log,
    macro,
    random_u32,
    sqrt,
)
from abele.errors import UnknownVertexTypeError, nearest
from abele.network.ops.tiles import VERTEX_FINDERS
from abele.numerics import ElementType, f32, i32, types, u32
from abele.poplibs.public_vertices.library import taken_apart

_KINDS = {t.poplar_name: t for t in types.ALL}
_MADE: dict[str, CodeletDef] = {}
_TEMPLATES: dict[str, Callable[..., Any]] = {}


def vertex_template(make: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function that gives a codelet class for template arguments, under its own name."""
    _TEMPLATES[make.__name__] = make
    return make


def find(name: str) -> CodeletDef:
    """The vertex of a name in the namespace ``tessellate``.

    Raises:
        UnknownVertexTypeError: There is none.
    """
    if name not in _MADE:
        parts = taken_apart(name)
        if parts.short not in _TEMPLATES:
            close = nearest(parts.short, _TEMPLATES)
            raise UnknownVertexTypeError(
                f"unknown vertex type {name!r}", remedy=f"did you mean tessellate::{close}?" if close else None
            )
        _MADE[name] = _TEMPLATES[parts.short](*(_KINDS.get(a, a) for a in parts.arguments)).codelet
    return _MADE[name]


VERTEX_FINDERS["tessellate"] = find


def wide(kind: ElementType) -> ElementType:
    """The type in which sums of a type run."""
    return f32 if kind.is_float else kind


ROTATION_START, ROTATION_VECTOR = 3, 5
"""Worker slots of Rotation2d before its loop, and of two elements. Source: 1,436 cycles of 512 elements on Bow
(TessellateIPU, test_tile_lax_small_dot.py), less 127 of the compute set and the reading; the split is a fit."""
REFLECTION_START, REFLECTION_VECTOR = 26, 3
"""Worker slots of HouseholderUpdate before its loop, and of two elements. Source: 683 cycles of 256 elements on Bow
(TessellateIPU, QR row update), less 127 of the compute set and the reading; the split is a fit."""


# --- products ---------------------------------------------------------------------------------------------------------


@vertex_template
def Dot(kind: ElementType, made: ElementType) -> type:
    """Sums of products: result r · columns + c of row r of the one operand and column c of the other."""
    acc = wide(kind)

    @codelet(name=f"tessellate::Dot<{kind.poplar_name},{made.poplar_name}>")
    class Dot(MultiVertex):
        lhs: Input[Vector[kind]]
        rhs: Input[Vector[kind]]
        left: Input[Vector[u32]]
        right: Input[Vector[u32]]
        out: Output[Vector[made]]
        columns: u32
        batch_rows: u32
        num: u32
        left_step: u32
        right_step: u32

        def compute(self, worker_id):
            num = i32(self.num)
            left_step = i32(self.left_step)
            right_step = i32(self.right_step)
            columns = i32(self.columns)
            batch_rows = i32(self.batch_rows)
            for r in range(worker_id, len(self.left), self.num_workers):
                first = i32(self.left[r])
                other = (i32(r) // batch_rows) * columns
                for c in range(columns):
                    second = i32(self.right[other + c])
                    total = acc(0)
                    for k in range(num):
                        total += acc(self.lhs[first + k * left_step]) * acc(self.rhs[second + k * right_step])
                    self.out[i32(r) * columns + c] = made(total)

    return Dot


@vertex_template
def DotAnywhere(kind: ElementType, made: ElementType) -> type:
    """Sums of products as of :func:`Dot`, whose terms lie anywhere: their offsets are given."""
    acc = wide(kind)

    @codelet(name=f"tessellate::DotAnywhere<{kind.poplar_name},{made.poplar_name}>")
    class DotAnywhere(MultiVertex):
        lhs: Input[Vector[kind]]
        rhs: Input[Vector[kind]]
        left: Input[Vector[u32]]
        right: Input[Vector[u32]]
        left_terms: Input[Vector[u32]]
        right_terms: Input[Vector[u32]]
        out: Output[Vector[made]]
        columns: u32
        batch_rows: u32

        def compute(self, worker_id):
            columns = i32(self.columns)
            batch_rows = i32(self.batch_rows)
            for r in range(worker_id, len(self.left), self.num_workers):
                first = self.left[r]
                other = (i32(r) // batch_rows) * columns
                for c in range(columns):
                    second = self.right[other + c]
                    total = acc(0)
                    for k in range(len(self.left_terms)):
                        total += acc(self.lhs[first + self.left_terms[k]]) * acc(self.rhs[second + self.right_terms[k]])
                    self.out[i32(r) * columns + c] = made(total)

    return DotAnywhere


# --- along one dimension ----------------------------------------------------------------------------------------------

# Operands are [outer, num, inner]; what runs along ``num`` is done for each of the other two.


@macro
def combined(op, total, value):
    """A total and one value more, by the name of an operation."""
    if op == "add":
        return total + value
    if op == "mul":
        return total * value
    if op == "max":
        return max(total, value)
    if op == "min":
        return min(total, value)
    if op == "and":
        return total & value
    if op == "or":
        return total | value
    return total ^ value


@vertex_template
def Reduce(op: str, kind: ElementType) -> type:
    """Sum, product, extremum or logical join along one dimension."""
    acc = wide(kind)

    @codelet(name=f"tessellate::Reduce<{op},{kind.poplar_name}>")
    class Reduce(MultiVertex):
        x: Input[Vector[kind]]
        out: Output[Vector[kind]]
        num: u32
        inner: u32

        def compute(self, worker_id):
            num = i32(self.num)
            inner = i32(self.inner)
            for r in range(worker_id, len(self.out), self.num_workers):
                first = (i32(r) // inner) * num * inner + i32(r) % inner
                total = acc(self.x[first])
                for k in range(1, num):
                    total = combined(op, total, acc(self.x[first + k * inner]))
                self.out[r] = kind(total)

    return Reduce


@vertex_template
def ReduceAnywhere(op: str, kind: ElementType) -> type:
    """As :func:`Reduce`, along dimensions anywhere: offsets of the first elements and of terms are given."""
    acc = wide(kind)

    @codelet(name=f"tessellate::ReduceAnywhere<{op},{kind.poplar_name}>")
    class ReduceAnywhere(MultiVertex):
        x: Input[Vector[kind]]
        firsts: Input[Vector[u32]]
        terms: Input[Vector[u32]]
        out: Output[Vector[kind]]

        def compute(self, worker_id):
            for r in range(worker_id, len(self.out), self.num_workers):
                first = self.firsts[r]
                total = acc(self.x[first + self.terms[0]])
                for k in range(1, len(self.terms)):
                    total = combined(op, total, acc(self.x[first + self.terms[k]]))
                self.out[r] = kind(total)

    return ReduceAnywhere


@vertex_template
def Scan(op: str, kind: ElementType, backwards: str) -> type:
    """Running sums, products or extrema along one dimension, from its end where ``backwards`` is ``true``."""
    acc, turned = wide(kind), backwards == "true"

    @codelet(name=f"tessellate::Scan<{op},{kind.poplar_name},{backwards}>")
    class Scan(MultiVertex):
        x: Input[Vector[kind]]
        out: Output[Vector[kind]]
        num: u32
        inner: u32

        def compute(self, worker_id):
            num = i32(self.num)
            inner = i32(self.inner)
            for r in range(worker_id, len(self.x) // num, self.num_workers):
                first = (i32(r) // inner) * num * inner + i32(r) % inner
                if turned:
                    first = first + (num - 1) * inner
                step = -inner if turned else inner
                total = acc(self.x[first])
                self.out[first] = kind(total)
                for k in range(1, num):
                    at = first + k * step
                    total = combined(op, total, acc(self.x[at]))
                    self.out[at] = kind(total)

    return Scan


@vertex_template
def ArgExtremum(op: str, kind: ElementType, made: ElementType) -> type:
    """Number of the first largest or smallest element along one dimension."""

    @codelet(name=f"tessellate::ArgExtremum<{op},{kind.poplar_name},{made.poplar_name}>")
    class ArgExtremum(MultiVertex):
        x: Input[Vector[kind]]
        out: Output[Vector[made]]
        num: u32
        inner: u32

        def compute(self, worker_id):
            num = i32(self.num)
            inner = i32(self.inner)
            for r in range(worker_id, len(self.out), self.num_workers):
                first = (i32(r) // inner) * num * inner + i32(r) % inner
                best = self.x[first]
                place = i32(0)
                for k in range(1, num):
                    value = self.x[first + k * inner]
                    if op == "max":
                        if value > best:
                            best = value
                            place = i32(k)
                    else:
                        if value < best:
                            best = value
                            place = i32(k)
                self.out[r] = made(place)

    return ArgExtremum


# --- elements in another order, and new ones --------------------------------------------------------------------------


@vertex_template
def Permute(kind: ElementType) -> type:
    """Elements of four dimensions in another order."""

    @codelet(name=f"tessellate::Permute<{kind.poplar_name}>")
    class Permute(MultiVertex):
        x: Input[Vector[kind]]
        out: Output[Vector[kind]]
        size1: u32
        size2: u32
        size3: u32
        step0: u32
        step1: u32
        step2: u32
        step3: u32

        def compute(self, worker_id):
            size1 = i32(self.size1)
            size2 = i32(self.size2)
            size3 = i32(self.size3)
            step0 = i32(self.step0)
            step1 = i32(self.step1)
            step2 = i32(self.step2)
            step3 = i32(self.step3)
            for r in range(worker_id, len(self.x) // size3, self.num_workers):
                row = i32(r)
                first = (row % size2) * step2 + ((row // size2) % size1) * step1 + (row // (size1 * size2)) * step0
                for c in range(size3):
                    self.out[row * size3 + c] = self.x[first + c * step3]

    return Permute


@vertex_template
def Iota(kind: ElementType) -> type:
    """Indices along one dimension of [outer, num, inner]."""

    @codelet(name=f"tessellate::Iota<{kind.poplar_name}>")
    class Iota(MultiVertex):
        out: Output[Vector[kind]]
        num: u32
        inner: u32

        def compute(self, worker_id):
            num = i32(self.num)
            inner = i32(self.inner)
            for r in range(worker_id, len(self.out), self.num_workers):
                self.out[r] = kind((i32(r) // inner) % num)

    return Iota


@vertex_template
def Power(kind: ElementType, times: str) -> type:
    """A whole power, by products."""
    count, acc = int(times), wide(kind)
    factors = max(count, -count)

    @codelet(name=f"tessellate::Power<{kind.poplar_name},{times}>")
    class Power(MultiVertex):
        x: Input[Vector[kind]]
        out: Output[Vector[kind]]

        def compute(self, worker_id):
            for i in range(worker_id, len(self.out), self.num_workers):
                value = acc(self.x[i])
                total = acc(1)
                for _ in range(factors):
                    total = total * value
                if count < 0:
                    total = acc(1) / total
                self.out[i] = kind(total)

    return Power


# --- windows at indices -----------------------------------------------------------------------------------------------

# A window begins where its index says: the sum of index k times strides[k]. Its element w lies offsets[w] behind that,
# and is element rows[b] + columns[w] of what is gathered or scattered.


@vertex_template
def GatherWindows(kind: ElementType, outside: str) -> type:
    """Windows of an array; of those outside of it the filler where ``outside`` is ``fill``, else the nearest one."""

    @codelet(name=f"tessellate::GatherWindows<{kind.poplar_name},{outside}>")
    class GatherWindows(MultiVertex):
        x: Input[Vector[kind]]
        indices: Input[Vector[i32]]
        filler: Input[Vector[kind]]
        strides: Input[Vector[i32]]
        limits: Input[Vector[i32]]
        offsets: Input[Vector[u32]]
        bases: Input[Vector[u32]]
        rows: Input[Vector[u32]]
        columns: Input[Vector[u32]]
        out: Output[Vector[kind]]

        def compute(self, worker_id):
            num = len(self.strides)
            for b in range(worker_id, len(self.rows), self.num_workers):
                first = i32(self.bases[b])
                is_inside = True
                for k in range(num):
                    index = self.indices[b * num + k]
                    near = max(min(index, self.limits[k]), i32(0))
                    if near != index:
                        is_inside = False
                    first += near * self.strides[k]
                to = self.rows[b]
                for w in range(len(self.columns)):
                    value = self.x[first + i32(self.offsets[w])]
                    if outside == "fill" and not is_inside:
                        value = self.filler[0]
                    self.out[to + self.columns[w]] = value

    return GatherWindows


SHARE = 8
"""Neighbouring elements that one worker changes: 8 bytes of any type, so that none writes into another's word."""


@vertex_template
def ScatterWindows(kind: ElementType, op: str, outside: str) -> type:
    """Windows of an array changed, one after the other; those outside are left out, or moved where ``outside`` is
    ``clip``."""

    @codelet(name=f"tessellate::ScatterWindows<{kind.poplar_name},{op},{outside}>")
    class ScatterWindows(MultiVertex):
        x: InOut[Vector[kind]]
        indices: Input[Vector[i32]]
        updates: Input[Vector[kind]]
        strides: Input[Vector[i32]]
        limits: Input[Vector[i32]]
        offsets: Input[Vector[u32]]
        bases: Input[Vector[u32]]
        rows: Input[Vector[u32]]
        columns: Input[Vector[u32]]

        def compute(self, worker_id):
            num = len(self.strides)
            for b in range(len(self.rows)):
                first = i32(self.bases[b])
                is_inside = True
                for k in range(num):
                    index = self.indices[b * num + k]
                    near = max(min(index, self.limits[k]), i32(0))
                    if near != index:
                        is_inside = False
                    first += near * self.strides[k]
                if is_inside or outside == "clip":
                    for w in range(len(self.columns)):
                        at = first + i32(self.offsets[w])
                        if (at // SHARE) % i32(self.num_workers) == i32(worker_id):
                            value = self.updates[self.rows[b] + self.columns[w]]
                            if op == "set":
                                self.x[at] = value
                            elif op == "sub":
                                self.x[at] = self.x[at] - value
                            else:
                                self.x[at] = combined(op, self.x[at], value)

    return ScatterWindows


@vertex_template
def Rotation2d(kind: ElementType) -> type:
    """Two vectors turned by an angle of which cosine and sine are given."""

    @codelet(name=f"tessellate::Rotation2d<{kind.poplar_name}>")
    class Rotation2d(MultiVertex):
        cs: Input[Vector[kind]]
        inrow0: Input[Vector[kind]]
        inrow1: Input[Vector[kind]]
        outrow0: Output[Vector[kind]]
        outrow1: Output[Vector[kind]]

        def compute(self, worker_id):
            c = self.cs[0]
            s = self.cs[1]
            for i in range(worker_id, len(self.inrow0), self.num_workers):
                a = self.inrow0[i]
                b = self.inrow1[i]
                self.outrow0[i] = c * a - s * b
                self.outrow1[i] = s * a + c * b

        @staticmethod
        def cycles(v, ipu):
            return ipu.num_workers * (ROTATION_START + ROTATION_VECTOR * -(-v.inrow0 // (2 * ipu.num_workers)))

    return Rotation2d


# --- random numbers ---------------------------------------------------------------------------------------------------

# Each worker draws from its own state of four words: a hash of two of them and of the number of the element. The state
# moves on by a hash of itself. States that nobody set are zeros on all tiles; there the tile's number is hashed too.


@vertex_template
def Random(distribution: str, kind: ElementType) -> type:
    """Numbers uniform in [offset − scale / 2, offset + scale / 2), or normal: mean ``offset``, deviation ``scale``."""

    @codelet(name=f"tessellate::Random<{distribution},{kind.poplar_name}>")
    class Random(MultiVertex):
        seeds: InOut[Vector[u32]]
        out: Output[Vector[kind]]
        number: u32
        offset: f32
        scale: f32

        def compute(self, worker_id):
            base = worker_id * 4
            s0 = self.seeds[base]
            s1 = self.seeds[base + 1]
            number = self.number if (s0 | s1 | self.seeds[base + 2] | self.seeds[base + 3]) == 0 else u32(0)
            offset = self.offset
            scale = self.scale
            for i in range(worker_id, len(self.out), self.num_workers):
                word = random_u32(s0, s1, number, u32(2 * i))
                u = f32(i32(word >> 8)) * 5.9604645e-08
                if distribution == "uniform":
                    self.out[i] = kind(offset + scale * (u - 0.5))
                else:
                    other = f32(i32(random_u32(s0, s1, number, u32(2 * i + 1)) >> 8)) * 5.9604645e-08
                    size = sqrt(-2.0 * log(u + 5.9604645e-08))
                    self.out[i] = kind(offset + scale * size * cos(6.2831853 * other))
            for k in range(4):
                self.seeds[base + k] = random_u32(s0, s1, number + u32(k), u32(0x80000000 + worker_id))

    return Random


# --- orthogonal factors -----------------------------------------------------------------------------------------------


@vertex_template
def Householder(kind: ElementType) -> type:
    """The vector that turns a column below its first ``col_idx`` elements onto an axis, and 2 / |vector|²."""

    @codelet(name="tessellate::Householder<float>")
    class Householder(Vertex):
        Rcol: Input[Vector[f32]]
        sdiag: Input[Vector[f32]]
        v: Output[Vector[f32]]
        vrescale: Output[Vector[f32]]
        col_idx: u32

        def compute(self):
            col = i32(self.col_idx)
            rest = f32(0.0)
            for i in range(col + 1, len(self.Rcol)):
                rest += self.Rcol[i] * self.Rcol[i]
            for i in range(len(self.Rcol)):
                self.v[i] = self.Rcol[i] if i32(i) > col else f32(0.0)
            head = self.Rcol[col]
            norm = sqrt(rest + head * head)
            sign = self.sdiag[min(self.col_idx, len(self.sdiag) - 1)]
            if sign == 0.0:
                sign = head
            shift = norm if sign >= 0.0 else -norm
            # head + shift without the difference of like numbers: of (shift² − head²) / (shift − head).
            first = head + shift
            if head * shift < 0.0:
                first = rest / (shift - head)
            self.v[col] = first
            length = rest + first * first
            self.vrescale[0] = 2.0 / length if length > 0.0 else f32(0.0)

    return Householder


@vertex_template
def HouseholderUpdate(kind: ElementType) -> type:
    """A vector mirrored at the plane of ``v``: x − vrescale · (v · x) · v, of partial sums ``w`` of v · x.

    Elements before ``start_idx`` stay; a shorter ``v`` is that of the last elements.
    """

    @codelet(name="tessellate::HouseholderUpdate<float>")
    class HouseholderUpdate(MultiVertex):
        x: Input[Vector[f32]]
        v: Input[Vector[f32]]
        w: Input[Vector[f32]]
        vrescale: Input[Vector[f32]]
        out: Output[Vector[f32]]
        start_idx: u32

        def compute(self, worker_id):
            total = f32(0.0)
            for k in range(len(self.w)):
                total += self.w[k]
            scale = total * self.vrescale[0]
            share = (len(self.out) + self.num_workers - 1) // self.num_workers
            behind = len(self.out) - len(self.v)
            begin = worker_id * share
            end = min(begin + share, len(self.out))
            first = min(max(begin, max(self.start_idx, behind)), max(begin, end))
            for i in range(begin, first):
                self.out[i] = self.x[i]
            for i in range(first, end):
                self.out[i] = self.x[i] - scale * self.v[i - behind]

        @staticmethod
        def cycles(v, ipu):
            return ipu.num_workers * (REFLECTION_START + REFLECTION_VECTOR * -(-v.out // (2 * ipu.num_workers)))

    return HouseholderUpdate


@vertex_template
def DotProduct(kind: ElementType) -> type:
    """The product of two vectors, a partial sum for each worker."""

    @codelet(name="tessellate::DotProduct<float>")
    class DotProduct(MultiVertex):
        x: Input[Vector[f32]]
        y: Input[Vector[f32]]
        partials: Output[Vector[f32]]

        def compute(self, worker_id):
            share = (len(self.x) + self.num_workers - 1) // self.num_workers
            total = f32(0.0)
            for i in range(worker_id * share, min(worker_id * share + share, len(self.x))):
                total += self.x[i] * self.y[i]
            self.partials[worker_id] = total

    return DotProduct


# A column begins with its number and a zero, so that steps of a loop, which are all alike, know what they turn.


@vertex_template
def JacobiStep(kind: ElementType) -> type:
    """Cosine and sine that make two columns' common element zero, their numbers, and the columns turned.

    The angle is that of Golub and Van Loan's ``symSchur2``: the smaller one of two.
    """

    @codelet(name="tessellate::JacobiStep<float>")
    class JacobiStep(MultiVertex):
        pcol: Input[Vector[f32]]
        qcol: Input[Vector[f32]]
        cs: Output[Vector[f32]]
        pcol_updated: Output[Vector[f32]]
        qcol_updated: Output[Vector[f32]]

        def compute(self, worker_id):
            p = i32(self.pcol[0]) + 2
            q = i32(self.qcol[0]) + 2
            app = self.pcol[p]
            aqq = self.qcol[q]
            apq = self.pcol[q]
            c = f32(1.0)
            s = f32(0.0)
            if apq != 0.0:
                tau = (aqq - app) / (2.0 * apq)
                root = sqrt(1.0 + tau * tau)
                t = 1.0 / (tau + root) if tau >= 0.0 else 1.0 / (tau - root)
                c = 1.0 / sqrt(1.0 + t * t)
                s = t * c
                # Angles whose square sum is 1 on average, or columns would grow or shrink with every step.
                scale = 1.5 - 0.5 * (c * c + s * s)
                c = c * scale
                s = s * scale
            if worker_id == 0:
                self.cs[0] = c
                self.cs[1] = s
                self.cs[2] = self.pcol[0]
                self.cs[3] = self.qcol[0]
                for k in range(2):
                    self.pcol_updated[k] = self.pcol[k]
                    self.qcol_updated[k] = self.qcol[k]
            for i in range(2 + worker_id, len(self.pcol), self.num_workers):
                a = self.pcol[i]
                b = self.qcol[i]
                self.pcol_updated[i] = c * a - s * b
                self.qcol_updated[i] = s * a + c * b

    return JacobiStep


@vertex_template
def JacobiRows(kind: ElementType) -> type:
    """Two columns with their elements turned in pairs, each pair by the angle of its rows."""

    @codelet(name="tessellate::JacobiRows<float>")
    class JacobiRows(MultiVertex):
        cs: Input[Vector[f32]]
        pcol: Input[Vector[f32]]
        qcol: Input[Vector[f32]]
        pcol_updated: Output[Vector[f32]]
        qcol_updated: Output[Vector[f32]]

        def compute(self, worker_id):
            if worker_id == 0:
                for k in range(2):
                    self.pcol_updated[k] = self.pcol[k]
                    self.qcol_updated[k] = self.qcol[k]
            for k in range(worker_id, len(self.cs) // 4, self.num_workers):
                c = self.cs[4 * k]
                s = self.cs[4 * k + 1]
                p = i32(self.cs[4 * k + 2]) + 2
                q = i32(self.cs[4 * k + 3]) + 2
                self.pcol_updated[p] = c * self.pcol[p] - s * self.pcol[q]
                self.pcol_updated[q] = s * self.pcol[p] + c * self.pcol[q]
                self.qcol_updated[p] = c * self.qcol[p] - s * self.qcol[q]
                self.qcol_updated[q] = s * self.qcol[p] + c * self.qcol[q]

    return JacobiRows
