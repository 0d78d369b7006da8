"""Control programs by Poplar's names and in its argument order; all are nodes of :mod:`abele.graph`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from abele import graph as g
from abele.errors import ControlProgramError
from abele.graph.debug_context import DebugContext, DebugNameAndId, name_of
from abele.graph.program import End

Program = g.Program
PrintTensorFmt = g.PrintTensorFmt
Function = g.Function
HostFunction = g.HostFunction
Block = g.Block
ErrorProgram = g.ErrorProgram
AssumeEqualAcrossReplicas = g.AssumeEqualAcrossReplicas
CrossReplicaCopy = g.CrossReplicaCopy
"""Takes what Poplar's takes: source, destination, and a mapping from sending to receiving replica."""


class SyncType(Enum):
    """The kinds of barriers."""

    INTERNAL = "internal"
    EXTERNAL = "external"
    GLOBAL = "global"


class Sequence(g.Sequence):
    """Steps one after the other: ``Sequence()``, ``Sequence(a, b)``, ``Sequence([a, b], "name")``."""

    def __init__(self, *steps: Any, name: Any = "sequence") -> None:
        programs: list[g.Program] = []
        for step in steps:
            if _is_name(step):
                name = step
            elif isinstance(step, (list, tuple, set)):
                programs.extend(step)
            else:
                programs.append(step)
        super().__init__(*programs, name=name_of(name, "sequence"))


class Execute(g.Execute):
    """One superstep.

    Raises:
        ControlProgramError: A second tensor is given: the vertices' return values are not collected.
    """

    def __init__(self, cs: g.ComputeSet, *rest: Any) -> None:
        super().__init__(cs)
        if any(isinstance(item, g.Tensor) for item in rest):
            raise ControlProgramError(
                "Execute does not collect what the vertices return",
                at=self.debug.location or None,
                remedy="write it to an Output field and reduce that",
            )
        self.debug = _named(self, *rest)


class Copy(g.Copy):
    """Copy between views, streams, remote buffers: ``Copy(source, destination[, offset][, dontOutline][, name])``."""

    def __init__(self, source: End, destination: End, *rest: Any) -> None:
        offset = next((item for item in rest if isinstance(item, g.Tensor)), None)
        super().__init__(source, destination, name_of(_name(rest), "copy"), offset=offset)


class WriteUndef(g.WriteUndef):
    """Say that a tensor's contents are no longer needed."""

    def __init__(self, t: g.Tensor, *name: Any) -> None:
        super().__init__(t)
        self.debug = _named(self, *name)


class PrintTensor(g.PrintTensor):
    """``PrintTensor(t)``, ``PrintTensor("title", t[, fmt])`` or ``PrintTensor(t, fmt)``."""

    def __init__(self, *given: Any) -> None:
        tensor = next(item for item in given if isinstance(item, g.Tensor))
        title = next((item for item in given if isinstance(item, str)), "")
        fmt = next((item for item in given if isinstance(item, PrintTensorFmt)), None)
        super().__init__(tensor, title, fmt)


class Repeat(g.Repeat):
    """Run a program a fixed number of times."""

    def __init__(self, count: int, prog: g.Program, *name: Any) -> None:
        super().__init__(count, prog)
        self.debug = _named(self, *name)


class RepeatWhileTrue(g.RepeatWhile):
    """Run ``cond``, leave unless the predicate is true, run ``body``; again and again."""

    def __init__(self, cond: g.Program, predicate: g.Tensor, body: g.Program, *name: Any) -> None:
        super().__init__(cond, predicate, body, value=True)
        self.debug = _named(self, *name)


class RepeatWhileFalse(g.RepeatWhile):
    """Run ``cond``, leave unless the predicate is false, run ``body``; again and again."""

    def __init__(self, cond: g.Program, predicate: g.Tensor, body: g.Program, *name: Any) -> None:
        super().__init__(cond, predicate, body, value=False)
        self.debug = _named(self, *name)


class If(g.If):
    """Run one of two programs."""

    def __init__(self, predicate: g.Tensor, trueBody: g.Program, falseBody: g.Program, *name: Any) -> None:
        super().__init__(predicate, trueBody, falseBody)
        self.debug = _named(self, *name)


Cases = Mapping[int, g.Program] | Iterable[tuple[int, g.Program]]


class Switch(g.Switch):
    """Run the case of a scalar's value: ``Switch(control, cases[, default][, name])``."""

    def __init__(self, control: g.Tensor, cases: Cases = (), *rest: Any, unreachable: bool = False) -> None:
        default = next((item for item in rest if isinstance(item, g.Program)), None)
        super().__init__(control, cases, default, unreachable_default=unreachable)
        self.debug = _named(self, *rest)

    @staticmethod
    def switchWithBoundsChecking(control: g.Tensor, cases: Cases = (), *name: Any) -> Switch:
        """A switch whose other values stop the program with an error."""
        message = f"switch on {control.name!r}: no case for this value"
        return Switch(control, cases, g.Sequence(g.ErrorProgram(message, control)), *name)

    @staticmethod
    def switchWithUnreachableDefault(control: g.Tensor, cases: Cases = (), *name: Any) -> Switch:
        """A switch of which the user promises that no other value occurs."""
        return Switch(control, cases, *name, unreachable=True)

    def add(self, value: int, prog: g.Program) -> Switch:
        """One more case.

        Raises:
            ControlProgramError: There is one for the value.
        """
        if value in self.cases:
            raise ControlProgramError(
                f"a Switch has two cases for {value}", at=g.DebugInfo("", "", *g.caller()).location
            )
        self.cases[int(value)] = prog
        return self


def Call(
    function: g.Function | g.HostFunction, inputs: Iterable[g.Tensor] = (), outputs: Iterable[g.Tensor] = (), *name: Any
) -> g.Call | g.HostCall:
    """Call a function of the graph, or one on the host."""
    if isinstance(inputs, (str, DebugContext)):
        inputs = ()
    if isinstance(function, g.HostFunction):
        return g.HostCall(function, tuple(inputs), tuple(outputs))
    return g.Call(function, tuple(inputs), tuple(outputs))


def Sync(kind: SyncType | str = SyncType.INTERNAL, *name: Any) -> g.Sync:
    """A barrier."""
    return g.Sync(sync_kind(kind))


def Abort(*given: Any) -> g.Abort:
    """Stop the program with an error: ``Abort()`` or ``Abort("message")``."""
    return g.Abort(name_of(_name(given), ""))


def AbortOnCondition(predicate: g.Tensor, *given: Any) -> g.Abort:
    """Stop the program with an error when a scalar is true."""
    return g.Abort(name_of(_name(given), ""), predicate)


def sync_kind(kind: SyncType | str) -> str:
    """The graph's name of a barrier."""
    return kind.value if isinstance(kind, SyncType) else kind


def _is_name(item: Any) -> bool:
    """Whether an argument is a debug context: text, a context, or a list that begins with either."""
    first = item[0] if isinstance(item, (list, tuple)) and item else item
    return isinstance(first, (str, DebugContext, DebugNameAndId))


def _name(given: Iterable[Any]) -> Any:
    """The debug context among trailing arguments."""
    return next((item for item in given if _is_name(item)), None)


def _named(step: g.Program, *given: Any) -> g.DebugInfo:
    return step.debug.renamed(name_of(_name(given), step.debug.name))
