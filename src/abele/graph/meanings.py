"""Meanings of program nodes to a room: one table per room, by the node's class.

A node of the control program means something to several rooms: the graph knows what it reads and writes, the compiler
what it costs, the engine how it runs, and there are its text and its form in a file. Each room keeps what it knows in a
table of its own, filled by the module that knows it, so that a new kind of node is one class here and one entry for
each room that cares. ``tests/compiler/test_new_node.py`` adds one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from abele.errors import ControlProgramError
from abele.graph.program import Program

M = TypeVar("M")


class Meanings(Generic[M]):
    """Table of one room's entries for the kinds of program nodes.

    Args:
        purpose: Use of nodes by the room, as an error says it: ``can be compiled``.
        meanings: Entries to begin with.
    """

    def __init__(self, purpose: str, meanings: Mapping[type[Program], M] | None = None) -> None:
        self._purpose = purpose
        self._of: dict[type[Program], M] = dict(meanings or {})

    def add(self, kind: type[Program], meaning: M) -> M:
        """Enter the entry of a kind of node; returns it.

        Raises:
            ControlProgramError: The kind has a meaning already.
        """
        if kind in self._of:
            raise ControlProgramError(f"{kind.__name__} is entered a second time among steps that {self._purpose}")
        self._of[kind] = meaning
        return meaning

    def find(self, kind: type[Program]) -> M | None:
        """Entry of a kind of node, or of the nearest kind that it derives from; None when there is none."""
        for each in kind.__mro__:
            if each in self._of:
                return self._of[each]
        return None

    def of(self, node: Program) -> M:
        """Entry of a node.

        Raises:
            ControlProgramError: Nobody entered its kind.
        """
        found = self.find(type(node))
        if found is None:
            raise ControlProgramError(
                f"a {type(node).__name__} is no program step that {self._purpose}",
                at=(getattr(node, "debug", None) and node.debug.location) or None,
                remedy="use the steps of abele.graph",
            )
        return found

    def __contains__(self, kind: type[Program]) -> bool:
        return kind in self._of

    def __iter__(self) -> Iterator[type[Program]]:
        return iter(self._of)

    def remove(self, kind: type[Program]) -> None:
        """Forget a kind of node."""
        del self._of[kind]
