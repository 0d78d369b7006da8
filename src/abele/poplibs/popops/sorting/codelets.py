"""The vertices of a sorting network: compare and exchange between tiles, and whole rounds on one.

All comparators put the better element first. The first round of a merge compares mirrored positions, so that both
halves may be sorted the same way, and a row of any length is like one padded with the worst elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.machine import Ipu
from abele.numerics import ElementType
from abele.poplibs.popops.expressions.generated import build, type_name
from abele.poplibs.popops.sorting.cost import PairCost, pair_cost

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Record:
    """What is moved together.

    Attributes:
        key: Element type of keys.
        values: Element types of what goes with a key.
        largest_first: True if larger keys are better.
        by_second: True if of equal keys the one with the smaller first value is better.
    """

    key: ElementType
    values: tuple[ElementType, ...] = ()
    largest_first: bool = False
    by_second: bool = False

    @property
    def columns(self) -> dict[str, ElementType]:
        """Names and types of the fields of one place."""
        return {"k": self.key} | {f"v{i}": t for i, t in enumerate(self.values)}

    @property
    def cost(self) -> PairCost:
        """What comparing pairs costs."""
        return pair_cost(self.key, len(self.values), self.by_second)

    def fields(self, suffix: str = "", direction: str = "InOut") -> list[str]:
        """Declarations of the fields of one place."""
        return [f"{n}{suffix}: {direction}[Vector[{type_name(t)}]]" for n, t in self.columns.items()]

    def exchange(
        self, low: str, high: str, suffixes: tuple[str, str] = ("", ""), *, keep_high: bool = True
    ) -> list[str]:
        """Statements that put the better of the records ``low`` and ``high`` into ``low``."""
        one, other = suffixes
        lines = []
        for n in self.columns:
            lines += [f"a_{n} = self.{n}{one}[{low}]", f"b_{n} = self.{n}{other}[{high}]"]
        sign = ">" if self.largest_first else "<"
        second = " or (b_k == a_k and b_v0 < a_v0)" if self.by_second else ""
        lines.append(f"better = (b_k {sign} a_k){second}")
        for n in self.columns:
            lines.append(f"self.{n}{one}[{low}] = b_{n} if better else a_{n}")
            if keep_high:
                lines.append(f"self.{n}{other}[{high}] = a_{n} if better else b_{n}")
        return lines


def _indented(lines: list[str], depth: int) -> list[str]:
    return [f"{'    ' * depth}{line}" for line in lines]


@lru_cache(maxsize=256)
def swap_codelet(record: Record, mirrored: bool) -> type:
    """The vertex that compares places i of two vectors, or i of the first and i from the end of the second."""
    high = "len(self.k_low) - 1 - i" if mirrored else "i"
    lines = ["for i in range(len(self.k_low)):", *_indented(record.exchange("i", high, ("_low", "_high")), 1)]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        pairs = np.asarray(v.k_low, np.int64)
        return record.cost.cycles(pairs, int(pairs.max(initial=1)), ipu.num_workers)

    fields = [*record.fields("_low"), *record.fields("_high")]
    return build("CompareAndSwap", "SupervisorVertex", fields, lines, cycles, extra=record)


def _halving(record: Record, row: str, suffix: str = "") -> list[str]:
    """Rounds at ``distance``, half of it, … 1 over the row that begins at ``base``."""
    return [
        "while distance > 0:",
        f"    for q in range(({row} + 2 * distance - 1) // (2 * distance)):",
        "        start = base + q * 2 * distance",
        f"        for i in range(min(distance, max(base + {row} - start - distance, 0))):",
        "            low = start + i",
        "            high = low + distance",
        *_indented(record.exchange("low", "high", (suffix, suffix)), 3),
        "    distance = distance // 2",
    ]


@lru_cache(maxsize=256)
def local_codelet(record: Record, whole: bool) -> type:
    """The vertex that sorts rows of ``row`` records, or ends the merge of rows whose halves need no more exchange.

    A merge begins at half of ``width``, a power of two that is at least ``row``.
    """
    sort = [
        "size = 2",
        "while size < 2 * self.row:",
        "    half = size // 2",
        "    for q in range((self.row + size - 1) // size):",
        "        start = base + q * size",
        "        for i in range(min(half, max(base + self.row - start - half, 0))):",
        "            low = start + half - 1 - i",
        "            high = start + half + i",
        *_indented(record.exchange("low", "high"), 3),
        "    distance = half // 2",
        *_indented(_halving(record, "self.row"), 1),
        "    size = size * 2",
    ]
    merge = ["distance = self.width // 2", *_halving(record, "self.row")]
    lines = [
        "for r in range(len(self.k) // self.row):",
        "    base = r * self.row",
        *_indented(sort if whole else merge, 1),
    ]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        pairs = np.asarray(v.k, np.int64) // 2
        levels = int(np.ceil(np.log2(max(int(np.max(v.width)), 1))))
        # A sort of n places has level + 1 rounds on each level; a merge the rounds of the last level only.
        distances = [2**j for level in range(levels if whole else 1) for j in range(level + 1 if whole else levels)]
        total = np.zeros(len(pairs), np.int64)
        for distance in distances:
            total += record.cost.cycles(pairs, distance, ipu.num_workers)
        return total

    fields = [*record.fields(), "row: i32", "width: i32"]
    return build("SortRows" if whole else "MergeRows", "SupervisorVertex", fields, lines, cycles, extra=record)


@lru_cache(maxsize=256)
def keep_codelet(record: Record) -> type:
    """The vertex that leaves the best of two sorted vectors in the first, sorted; the second may be shorter."""
    lines = [
        "row = len(self.k_low)",
        "other = len(self.k_high)",
        "for i in range(other):",
        "    at = row - 1 - i",
        *_indented(record.exchange("at", "i", ("_low", "_high"), keep_high=False), 1),
        "base = 0",
        "distance = row // 2",
        *_halving(record, "row", "_low"),
    ]

    def cycles(v: Any, ipu: Ipu) -> Int64:
        kept, workers = np.asarray(v.k_low, np.int64), ipu.num_workers
        total = record.cost.cycles(np.asarray(v.k_high, np.int64), int(kept.max(initial=1)), workers)
        distance = int(kept.max(initial=1)) // 2
        while distance > 0:
            total = total + record.cost.cycles(kept // 2, distance, workers)
            distance //= 2
        return total

    fields = [*record.fields("_low"), *record.fields("_high", "Input")]
    return build("KeepBest", "SupervisorVertex", fields, lines, cycles, extra=record)
