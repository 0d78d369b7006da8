"""Control programs by Poplar's names and in its argument order: functions that make nodes of :mod:`abele.graph`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

from abele import graph as g
from abele.errors import ControlProgramError
from abele.graph.debug_context import DebugContext, DebugNameAndId, name_of
from abele.graph.program import End

Step = TypeVar("Step", bound=g.Program)


class _AnyProgram(type):
    """Every node of the graph is a program."""

    def __instancecheck__(cls, item: object) -> bool:
        return isinstance(item, g.Program)


class Program(metaclass=_AnyProgram):
    """Any program; ``Program()`` is one that does nothing."""

    def __new__(cls) -> Any:
        """An empty sequence."""
        return g.Sequence()


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


def Sequence(*steps: Any, name: Any = "sequence") -> g.Sequence:
    """Steps one after the other: ``Sequence()``, ``Sequence(a, b)``, ``Sequence([a, b], "name")``."""
    programs: list[g.Program] = []
    for step in steps:
        if _is_name(step):
            name = step
        elif isinstance(step, (list, tuple, set)):
            programs.extend(step)
        else:
            programs.append(step)
    return g.Sequence(*programs, name=name_of(name, "sequence"))


def Execute(cs: g.ComputeSet, *rest: Any) -> g.Execute:
    """One superstep: ``Execute(cs[, name])``.

    Raises:
        ControlProgramError: A tensor is given too: what the vertices return is not collected.
    """
    step = g.Execute(cs)
    if any(isinstance(item, g.Tensor) for item in rest):
        raise ControlProgramError(
            "Execute does not collect what the vertices return",
            at=step.debug.location or None,
            remedy="write it to an Output field and reduce that",
        )
    return _named(step, *rest)


def Copy(source: End, destination: End, *rest: Any) -> g.Copy:
    """Copy between views, streams, remote buffers: ``Copy(source, destination[, offset][, dontOutline][, name])``."""
    offset = next((item for item in rest if isinstance(item, g.Tensor)), None)
    return g.Copy(source, destination, name_of(_name(rest), "copy"), offset=offset)


def WriteUndef(t: g.Tensor, *name: Any) -> g.WriteUndef:
    """Say that a tensor's contents are no longer needed."""
    return _named(g.WriteUndef(t), *name)


def PrintTensor(*given: Any) -> g.PrintTensor:
    """``PrintTensor(t)``, ``PrintTensor("title", t[, fmt])`` or ``PrintTensor(t, fmt)``.

    Raises:
        ControlProgramError: No tensor is given.
    """
    tensor = next((item for item in given if isinstance(item, g.Tensor)), None)
    if tensor is None:
        raise ControlProgramError("a PrintTensor prints a tensor, none is given")
    title = next((item for item in given if isinstance(item, str)), "")
    fmt = next((item for item in given if isinstance(item, PrintTensorFmt)), None)
    return g.PrintTensor(tensor, title, fmt)


def Repeat(count: int, prog: g.Program, *name: Any) -> g.Repeat:
    """Run a program a fixed number of times."""
    return _named(g.Repeat(count, prog), *name)


def RepeatWhileTrue(cond: g.Program, predicate: g.Tensor, body: g.Program, *name: Any) -> g.RepeatWhile:
    """Run ``cond``, leave unless the predicate is true, run ``body``; again and again."""
    return _named(g.RepeatWhileTrue(cond, predicate, body), *name)


def RepeatWhileFalse(cond: g.Program, predicate: g.Tensor, body: g.Program, *name: Any) -> g.RepeatWhile:
    """Run ``cond``, leave unless the predicate is false, run ``body``; again and again."""
    return _named(g.RepeatWhileFalse(cond, predicate, body), *name)


def If(predicate: g.Tensor, trueBody: g.Program, falseBody: g.Program | None = None, *name: Any) -> g.If:
    """Run one of two programs."""
    return _named(g.If(predicate, trueBody, falseBody), *name)


Cases = Mapping[int, g.Program] | Iterable[tuple[int, g.Program]]


class _Switch:
    """Run the case of a scalar's value: ``Switch(control, cases[, default][, name])``, then perhaps ``add``."""

    def __call__(self, control: g.Tensor, cases: Cases = (), *rest: Any) -> g.Switch:
        default = next((item for item in rest if isinstance(item, g.Program)), None)
        return _named(g.Switch(control, cases, default), *rest)

    @staticmethod
    def switchWithBoundsChecking(control: g.Tensor, cases: Cases = (), *name: Any) -> g.Switch:
        """A switch whose other values stop the program with an error."""
        message = f"switch on {control.name!r}: no case for this value"
        return _named(g.Switch(control, cases, g.ErrorProgram(message, control)), *name)

    @staticmethod
    def switchWithUnreachableDefault(control: g.Tensor, cases: Cases = (), *name: Any) -> g.Switch:
        """Switch without a default: the user promises that no other value occurs."""
        return _named(g.Switch(control, cases, unreachable_default=True), *name)


Switch = _Switch()


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
    """True if an argument is a debug context: text, a context, or a list that begins with either."""
    first = item[0] if isinstance(item, (list, tuple)) and item else item
    return isinstance(first, (str, DebugContext, DebugNameAndId))


def _name(given: Iterable[Any]) -> Any:
    """The debug context among trailing arguments."""
    return next((item for item in given if _is_name(item)), None)


def _named(step: Step, *given: Any) -> Step:
    step.debug = step.debug.renamed(name_of(_name(given), step.debug.name))
    return step
