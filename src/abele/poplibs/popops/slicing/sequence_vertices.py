"""The vertex that copies sequences of rows."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet import InOut, Input, MultiVertex, Vector, VectorList, codelet
from abele.machine import Ipu
from abele.numerics import ElementType, i64, u32

START_SLOTS, SEQUENCE_SLOTS, WORD_SLOTS = 60, 60, 2
"""Slots of a worker before the first sequence, of each sequence, and of each 32 bits that are copied.
Source: machine reference §4.9 (SequenceSlice)."""


@cache
def sequence_codelet(dtype: ElementType, index: ElementType) -> type:
    """Regions [cells, rows, width] of both; the workers share the rows of every sequence. Cost: §4.9, by 4 bytes."""

    @codelet
    class SequenceSlice(MultiVertex):
        source: Input[VectorList[dtype]]
        target: InOut[VectorList[dtype]]
        width: Vector[u32]
        lengths: Input[Vector[index]]
        source_offsets: Input[Vector[index]]
        target_offsets: Input[Vector[index]]
        source_rows: u32
        target_rows: u32

        def compute(self, worker_id):
            for r in range(len(self.target)):
                width = i64(self.width[r])
                cells = i64(len(self.target[r])) // (width * i64(self.target_rows))
                for i in range(len(self.lengths)):
                    low = i64(self.source_offsets[i])
                    base = i64(self.target_offsets[i])
                    most = min(i64(self.source_rows) - low, i64(self.target_rows) - base)
                    num = min(i64(self.lengths[i]), most)
                    for k in range(i64(worker_id), num, 6):
                        if low + k >= 0 and base + k >= 0:
                            for c in range(cells):
                                s = (c * i64(self.source_rows) + low + k) * width
                                t = (c * i64(self.target_rows) + base + k) * width
                                for e in range(width):
                                    self.target[r][t + e] = self.source[r][s + e]

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            words = -(-np.asarray(v.target.total, np.int64) * dtype.bytes // 4)
            sequences = np.asarray(v.target.rows, np.int64) * np.asarray(v.lengths, np.int64)
            share = -(-words // ipu.num_workers)
            return ipu.num_workers * (START_SLOTS + SEQUENCE_SLOTS * sequences + WORD_SLOTS * share)

    return SequenceSlice
