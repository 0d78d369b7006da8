"""Places of recorded calls: each runs where the block that it is in does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import torch.fx

from abele.frontends.poptorch.capture import torch_export
from abele.frontends.poptorch.capture.aten.losses import IDENTITY_LOSS
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.program.blocks import BEFORE, OUTSIDE, BegunBlock
from abele.network import BlockBuilder, Place
from abele.network.ir import HERE, PlanHint


def _together(leading: str) -> Sequence[Place]:
    return ()


@dataclass
class BlockPlaces:
    """Places of calls. Stages are numbered once it is known if anything is computed before the first block.

    Attributes:
        blocks: The blocks of the model; where there are none, everything is in one place.
        locate: Gives the place of each block, from the first op before them, if there is any.
        hints: Planning of the products and convolutions of an IPU.
        leading: The first op before the first block, once it was met.
    """

    blocks: Sequence[BegunBlock] = ()
    locate: Callable[[str], Sequence[Place]] = _together
    hints: Mapping[int, PlanHint] = field(default_factory=dict)
    leading: str = ""
    _found: dict[torch.fx.Node, int | None] = field(default_factory=dict)

    @cached_property
    def places(self) -> Sequence[Place]:
        """The place of each block.

        Raises:
            Error: Blocks that do not fit the strategy of the options.
        """
        return self.locate(self.leading)

    def block_of(self, node: torch.fx.Node) -> int | None:
        """Number of the block that a call is in, or :data:`BEFORE`, :data:`OUTSIDE`; None if that is not known."""
        if node not in self._found:
            noted = torch_export.block_of(node)
            if noted is None or (noted == OUTSIDE and torch_export.op_name(node) == IDENTITY_LOSS):
                # Made by PyTorch after recording, or a mark: it is where the last of what it reads is.
                read = [self.block_of(n) for n in torch_export.iter_nodes(node)]
                noted = max((n for n in read if n is not None and n != OUTSIDE), default=None)
            self._found[node] = noted
        return self._found[node]

    @contextmanager
    def at(self, net: BlockBuilder, node: torch.fx.Node, around: int | None) -> Iterator[None]:
        """Ops that are made inside are where a call is.

        Args:
            net: Builder that they are appended to.
            node: The call.
            around: The block of the loop or branch in whose body the call is, if it is in one.

        Raises:
            Error: The call is after the end of a block and in none, or in another one than what is around it.
        """
        number = self.block_of(node) if self.blocks else None
        if around is not None and number is not None and number != around:
            raise self._inside_of_body(node, number, around)
        if around is not None or number is None:
            yield
        elif number == OUTSIDE:
            before = _num_ops(net)
            yield
            if _num_ops(net) > before:
                raise self._no_active_block(node)
        elif number == BEFORE:
            before = _num_ops(net)
            with net.at(place=HERE, hint=self.hints.get(HERE.ipu)):
                yield
            if not self.leading and _num_ops(net) > before:
                self.leading = f"{torch_export.op_name(node)}, {torch_export.origin(node)}"
        else:
            place = self.places[number]
            with net.at(place=place, hint=self.hints.get(place.ipu)):
                yield

    def _no_active_block(self, node: torch.fx.Node) -> Error:
        return Error(
            f"No active Block: {torch_export.op_name(node)} is in no block of the model",
            at=str(torch_export.origin(node)) or None,
            because=f"a block that is a context ended before it; there are {', '.join(map(str, self.blocks))}",
            remedy="call it inside of the context, or begin the next block before it: poptorch.BeginBlock and "
            "poptorch.Block.start go on until another begins",
        )

    def _inside_of_body(self, node: torch.fx.Node, number: int, around: int) -> Error:
        inner = "what is in no block" if number < 0 else f"block {self.blocks[number]}"
        outer = {OUTSIDE: "is in no block", BEFORE: "is before the first block"}.get(around)
        outer = outer or f"is in block {self.blocks[around]}"
        return Error(
            f"{inner} begins in the body of a loop or branch, which {outer}",
            at=str(torch_export.origin(node)) or None,
            remedy="loops and branches are on one IPU: begin blocks before or after them",
        )


def _num_ops(net: BlockBuilder) -> int:
    """Ops so far, without constants: these are wherever they are read."""
    return sum(op.kind != "constant" for op in net.ops)
