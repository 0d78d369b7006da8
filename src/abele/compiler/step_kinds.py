"""Step kinds: what each leaf of the program tree does, in one word."""

from __future__ import annotations

from abele.errors import ControlProgramError
from abele.graph.control import (
    Abort,
    AssumeEqualAcrossReplicas,
    CrossReplicaCopy,
    CycleStamp,
    ErrorProgram,
    GetHwSeeds,
    SetFloatingPointBehaviour,
    SetHwSeeds,
    Sync,
)
from abele.graph.host import HostCall
from abele.graph.program import Copy, Execute, PrintTensor, Program, WriteUndef
from abele.graph.remote import RemoteBuffer
from abele.graph.stream import Stream

KINDS = {
    "execute": "run a compute set",
    "copy": "copy between views",
    "cross_replica": "copy between replicas",
    "stream_in": "copy from a host stream",
    "stream_out": "copy to a host stream",
    "remote_in": "copy from a remote buffer",
    "remote_out": "copy to a remote buffer",
    "host_call": "call a function of the host",
    "print": "print a tensor",
    "decide": "look at the predicate of a loop, branch or switch",
    "abort": "stop the program, perhaps on a condition",
    "sync": "a barrier",
    "timer_start": "read the cycle counter before a timed program",
    "timer_read": "read the cycle counter and store what it says",
    "mode": "set the floating-point behaviour",
    "seeds": "read or set the random seeds of the workers",
    "assume": "a promise to the compiler",
    "undef": "end the life of a value",
}
"""Kinds of steps, and what each does."""

STREAMS = ("stream_in", "stream_out")
HOST_KINDS = (*STREAMS, "remote_in", "remote_out", "host_call", "print")
"""Kinds that are one transfer between tiles and what is outside the chip."""
CONTROL_KINDS = ("decide", "abort", "sync", "timer_start", "timer_read", "mode", "seeds")
"""Kinds that steer, or touch the tiles' registers."""
NEUTRAL = ("undef", "assume")
"""Kinds that do nothing on the machine: they do not come between two stream copies."""

_KIND_OF: dict[type[Program], str] = {
    Execute: "execute",
    PrintTensor: "print",
    WriteUndef: "undef",
    Sync: "sync",
    Abort: "abort",
    ErrorProgram: "abort",
    CycleStamp: "timer_read",
    SetFloatingPointBehaviour: "mode",
    GetHwSeeds: "seeds",
    SetHwSeeds: "seeds",
    AssumeEqualAcrossReplicas: "assume",
    CrossReplicaCopy: "cross_replica",
    HostCall: "host_call",
}


def kind_of(node: Program) -> str:
    """The kind of the step that a leaf of the program tree becomes.

    Raises:
        ControlProgramError: The compiler does not know such a node.
    """
    if isinstance(node, Copy):
        return _copy_kind(node)
    for type_, kind in _KIND_OF.items():
        if isinstance(node, type_):
            return kind
    raise ControlProgramError(
        f"a {type(node).__name__} is no program step that can be compiled", remedy="use the steps of abele.graph"
    )


def _copy_kind(node: Copy) -> str:
    match node.source, node.destination:
        case Stream(), _:
            return "stream_in"
        case _, Stream():
            return "stream_out"
        case RemoteBuffer(), _:
            return "remote_in"
        case _, RemoteBuffer():
            return "remote_out"
    return "copy"


def name_of(node: Program) -> str:
    """What a step is called."""
    match node:
        case Execute():
            return node.compute_set.name
        case Copy(source=Stream() | RemoteBuffer() as end) | Copy(destination=Stream() | RemoteBuffer() as end):
            return end.name
        case PrintTensor():
            return node.title
        case WriteUndef():
            return node.tensor.name
    return node.debug.full_name
