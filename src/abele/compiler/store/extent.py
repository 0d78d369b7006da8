"""Extent of a program from a file once it is unfolded, before anything walks through it."""

from __future__ import annotations

from typing import NamedTuple

from abele.graph import Call, LibraryCall, Program, Sequence
from abele.words import counted

_MOST_DEPTH = 128
_MOST_STEPS, _STEPS_PER_NODE = 1 << 16, 64


class _Extent(NamedTuple):
    depth: int
    steps: int


class Extents:
    """Depth and unfolded steps of program nodes, each entered after its children.

    A few nodes that are shared again and again would make a program endless, a long chain one that no walk survives.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Extent] = {}

    def add(self, node: Program) -> None:
        """Take note of a node.

        Raises:
            ValueError: It is nested too deep.
        """
        inside = list(node.children())
        if isinstance(node, Call):
            inside.append(node.function.body)
        if isinstance(node, Sequence | LibraryCall) and node.host_body is not None:
            inside.append(node.host_body)
        # Nodes come after those inside them, so each is one step of arithmetic; the unfolded program is never walked.
        parts = [self._known.get(id(p), _Extent(1, 1)) for p in inside]
        depth = 1 + max((p.depth for p in parts), default=0)
        if depth > _MOST_DEPTH:
            raise ValueError(f"program steps are nested more than {_MOST_DEPTH} deep")
        self._known[id(node)] = _Extent(depth, 1 + sum(p.steps for p in parts))

    def check(self, programs: list[Program]) -> None:
        """The programs do not unfold to many more steps than there are nodes.

        Raises:
            ValueError: They do.
        """
        steps = sum(self._known[id(p)].steps for p in programs)
        most = max(_MOST_STEPS, _STEPS_PER_NODE * len(self._known))
        if steps > most:
            raise ValueError(
                f"the programs unfold to {counted(steps, 'step')}, and {len(self._known):,} nodes may to {most:,}"
            )
