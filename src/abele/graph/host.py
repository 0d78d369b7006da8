"""Ends that a program shares with the host besides streams and remote buffers: host functions, named handles."""

from __future__ import annotations

import math
from dataclasses import dataclass

from abele.errors import ControlProgramError, TypeMismatchError
from abele.graph.debug import DebugRecord, here
from abele.graph.program import Program
from abele.graph.tensor import Tensor
from abele.numerics import ElementType


@dataclass(frozen=True, slots=True)
class Argument:
    """Type and shape of an argument or a result of a host function.

    Attributes:
        dtype: Element type.
        shape: Dimensions.
    """

    dtype: ElementType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False, slots=True)
class HostFunction:
    """A function on the host that the program calls and waits for; the engine connects it by name.

    Attributes:
        name: Handle by which the engine connects a callable.
        inputs: Types and shapes of its arguments.
        outputs: Types and shapes of its results.
        debug: Source line at which the user made it.
    """

    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    debug: DebugRecord


@dataclass(frozen=True, eq=False, slots=True)
class HostHandle:
    """A name by which the host reads or writes a tensor while no program runs.

    Attributes:
        name: The handle.
        tensor: Tensor that it stands for.
        readable: True if the host may read it.
        writable: True if the host may write it.
        debug: Source line at which the user made it.
    """

    name: str
    tensor: Tensor
    readable: bool
    writable: bool
    debug: DebugRecord


class HostCall(Program):
    """Ask the host to run a function: its inputs go to the host, the program waits, its outputs come back.

    Raises:
        ControlProgramError: The number or sizes of the tensors differ from the function's.
        TypeMismatchError: Their types do.
    """

    def __init__(self, function: HostFunction, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
        self.function = function
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.debug = here(function.name)
        for kind, want, got in (("inputs", function.inputs, self.inputs), ("outputs", function.outputs, self.outputs)):
            self._check(kind, want, got)

    def _check(self, kind: str, want: tuple[Argument, ...], got: tuple[Tensor, ...]) -> None:
        name, at = self.function.name, self.debug.location
        if len(want) != len(got):
            raise ControlProgramError(f"host function {name!r} has {len(want)} {kind}, {len(got)} were given", at=at)
        for number, (argument, tensor) in enumerate(zip(want, got, strict=True)):
            if tensor.dtype != argument.dtype:
                raise TypeMismatchError(
                    f"{kind}[{number}] of host function {name!r} is {argument.dtype}, {tensor!r} was given", at=at
                )
            if tensor.size != argument.size:
                raise ControlProgramError(
                    f"{kind}[{number}] of host function {name!r} has {argument.size} elements, {tensor!r} was given",
                    at=at,
                )

    def reads(self) -> tuple[Tensor, ...]:
        """The inputs."""
        return self.inputs

    def writes(self) -> tuple[Tensor, ...]:
        """The outputs."""
        return self.outputs

    def __repr__(self) -> str:
        return f"HostCall({self.function.name!r})"
