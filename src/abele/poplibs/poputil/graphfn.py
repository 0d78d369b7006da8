"""Functions of the graph with parameters: made once, called with other tensors.

``VoidFunction(graph, [input_(a), output(b)], fn)`` calls ``fn(parameters, prog)`` once, with tensors like those in the
signature, and keeps its program; calling the function copies arguments in, runs it, and copies results out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Call, Copy, Graph, Program, Steps, Tensor
from abele.poplibs.poputil.layout import clone
from abele.words import counted


class ArgType(Enum):
    """Use of a parameter: an input, an output, both, or a tensor that the function creates."""

    INPUT = "input"
    OUTPUT = "output"
    INOUT = "inout"
    CREATED = "created"


@dataclass(frozen=True)
class ArgSig:
    """One parameter.

    Attributes:
        type: Use by the function.
        similar_tensor: Tensor of the parameter's shape, type and layout; None for a created one.
        name: Name of the parameter.
    """

    type: ArgType
    similar_tensor: Tensor | None = None
    name: str = "parameter"


def input_(similar: Tensor, name: str = "input") -> ArgSig:
    """A parameter that is read."""
    return ArgSig(ArgType.INPUT, similar, name)


def output(similar: Tensor, name: str = "output") -> ArgSig:
    """A parameter that is written."""
    return ArgSig(ArgType.OUTPUT, similar, name)


def inout(similar: Tensor, name: str = "inout") -> ArgSig:
    """A parameter that is read and written."""
    return ArgSig(ArgType.INOUT, similar, name)


def created(name: str = "created") -> ArgSig:
    """A tensor that the function itself makes: it sets the parameter, and every call fills another with it."""
    return ArgSig(ArgType.CREATED, None, name)


class _Base:
    """Parameters, body and program of a function."""

    def __init__(self, graph: Graph, signature: Sequence[ArgSig], inlined: bool, name: str) -> None:
        self.graph = graph
        self.signature = tuple(signature)
        self.inlined = inlined
        self.name = name
        self.parameters: list[Tensor | None] = [
            None if s.similar_tensor is None else clone(graph, s.similar_tensor, f"{name}/{s.name}") for s in signature
        ]
        self.program: Program = Steps()

    def _keep(self, body: Program) -> None:
        for sig, parameter in zip(self.signature, self.parameters, strict=True):
            if parameter is None:
                raise TensorError(f"function {self.name!r} made no tensor for its created parameter {sig.name!r}")
        self.program = body if self.inlined else Call(self.graph.function(body, self.name))

    def _run(self, arguments: list[Tensor | None], prog: Steps) -> None:
        """Append the copies in, the body and the copies out; created arguments are filled in."""
        if len(arguments) != len(self.signature):
            raise TensorError(
                f"function {self.name!r} takes {counted(len(self.signature), 'tensor')}, got {len(arguments)}"
            )
        after = Steps()
        for i, (sig, parameter) in enumerate(zip(self.signature, self.parameters, strict=True)):
            assert parameter is not None
            given = arguments[i]
            if sig.type is ArgType.CREATED:
                given = arguments[i] = clone(self.graph, parameter, f"{self.name}/{sig.name}")
            given = self._checked(given, parameter, sig)
            if sig.type in (ArgType.INPUT, ArgType.INOUT):
                prog.add(Copy(given, parameter))
            if sig.type is not ArgType.INPUT:
                after.add(Copy(parameter, given))
        prog.add(self.program)
        prog.add(after)

    def _checked(self, given: Tensor | None, parameter: Tensor, sig: ArgSig) -> Tensor:
        if given is None:
            raise TensorError(f"function {self.name!r}: no tensor for {sig.type.value} parameter {sig.name!r}")
        if given.shape != parameter.shape:
            raise TensorError(
                f"function {self.name!r}: {given!r} of shape {list(given.shape)} for parameter {sig.name!r} of shape "
                f"{list(parameter.shape)}"
            )
        if given.dtype != parameter.dtype:
            raise TypeMismatchError(
                f"function {self.name!r}: {given!r} is {given.dtype}, parameter {sig.name!r} {parameter.dtype}"
            )
        return given


class VoidFunction(_Base):
    """A function without a result of its own: ``fn(parameters, prog)`` appends its steps.

    Args:
        graph: Graph in which parameters and function are made.
        signature: One entry per parameter.
        fn: Called once.
        inlined: True if the steps are repeated at every call instead of being called.
        name: Name of the function.

    Raises:
        TensorError: A created parameter that ``fn`` does not set.
    """

    def __init__(
        self,
        graph: Graph,
        signature: Sequence[ArgSig],
        fn: Callable[[list[Tensor | None], Steps], None],
        inlined: bool = False,
        name: str = "function",
    ) -> None:
        super().__init__(graph, signature, inlined, name)
        body = Steps()
        fn(self.parameters, body)
        self._keep(body)

    def __call__(self, arguments: list[Tensor | None], prog: Steps) -> None:
        """Append a call; arguments of created parameters are given as None, and replaced in the list.

        Raises:
            TensorError: Another number of tensors, or another shape.
            TypeMismatchError: Another element type.
        """
        self._run(arguments, prog)


class ProgramFunction(_Base):
    """As :class:`VoidFunction`, of an ``fn(parameters)`` that gives its program."""

    def __init__(
        self,
        graph: Graph,
        signature: Sequence[ArgSig],
        fn: Callable[[list[Tensor | None]], Program],
        inlined: bool = False,
        name: str = "function",
    ) -> None:
        super().__init__(graph, signature, inlined, name)
        self._keep(fn(self.parameters))

    def __call__(self, arguments: list[Tensor | None]) -> Program:
        """The program of a call; see :meth:`VoidFunction.__call__`."""
        prog = Steps()
        self._run(arguments, prog)
        return prog


class TensorFunction(_Base):
    """As :class:`VoidFunction`, of an ``fn(parameters, prog)`` that gives a tensor: every call gives a copy of it."""

    def __init__(
        self,
        graph: Graph,
        signature: Sequence[ArgSig],
        fn: Callable[[list[Tensor | None], Steps], Tensor],
        inlined: bool = False,
        name: str = "function",
    ) -> None:
        super().__init__(graph, signature, inlined, name)
        body = Steps()
        result = fn(self.parameters, body)
        self.signature = (*self.signature, created("result"))
        self.parameters.append(result)
        self._keep(body)

    def __call__(self, arguments: list[Tensor | None], prog: Steps) -> Tensor:
        """Append a call and give its result; see :meth:`VoidFunction.__call__`."""
        every = [*arguments, None]
        self._run(every, prog)
        arguments[:] = every[:-1]
        result = every[-1]
        assert result is not None
        return result
