"""Copies that run beside computing: which inputs and outputs a model asks them for, and whether that can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch

from abele.frontends.poptorch.enums import OverlapMode
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.program.blocks import user_line


@dataclass
class OverlapMarks:
    """Requests of the model that is recorded.

    Attributes:
        io_tiles: Tiles of each IPU that do such copies.
        inputs: The model's inputs.
        outputs: Tensors that have to be outputs of the model, with the user's lines that say so.
    """

    io_tiles: int
    inputs: Sequence[torch.Tensor] = ()
    outputs: list[tuple[torch.Tensor, str]] = field(default_factory=list)

    def ask(self, function: str, tensors: Sequence[torch.Tensor], mode: OverlapMode) -> None:
        """Note a request of ``set_overlap_for_input`` or ``set_overlap_for_output``.

        Raises:
            Error: There are no tiles for it, or a tensor is no input.
        """
        line = user_line()
        if mode != OverlapMode.NoOverlap and not self.io_tiles:
            raise Error(
                "No IO tiles allocated. You must allocate at least 32 IO tiles using "
                "poptorch.Options().TensorLocations.numIOTiles.",
                at=line or None,
            )
        if function == "set_overlap_for_output":
            self.outputs += [(tensor, line) for tensor in tensors]
        elif not _all_in(tensors, self.inputs):
            raise _misplaced(function, "input", line)

    def check(self, returned: Sequence[torch.Tensor]) -> None:
        """Raise unless the tensors that were noted as outputs are among ``returned``.

        Raises:
            Error: One is not.
        """
        for tensor, line in self.outputs:
            if not _all_in([tensor], returned):
                raise _misplaced("set_overlap_for_output", "output", line)


CURRENT: ContextVar[OverlapMarks | None] = ContextVar("poptorch_overlap", default=None)


@contextmanager
def overlapping(io_tiles: int) -> Iterator[None]:
    """Take requests of the model that is recorded inside."""
    token = CURRENT.set(OverlapMarks(io_tiles))
    try:
        yield
    finally:
        CURRENT.reset(token)


def _all_in(tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return {id(t) for t in tensors} <= {id(t) for t in others}


def _misplaced(function: str, kind: str, line: str) -> Error:
    return Error(
        f"poptorch.{function} applied on a node which is not a tensor {kind} to the model.",
        at=line or None,
        remedy="call it on arguments of forward, before anything else"
        if kind == "input"
        else "return what it gives from forward",
    )
