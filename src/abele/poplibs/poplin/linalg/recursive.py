"""Diagonal blocks as PopLibs solves them: one right-hand side by one vertex, more row after row.

A block with one right-hand side is one worker's substitution. With more, the halves go on to single rows: a product on
the AMP units and a subtraction between any two halves, and a division for each row. That is inferred from the published
operators. 64 rows with 64 right-hand sides take the same cycles from either side, where the vertex for upper blocks
takes twice those of lower ones; they come to 63 steps of 2,600 cycles, about what a product and a subtraction take.
256 rows with 256 right-hand sides in blocks of 64 take 16 times as long as a block and twice its memory, so that all
blocks run the same program, called for 64 right-hand sides at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from abele.graph import Call, Execute, Function, Sequence, Tensor
from abele.poplibs.poplin.linalg import blocks
from abele.poplibs.poplin.linalg.codelets import substitute_codelet
from abele.poplibs.poplin.linalg.halved import HalvedSolve
from abele.poplibs.poplin.linalg.masks import emit_mask
from abele.poplibs.popops.elementwise.map import emit_map
from abele.poplibs.popops.expr import _1, _2


@dataclass
class RecursiveSolve(HalvedSolve):
    """A solve by PopLibs' steps, after the other triangle is masked and a unit diagonal filled in."""

    _programs: dict[tuple[int, ...], Function] = field(default_factory=dict)

    def emit(self, body: Sequence) -> None:
        """Append the mask, then the halves."""
        given = self.a
        self.a = self.graph.clone(given, name="triangle")
        emit_mask(self.graph, body, given, self.lower, self.unit, self.a)
        super().emit(body)

    def new_block(self, index: int, size: int) -> Tensor:
        """With one right-hand side, whole on the tile of its diagonal block; otherwise spread."""
        batch, _, right = self.b.shape
        made = self.graph.variable(self.b.dtype, (batch, size, right), name="x")
        return self.graph.map_rows(made, self._tiles(index)) if right == 1 else self.graph.map_linear(made)

    def solve_block(self, body: Sequence, index: int, b: Tensor) -> None:
        """By a vertex, or by rows for one block of right-hand sides after the other."""
        begin, size = sum(self.extents[:index]), self.extents[index]
        square = self.a[:, begin : begin + size, begin : begin + size]
        if b.shape[2] == 1:
            self._substitute(body, index, square, b)
            return
        for first in range(0, b.shape[2], self.chosen.block):
            columns = slice(first, min(first + self.chosen.block, b.shape[2]))
            self._by_rows(body, square, b[:, :, columns], self.out[index][:, :, columns])

    def _substitute(self, body: Sequence, index: int, square: Tensor, b: Tensor) -> None:
        batch, size, _ = b.shape
        cs = self.graph.compute_set("substitute")
        cs.vertices(
            substitute_codelet(b.dtype, self.lower),
            tile=self._tiles(index),
            a=square.reshape((batch, size * size)),
            b=b.reshape((batch, size)),
            x=self.out[index].reshape((batch, size)),
            n=size,
        )
        body.add(Execute(cs))

    def _tiles(self, index: int) -> list[int]:
        numbers = blocks.block_tiles(self.graph, self.b.shape[0], index * (len(self.extents) + 1))
        return [int(t) for t in numbers]

    def _by_rows(self, body: Sequence, a: Tensor, b: Tensor, x: Tensor) -> None:
        """Append a block's steps: in place if it is the only one, else as a call of the function of its size."""
        if max(self.a.shape[1], self.b.shape[2]) <= self.chosen.block:
            self._rows(body, a, b, x)
            return
        program = self._programs.get(b.shape)
        if program is None:
            program = self._programs[b.shape] = self._new_program(a, b)
        body.add(Call(program, [a, b], [x]))

    def _new_program(self, a: Tensor, b: Tensor) -> Function:
        """Function shared by blocks of one size: its parameters are a block of A and one of B, its result one of X."""
        graph, steps = self.graph, Sequence()
        given, right, found = (
            graph.map_linear(graph.variable(t.dtype, t.shape, name=name)) for name, t in (("a", a), ("b", b), ("x", b))
        )
        self._rows(steps, given, right, found)
        return graph.function(steps, "block", parameters=[given, right], results=[found])

    def _rows(self, body: Sequence, a: Tensor, b: Tensor, x: Tensor) -> None:
        """Append the steps that solve a block for several right-hand sides, by halves down to single rows."""
        size = a.shape[1]
        if size == 1:
            emit_map(self.graph, body, [_1 / _2], [b, a], [x], "divide")
            return
        low, high = slice(None, size // 2), slice(size // 2, None)
        first, last = (low, high) if self.lower else (high, low)
        self._rows(body, a[:, first, first], b[:, first], x[:, first])
        rest = self.eliminate(body, a[:, last, first], x[:, first], b[:, last])
        self._rows(body, a[:, last, last], rest, x[:, last])
