"""The vertices of a sorting network: compare and exchange between tiles, and whole rounds on one.

All comparators put the better element first. The first round of a merge compares mirrored positions, so that both
halves may be sorted the same way, and a row of any length is like one padded with the worst elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet import InOut, Input, Vector
from abele.codelet.write import CodeWriter, WrittenValue
from abele.codelet.written import written_codelet
from abele.machine import Ipu
from abele.numerics import ElementType, i32
from abele.poplibs.popops.sorting.cost import PairCost, pair_cost

_VECTOR: Any = Vector


@dataclass(frozen=True)
class Record:
    """Key of a sort and the values that move with it.

    Attributes:
        key: Element type of keys.
        values: Element types of the values that go with a key.
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
        """Cost of comparing pairs."""
        return pair_cost(self.key, len(self.values), self.by_second)

    def fields(self, suffix: str = "", direction: Any = InOut) -> dict[str, Any]:
        """Declarations of the fields of one place."""
        return {f"{name}{suffix}": direction[_VECTOR[dtype]] for name, dtype in self.columns.items()}

    def exchange(
        self,
        code: CodeWriter,
        low: Callable[[], WrittenValue],
        high: Callable[[], WrittenValue],
        suffixes: tuple[str, str] = ("", ""),
        *,
        keep_high: bool = True,
    ) -> None:
        """Write statements that put the better of the records at ``low`` and ``high`` into ``low``."""
        one, other = suffixes
        for name in self.columns:
            code.let(f"a_{name}", code.element(f"{name}{one}", low()))
            code.let(f"b_{name}", code.element(f"{name}{other}", high()))
        code.let("better", self._is_better(code))
        for name in self.columns:
            better, a, b = (code.local(n) for n in ("better", f"a_{name}", f"b_{name}"))
            code.store(f"{name}{one}", code.choice(better, b, a), low())
            if keep_high:
                better, a, b = (code.local(n) for n in ("better", f"a_{name}", f"b_{name}"))
                code.store(f"{name}{other}", code.choice(better, a, b), high())

    def _is_better(self, code: CodeWriter) -> WrittenValue:
        """True if record b is better than record a. A key that is no number counts as the largest."""
        a, b = code.local("a_k"), code.local("b_k")
        better = b.compare(">" if self.largest_first else "<", a)
        if self.key.is_float:
            large, small = (b, a) if self.largest_first else (a, b)
            better = better.either(large.compare("!=", large).both(small.compare("==", small)))
        if not self.by_second:
            return better
        equal = b.compare("==", a)
        if self.key.is_float:
            equal = equal.either(b.compare("!=", b).both(a.compare("!=", a)))
        return better.either(equal.both(code.local("b_v0").compare("<", code.local("a_v0"))))


@lru_cache(maxsize=256)
def swap_codelet(record: Record, mirrored: bool) -> type:
    """The vertex that compares places i of two vectors, or i of the first and i from the end of the second."""
    code = CodeWriter("SupervisorVertex", {**record.fields("_low"), **record.fields("_high")})

    def high() -> WrittenValue:
        return code.length("k_low") - 1 - code.local("i") if mirrored else code.local("i")

    with code.loop("i", 0, code.length("k_low")):
        record.exchange(code, lambda: code.local("i"), high, ("_low", "_high"))

    def cycles(v: Any, ipu: Ipu) -> Int64:
        pairs = np.asarray(v.k_low, np.int64)
        return record.cost.cycles(pairs, int(pairs.max(initial=1)), ipu.num_workers)

    return written_codelet("CompareAndSwap", code, cycles, extra=record)


def _halve(code: CodeWriter, record: Record, row: Callable[[], WrittenValue], suffix: str = "") -> None:
    """Write rounds at ``distance``, half of it, … 1 over the row that begins at ``base``."""

    def distance() -> WrittenValue:
        return code.local("distance")

    with code.repeat(distance().compare(">", 0)):
        with code.loop("q", 0, (row() + 2 * distance() - 1) // (2 * distance())) as q:
            code.let("start", code.local("base") + q * 2 * distance())
            left = code.call("max", code.local("base") + row() - code.local("start") - distance(), 0)
            with code.loop("i", 0, code.call("min", distance(), left)) as i:
                code.let("low", code.local("start") + i)
                code.let("high", code.local("low") + distance())
                record.exchange(code, lambda: code.local("low"), lambda: code.local("high"), (suffix, suffix))
        code.let("distance", distance() // 2)


def _sort(code: CodeWriter, record: Record, row: Callable[[], WrittenValue]) -> None:
    """Write the merges of neighbouring stretches, of 1, 2, 4, … records, over the row that begins at ``base``."""
    code.let("size", 2)
    with code.repeat(code.local("size").compare("<", 2 * row())):
        code.let("half", code.local("size") // 2)
        with code.loop("q", 0, (row() + code.local("size") - 1) // code.local("size")) as q:
            start = code.let("start", code.local("base") + q * code.local("size"))
            left = code.call("max", code.local("base") + row() - start - code.local("half"), 0)
            with code.loop("i", 0, code.call("min", code.local("half"), left)) as i:
                code.let("low", code.local("start") + code.local("half") - 1 - i)
                code.let("high", code.local("start") + code.local("half") + code.local("i"))
                record.exchange(code, lambda: code.local("low"), lambda: code.local("high"))
        code.let("distance", code.local("half") // 2)
        _halve(code, record, row)
        code.let("size", code.local("size") * 2)


@lru_cache(maxsize=256)
def local_codelet(record: Record, whole: bool) -> type:
    """Vertex that sorts rows of ``row`` records, or ends the merge of rows without further exchange.

    A merge begins at half of ``width``, a power of two that is at least ``row``.
    """
    code = CodeWriter("SupervisorVertex", {**record.fields(), "row": i32, "width": i32})
    with code.loop("r", 0, code.length("k") // code.scalar("row")) as r:
        code.let("base", r * code.scalar("row"))
        if whole:
            _sort(code, record, lambda: code.scalar("row"))
        else:
            code.let("distance", code.scalar("width") // 2)
            _halve(code, record, lambda: code.scalar("row"))

    def cycles(v: Any, ipu: Ipu) -> Int64:
        pairs = np.asarray(v.k, np.int64) // 2
        levels = int(np.ceil(np.log2(max(int(np.max(v.width)), 1))))
        # A sort of n places has level + 1 rounds on each level; a merge the rounds of the last level only.
        distances = [2**j for level in range(levels if whole else 1) for j in range(level + 1 if whole else levels)]
        total = np.zeros(len(pairs), np.int64)
        for distance in distances:
            total += record.cost.cycles(pairs, distance, ipu.num_workers)
        return total

    return written_codelet("SortRows" if whole else "MergeRows", code, cycles, extra=record)


@lru_cache(maxsize=256)
def best_codelet(record: Record) -> type:
    """The vertex that leaves the best ``kept`` records of rows of ``row``, sorted, at their begins; others in disorder.

    Stretches of ``kept`` records, a power of two, are sorted; then of two neighbours the first takes the best of both,
    of what is left again, until a row has one. An element is compared log²(kept) / 2 times, not log²(row) / 2 times.
    """
    code = CodeWriter("SupervisorVertex", {**record.fields(), "row": i32, "kept": i32})

    def row() -> WrittenValue:
        return code.scalar("row")

    def kept() -> WrittenValue:
        return code.scalar("kept")

    with code.loop("r", 0, code.length("k") // row()) as r:
        with code.loop("s", 0, (row() + kept() - 1) // kept()) as s:
            code.let("base", r * row() + s * kept())
            code.let("stretch", code.call("min", kept(), row() - s * kept()))
            _sort(code, record, lambda: code.local("stretch"))
        code.let("apart", kept())
        with code.repeat(code.local("apart").compare("<", row())):
            # Only a stretch that has another behind it merges, so the first of a pair is whole.
            pairs = (row() + code.local("apart") - 1) // (2 * code.local("apart"))
            with code.loop("s", 0, pairs) as s:
                code.let("base", r * row() + s * 2 * code.local("apart"))
                left = row() - s * 2 * code.local("apart") - code.local("apart")
                with code.loop("i", 0, code.call("min", kept(), left)) as i:
                    code.let("low", code.local("base") + kept() - 1 - i)
                    code.let("high", code.local("base") + code.local("apart") + code.local("i"))
                    record.exchange(code, lambda: code.local("low"), lambda: code.local("high"), keep_high=False)
                code.let("distance", kept() // 2)
                _halve(code, record, kept)
            code.let("apart", code.local("apart") * 2)

    def cycles(v: Any, ipu: Ipu) -> Int64:
        records, workers = np.asarray(v.k, np.int64), ipu.num_workers
        row, kept = int(np.max(v.row)), int(np.max(v.kept))
        levels = int(np.log2(kept))
        total = np.zeros(len(records), np.int64)
        for distance in [2**j for level in range(levels) for j in range(level + 1)]:
            total += record.cost.cycles(records // 2, distance, workers)
        apart = kept
        while apart < row:
            # Pairs of stretches of this level: their records meet, and what is kept is merged.
            met = records // (2 * apart) * kept
            total += record.cost.cycles(met, kept, workers)
            for distance in [2**j for j in range(levels)]:
                total += record.cost.cycles(met // 2, distance, workers)
            apart *= 2
        return total

    return written_codelet("BestOfRows", code, cycles, extra=record)


@lru_cache(maxsize=256)
def keep_codelet(record: Record) -> type:
    """The vertex that leaves the best of two sorted vectors in the first, sorted; the second may be shorter."""
    code = CodeWriter("SupervisorVertex", {**record.fields("_low"), **record.fields("_high", Input)})
    code.let("row", code.length("k_low"))
    code.let("other", code.length("k_high"))
    with code.loop("i", 0, code.local("other")) as i:
        code.let("at", code.local("row") - 1 - i)
        ends = ("_low", "_high")
        record.exchange(code, lambda: code.local("at"), lambda: code.local("i"), ends, keep_high=False)
    code.let("base", 0)
    code.let("distance", code.local("row") // 2)
    _halve(code, record, lambda: code.local("row"), "_low")

    def cycles(v: Any, ipu: Ipu) -> Int64:
        kept, workers = np.asarray(v.k_low, np.int64), ipu.num_workers
        total = record.cost.cycles(np.asarray(v.k_high, np.int64), int(kept.max(initial=1)), workers)
        distance = int(kept.max(initial=1)) // 2
        while distance > 0:
            total = total + record.cost.cycles(kept // 2, distance, workers)
            distance //= 2
        return total

    return written_codelet("KeepBest", code, cycles, extra=record)
