"""Addresses of a loop that are of one row.

LLVM's code spells an address out as steps from a pointer, by an index that moves and by distances that do not. Two
addresses of a row share the pointer that comes into the loop; the other steps tell them apart. Pointers that are made
by equal instructions before the loop are one.
"""

from __future__ import annotations

from abele.codelet.cpp.blocks import FlowGraph, Instruction, NaturalLoop


class TouchedPlaces:
    """Places that loops touch in an iteration.

    Args:
        blocks: The code.
    """

    def __init__(self, blocks: FlowGraph) -> None:
        self.blocks = blocks

    def shared(self, loop: NaturalLoop, inside: set[str], affine: set[str]) -> bool:
        """True if a loop touches some row at more than one place that moves with it.

        Args:
            loop: The loop.
            inside: Names of all values made in it.
            affine: Those that move by an invariant each time round.
        """
        found: dict[str, set[tuple[str, ...]]] = {}
        for pointer in self._pointers(loop):
            if pointer in inside and self._moves(pointer, inside, affine):
                row, way = self._way(pointer, inside)
                found.setdefault(row, set()).add(way)
        return any(len(ways) > 1 for ways in found.values())

    def _pointers(self, loop: NaturalLoop) -> list[str]:
        """Pointers of the loop's loads and stores, those of loops inside it left out."""
        inner = [o.blocks for o in self.blocks.loops if o.header != loop.header and o.header in loop.blocks]
        own = loop.blocks - set().union(*inner)
        places = {"load": 0, "store": 1}
        instructions = (i for name in own for i in self.blocks.by_name[name].instructions)
        return [i.operands[places[i.opcode]].name for i in instructions if i.opcode in places]

    def _moves(self, name: str, inside: set[str], affine: set[str]) -> bool:
        made = self.blocks.made_by.get(name)
        if name in affine or name not in inside or made is None:
            return name in affine
        return made.opcode == "getelementptr" and any(self._moves(use, inside, affine) for use in made.uses)

    def _way(self, name: str, inside: set[str]) -> tuple[str, tuple[str, ...]]:
        """The row that an address is in, and the steps to it."""
        steps: list[str] = []
        made = self.blocks.made_by.get(name)
        while name in inside and made is not None and made.opcode == "getelementptr":
            steps += [o.name or o.text for o in made.operands[1:]]
            name = made.operands[0].name
            made = self.blocks.made_by.get(name)
        return self._written(name, made), tuple(steps)

    def _written(self, name: str, made: Instruction | None) -> str:
        """Text of the address computation that makes a pointer, if one does: pointers of equal text are one."""
        if made is None or made.opcode != "getelementptr":
            return name
        return made.text.partition(" = ")[2]
