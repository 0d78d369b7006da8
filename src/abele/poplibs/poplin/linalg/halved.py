"""Solves with triangular matrices, by halves: diagonal blocks one after the other, products between.

Why it is right: cut a lower triangle into [A₁₁ 0; A₂₁ A₂₂]. Then A₁₁·X₁ = B₁ is a smaller system of the same kind, and
once X₁ is known, so is A₂₂·X₂ = B₂ − A₂₁·X₁. An upper triangle is solved from the bottom in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

from abele.graph import Graph, Sequence, Tensor, concat
from abele.poplibs.poplin.linalg import blocks
from abele.poplibs.popops.elementwise.map import emit_map
from abele.poplibs.popops.expr import _1, _2


@dataclass
class HalvedSolve(ABC):
    """Solve of A·X = B for batches, without the solve of a diagonal block.

    Attributes:
        graph: The graph.
        a: Triangular matrices [batch, n, n].
        b: Right-hand sides [batch, n, r].
        lower: True if A is lower triangular.
        unit: True if its diagonal is taken as ones.
        chosen: Options.
    """

    graph: Graph
    a: Tensor
    b: Tensor
    lower: bool
    unit: bool
    chosen: blocks.BlockOptions

    @cached_property
    def extents(self) -> list[int]:
        """Rows of each diagonal block."""
        return blocks.extents(self.a.shape[1], self.chosen.block)

    @cached_property
    def out(self) -> list[Tensor]:
        """X, block after block, each [batch, m, r]."""
        return [self.new_block(index, size) for index, size in enumerate(self.extents)]

    def emit(self, body: Sequence) -> None:
        """Append the steps that fill :attr:`out`."""
        self._halves(body, 0, len(self.extents), self.b)

    @abstractmethod
    def new_block(self, index: int, size: int) -> Tensor:
        """A variable for block ``index`` of X, [batch, size, r]."""

    @abstractmethod
    def solve_block(self, body: Sequence, index: int, b: Tensor) -> None:
        """Append the steps that solve diagonal block ``index`` for ``b`` into its block of X."""

    def _halves(self, body: Sequence, begin: int, end: int, b: Tensor) -> Tensor:
        """Solve the diagonal blocks from ``begin`` to ``end``: halves one after the other, a product between."""
        if end - begin == 1:
            self.solve_block(body, begin, b)
            return self.out[begin]
        middle = (begin + end) // 2
        rows = [sum(self.extents[:i]) for i in (begin, middle, end)]
        low, high = slice(rows[0], rows[1]), slice(rows[1], rows[2])
        cut = rows[1] - rows[0]
        # A lower system is solved from the top, an upper one from the bottom: one half is known before the other needs
        # it.
        first, last = ((begin, middle), (middle, end)) if self.lower else ((middle, end), (begin, middle))
        mine, other = (slice(None, cut), slice(cut, None)) if self.lower else (slice(cut, None), slice(None, cut))
        known = self._halves(body, *first, b[:, mine])
        corner = self.a[:, high, low] if self.lower else self.a[:, low, high]
        unknown = self._halves(body, *last, self.eliminate(body, corner, known, b[:, other]))
        return concat([known, unknown] if self.lower else [unknown, known], 1)

    def eliminate(self, body: Sequence, corner: Tensor, known: Tensor, b: Tensor) -> Tensor:
        """Append the steps of B − A·X of the part of X that is known; a new tensor."""
        added = blocks.emit_product(self.graph, body, corner, known, self.chosen.proportion)
        rest = self.graph.clone(added, name="rest")
        emit_map(self.graph, body, [_1 - _2], [b, added], [rest], "rest")
        return rest
