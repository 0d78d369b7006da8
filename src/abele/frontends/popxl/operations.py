"""Ops of popxl's graphs: blocks of network ops, and transfers from and to streams, buffers and code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from abele.errors import AbeleError
from abele.frontends.popxl.op_types import op_type
from abele.frontends.popxl.tensors import Tensor
from abele.graph.debug import DebugRecord
from abele.network import BlockBuilder, Value
from abele.network.ir import OpBlock
from abele.network.ir.value import Place

if TYPE_CHECKING:
    from abele.frontends.popxl.graph import Graph
    from abele.frontends.popxl.remote import RemoteBuffer
    from abele.frontends.popxl.streams import DeviceToHostStream, HostToDeviceStream
Meaning = Callable[..., Value | Sequence[Value]]
"""Function that appends what an op computes: it takes a builder and the values of the inputs."""


@dataclass(eq=False)
class GraphOperation:
    """An op of a graph, by what it computes.

    Attributes:
        kind: Its name.
        inputs: Tensors that it reads, each once.
        outputs: Tensors that it makes.
        block: Its meaning: the values of outputs, then those that changed inputs have afterwards.
        modifies: Numbers of the inputs that it changes.
        origin: Name and place in the program.
        place: IPU that it runs on.
        is_view: True if the output shows the input's elements.
        backward: Gradients of the inputs from those of the outputs, in place of the meaning's derivative.
        refusal: Error that a session raises, for an op whose operands have a type that it does not take.
    """

    kind: str
    inputs: tuple[Tensor, ...]
    outputs: list[Tensor]
    block: OpBlock
    modifies: tuple[int, ...]
    origin: DebugRecord
    place: Place
    is_view: bool = False
    backward: OpBlock | None = None
    refusal: AbeleError | None = None

    def opType(self) -> str:
        """PopART's name of it."""
        return op_type(self.kind)

    def hasVirtualGraphId(self) -> bool:
        """True: each op is on an IPU."""
        return True

    def getVirtualGraphId(self) -> int:
        """Its IPU."""
        return self.place.ipu

    def name(self) -> str:
        """Scope and kind."""
        return self.origin.text or self.kind


class Transfer:
    """Base of ops that move a tensor from or to what is not on the chip: they have no gradient."""

    kind: ClassVar[str]

    def opType(self) -> str:
        """Its kind."""
        return self.kind

    def name(self) -> str:
        """Its kind."""
        return self.kind


@dataclass(eq=False)
class HostLoad(Transfer):
    """A read of the next entry of a stream."""

    stream: HostToDeviceStream
    output: Tensor

    kind: ClassVar = "HostLoad"


@dataclass(eq=False)
class HostStore(Transfer):
    """A write of the next entry of a stream."""

    stream: DeviceToHostStream
    tensor: Tensor

    kind: ClassVar = "HostStore"


@dataclass(eq=False)
class RemoteLoad(Transfer):
    """A read of a row of a remote buffer.

    Attributes:
        buffer: The buffer.
        offset: Number of the row, or a tensor that has it.
        output: Tensor that becomes the row.
        origin: Name and place in the program.
        place: IPU that it runs on.
        in_place: True if the tensor was there before.
    """

    buffer: RemoteBuffer
    offset: int | Tensor
    output: Tensor
    origin: DebugRecord
    place: Place
    in_place: bool = False

    kind: ClassVar = "RemoteLoad"

    def opType(self) -> str:
        """Its kind, with ``Inplace`` after it where it is."""
        return f"{self.kind}Inplace" if self.in_place else self.kind


@dataclass(eq=False)
class RemoteStore(Transfer):
    """A write of a row of a remote buffer.

    Attributes:
        buffer: The buffer.
        offset: Number of the row, or a tensor that has it.
        tensor: Tensor that the row becomes.
        origin: Name and place in the program.
        place: IPU that it runs on.
    """

    buffer: RemoteBuffer
    offset: int | Tensor
    tensor: Tensor
    origin: DebugRecord
    place: Place

    kind: ClassVar = "RemoteStore"


@dataclass(eq=False)
class CodeLoad(Transfer):
    """A load of a graph's code, which is there from the start."""

    graph: Graph

    kind: ClassVar = "RemoteCodeLoad"


AnyOperation = "GraphOperation | Transfer | FunctionCall"


def inlined(net: BlockBuilder, block: OpBlock, arguments: Sequence[Value]) -> tuple[Value, ...]:
    """Results of a block's ops, copied to where ops are made now, each on its own IPU."""
    values = dict(zip(block.parameters, arguments, strict=True))
    for op in block.ops:
        with net.at(place=op.outputs[0].place):
            values |= zip(op.outputs, net.copy(op, values), strict=True)
    return tuple(values[v] for v in block.results)
