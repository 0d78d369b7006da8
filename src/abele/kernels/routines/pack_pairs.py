"""Functions that pack panels of bf16 in pairs: two neighbours along the summed dim are a word of four bytes.

Where the elements of a row lie one after the other along the summed dim, they are such words already, and go through
the transposes of f32. A pair that two rows have in common is packed one element at a time. After an odd number of
elements the last pair has a zero, in both operands, since what is there by chance could be infinite.
"""

from __future__ import annotations

from typing import Any

from abele.kernels.routines.packing import PackedPanel, PackingWriter
from abele.kernels.routines.writer import i64
from abele.llvm import ir as ll
from abele.llvm.emit import F32, I16, I32, constant

Value = Any


class PairPackingWriter(PackingWriter):
    """The functions that pack pairs while they are written."""

    def _in_rows(self, first: Value, last: Value, run: int) -> Value:
        # A piece that begins with the second of a pair has none of its pairs in one word.
        is_odd = self.builder.trunc(first, ll.IntType(1))
        whole = self.builder.and_(self.builder.sub(last, first), i64(-2 * run))
        return self.builder.select(is_odd, i64(0), whole)

    def _pack_across(self, panel: PackedPanel, piece: tuple[Value, Value], depth: Value) -> None:
        first, size = piece
        lanes, b = self.sizes.lanes, self.builder
        halves = ll.VectorType(I16, lanes)
        words = ll.VectorType(I32, lanes)
        start = self.at(panel.source, self._entry(panel.across, first), I16)
        to = self.at(panel.target, first, F32)
        masks = [self.mask(size, v) for v in range(-(-panel.width // lanes))]

        def loaded(p: Value, v: int) -> Value:
            line = self.at(start, self._entry(panel.along, p), I16)
            return b.zext(self.masked_load(self.at(line, i64(v * lanes), I16), masks[v], halves), words)

        def store(value: Value, p: Value, v: int) -> None:
            row = self.at(to, b.mul(b.lshr(p, i64(1)), i64(panel.width)), F32)
            self.masked_store(value, self.at(row, i64(v * lanes), F32), masks[v])

        even = b.and_(depth, i64(-2))
        with self.loop(i64(0), even, 2) as p:
            for v in range(len(masks)):
                second = b.shl(loaded(b.add(p, i64(1)), v), constant(words, 16))
                store(b.or_(loaded(p, v), second), p, v)
        with b.if_then(b.icmp_signed("<", even, depth)):
            for v in range(len(masks)):
                store(loaded(even, v), even, v)

    def _pack_along(self, panel: PackedPanel, run: int, ends: tuple[Value, Value]) -> None:
        lanes, width, b = self.sizes.lanes, panel.width, self.builder
        last = b.sub(panel.there, i64(1))
        raw = ll.VectorType(I32, run)
        # Rows that are not there are copies of the last one; their results are not stored.
        starts = [self.at(panel.source, self._entry(panel.across, self.least(i64(r), last)), I16) for r in range(width)]
        masks = [self.mask(panel.there, v) for v in range(-(-width // lanes))]
        with self.loop(*ends, 2 * run) as p:
            to = self.at(panel.target, b.mul(b.lshr(p, i64(1)), i64(width)), F32)
            from_ = self._entry(panel.along, p)
            for v, mask in enumerate(masks):
                places = [self.at(s, from_, I16) for s in starts[v * lanes : (v + 1) * lanes]]
                square = [b.load(s, typ=raw, align=2) for s in places]
                square += [ll.Constant(raw, ll.Undefined)] * (lanes - len(square))
                for n, column in enumerate(self._transposed(square, run)):
                    self.masked_store(column, self.at(to, i64(n * width + v * lanes), F32), mask)

    def _pack_one_by_one(self, panel: PackedPanel, ends: tuple[Value, Value]) -> None:
        with self.loop(*ends, 1) as p:
            line = self.at(panel.source, self._entry(panel.along, p), I16)
            with self.loop(i64(0), panel.there, 1) as r:
                one = self.builder.load(self.at(line, self._entry(panel.across, r), I16), typ=I16, align=2)
                self.builder.store(one, self._half(panel, p, r), align=2)

    def _fill(self, panel: PackedPanel, depth: Value) -> None:
        is_odd = self.builder.trunc(depth, ll.IntType(1))
        with self.builder.if_then(is_odd), self.loop(i64(0), panel.there, 1) as r:
            self.builder.store(constant(I16, 0), self._half(panel, depth, r), align=2)

    def _half(self, panel: PackedPanel, p: Value, r: Value) -> Value:
        """Address of element (r, p) of the panel."""
        b = self.builder
        pair = b.add(b.mul(b.lshr(p, i64(1)), i64(panel.width)), r)
        return self.at(panel.target, b.add(b.mul(pair, i64(2)), b.and_(p, i64(1))), I16)
