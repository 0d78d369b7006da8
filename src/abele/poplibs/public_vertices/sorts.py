"""Heap sorts on one worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.machine import Ipu
from abele.numerics import ElementType, f16, f32, i32, u32
from abele.poplibs.public_vertices.family import Family, Instance
from abele.poplibs.public_vertices.parameters import type_of
from abele.poplibs.public_vertices.text import indented, vector

SORT_SLOTS, SORT_LEVEL, SORT_ELEMENT, SORT_ENTRY = 8, 19, 6, 2
"""Worker slots of HeapSort: 8·(19·n·⌊log2 n⌋ + 6·n + 2), twice that with values. Source: machine reference §4.12."""


def families() -> list[Family]:
    """Every vertex of this module."""
    numbers = type_of(f32, f16, i32, u32)
    return [
        Family("HeapSortVertex", (numbers,), _sort(False), "sure", "out in ascending order"),
        Family(
            "HeapSortVertexKV",
            (numbers, numbers),
            _sort(True),
            "sure",
            "keys in ascending order, values along with them",
        ),
    ]


def _sort(has_values: bool) -> Callable[..., Instance]:
    def make(dtype: ElementType, value: ElementType | None = None) -> Instance:
        key = "key" if has_values else "out"
        columns = [key, "value"] if has_values else [key]
        fields = [vector(key, dtype, "InOut", align=4)]
        fields += [vector("value", value, "InOut", align=4)] if value is not None else []
        swap = []
        for n in columns:
            swap += [f"t_{n} = self.{n}[a]", f"self.{n}[a] = self.{n}[b]", f"self.{n}[b] = t_{n}"]
        sift = [
            "a = start",
            "b = 2 * a + 1",
            "while b < end:",
            f"    if b + 1 < end and self.{key}[b] < self.{key}[b + 1]:",
            "        b = b + 1",
            f"    if self.{key}[a] < self.{key}[b]:",
            *indented(swap, 2),
            "        a = b",
            "        b = 2 * a + 1",
            "    else:",
            "        b = end",
        ]
        body = [
            f"size = len(self.{key})",
            "for k in range(size // 2):",
            "    start = size // 2 - 1 - k",
            "    end = size",
            *indented(sift),
            "for k in range(1, size):",
            "    a = i64(0)",
            "    b = size - k",
            *indented(swap),
            "    start = i64(0)",
            "    end = size - k",
            *indented(sift),
        ]

        def cycles(v: Any, ipu: Ipu) -> Int64:
            n = np.asarray(getattr(v, key), np.int64)
            levels = np.floor(np.log2(np.maximum(n, 1))).astype(np.int64)
            slots = SORT_SLOTS * (SORT_LEVEL * n * levels + SORT_ELEMENT * n + SORT_ENTRY)
            return np.asarray(slots * (2 if has_values else 1), np.int64)

        return Instance("Vertex", tuple(fields), tuple(body), cycles)

    return make
