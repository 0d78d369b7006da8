"""Nodes that compute or move data, as the compiler sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from abele.compiler.access import undef_access
from abele.compiler.durations import dram_cycles, remote_cycles
from abele.compiler.exchange import ExchangePlan, plan_replica_copies
from abele.compiler.nodes.meaning import NODES, NodeMeaning
from abele.compiler.superstep import Superstep
from abele.graph.control import AssumeEqualAcrossReplicas
from abele.graph.debug import DebugRecord
from abele.graph.host_interface import HostCall
from abele.graph.program import Copy, Execute, PrintTensor, WriteUndef
from abele.graph.remote import RemoteBuffer
from abele.graph.replica_copies import CrossReplicaCopy, CrossReplicaExchange
from abele.graph.stream import Stream
from abele.graph.tensor import Tensor
from abele.words import counted, tiles_text

if TYPE_CHECKING:
    from abele.compiler.analyse import Analysis
    from abele.compiler.lower import Step


# --- vertices --------------------------------------------------------------------------------------------------------


def _execute(analysis: Analysis, step: Step) -> Superstep:
    assert isinstance(step.node, Execute)
    return analysis.compute_set(step, step.node.compute_set)


NODES.add(Execute, NodeMeaning(lambda n: "execute", _execute, origin=lambda n: n.compute_set.debug))


# --- copies ----------------------------------------------------------------------------------------------------------


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


def _copy_origin(node: Copy) -> DebugRecord:
    match node:
        case Copy(source=Stream() | RemoteBuffer() as end) | Copy(destination=Stream() | RemoteBuffer() as end):
            return DebugRecord(end.name)
    return node.debug


def _copy(analysis: Analysis, step: Step) -> Superstep:
    node = step.node
    assert isinstance(node, Copy)
    if isinstance(node.source, Tensor) and isinstance(node.destination, Tensor):
        return analysis.copy(step, node)
    tensor = node.source if isinstance(node.source, Tensor) else node.destination
    assert isinstance(tensor, Tensor)
    analysis.add_buffers([tensor], inward=node.destination is tensor)
    if node.remote is None:
        # Of what replicas have for a stream that is not replicated, the first sends its own.
        alone = isinstance(node.destination, Stream) and not node.destination.replicated
        cycles = analysis.host_cycles([tensor], rendezvous=not step.joins_previous, alone=alone)
        return replace(analysis.meeting_host(step, [tensor], alone=alone), host_cycles=cycles)
    ipus = analysis.ipus_of([tensor])
    return replace(
        analysis.meeting_memory(step, tensor),
        host_cycles=remote_cycles(tensor.bytes, ipus, analysis.graph),
        link_cycles=dram_cycles(tensor.bytes, ipus, analysis.graph),
    )


def _copy_differs(node: Copy) -> str | None:
    match node.source:
        case Stream(replicated=True) as stream:
            return f"stream {stream.name!r}, which has data of its own for each replica,"
        case RemoteBuffer() as buffer:
            return f"remote buffer {buffer.name!r}, of which each replica has its own,"
    return None


def _copy_why(node: Copy) -> Iterator[str]:
    if isinstance(node.source, Tensor) and isinstance(node.destination, Tensor):
        yield f"  from {_spread(node.source)} to {_spread(node.destination)}"
        if node.source.overlaps(node.destination):
            yield "  the views overlap: all is read before the first write, through a buffer"


def _spread(tensor: Tensor) -> str:
    pieces = len(tensor.intervals()[0])
    return f"{counted(pieces, 'interval')} on {tiles_text(tensor.mapping.tile)}"


NODES.add(Copy, NodeMeaning(_copy_kind, _copy, origin=_copy_origin, differs=_copy_differs, why=_copy_why))


def _cross_replica(analysis: Analysis, step: Step) -> Superstep:
    node = step.node
    assert isinstance(node, CrossReplicaCopy | CrossReplicaExchange)
    access = analysis.access(step)
    plan = plan_replica_copies(node.copies, analysis.layout, analysis.tiles_per_ipu)
    whole = analysis.graph.whole_system
    found = replace(Superstep.of(step, access), sync_cycles=_replica_barrier(analysis, plan))
    return analysis.moving(found, plan, whole if analysis.graph.replicas > 1 else None)


def _replica_barrier(analysis: Analysis, plan: ExchangePlan) -> int:
    """Cycles of the barrier before a copy between replicas: of all IPUs, as soon as anything leaves a replica.

    Chips have two barriers: of the IPUs of a replica, and of all.
    """
    if plan.before is None or not len(plan.before.link_bytes.source):
        return analysis.system.sync_cycles
    return analysis.graph.whole_system.sync_cycles


def _cross_replica_why(node: CrossReplicaCopy | CrossReplicaExchange) -> Iterator[str]:
    for copy in node.copies:
        yield f"  from {_spread(copy.source)} to {_spread(copy.destination)} of another replica"


for _kind in (CrossReplicaCopy, CrossReplicaExchange):
    NODES.add(
        _kind,
        NodeMeaning(
            lambda n: "cross_replica",
            _cross_replica,
            differs=lambda n: f"a {type(n).__name__}",
            why=_cross_replica_why,
        ),
    )


# --- the host --------------------------------------------------------------------------------------------------------


def _host_call(analysis: Analysis, step: Step) -> Superstep:
    """Inputs go to the host, outputs come back: a rendezvous each, even where nothing is given or taken."""
    node = step.node
    assert isinstance(node, HostCall)
    found = analysis.meeting_host(step, (*node.inputs, *node.outputs), rendezvous=2)
    analysis.add_buffers(node.inputs, inward=False)
    analysis.add_buffers(node.outputs, inward=True)
    return replace(found, host_cycles=analysis.host_cycles(node.inputs) + analysis.host_cycles(node.outputs))


NODES.add(
    HostCall, NodeMeaning(lambda n: "host_call", _host_call, differs=lambda n: f"host function {n.function.name!r}")
)


def _print(analysis: Analysis, step: Step) -> Superstep:
    assert isinstance(step.node, PrintTensor)
    tensors = [step.node.tensor]
    return replace(analysis.meeting_host(step, tensors), host_cycles=analysis.host_cycles(tensors))


NODES.add(PrintTensor, NodeMeaning(lambda n: "print", _print, origin=lambda n: DebugRecord(n.title)))


# --- declarations ----------------------------------------------------------------------------------------------------


def _undef(analysis: Analysis, step: Step) -> Superstep:
    assert isinstance(step.node, WriteUndef)
    return Superstep.of(step, undef_access(step.node.tensor, analysis.layout))


def _undef_origin(node: WriteUndef) -> DebugRecord:
    variables = node.tensor.variables
    return variables[0].debug if variables else DebugRecord(node.tensor.name)


def _assume(analysis: Analysis, step: Step) -> Superstep:
    return Superstep.of(step, analysis.access(step))


NODES.add(WriteUndef, NodeMeaning(lambda n: "undef", _undef, origin=_undef_origin))
NODES.add(AssumeEqualAcrossReplicas, NodeMeaning(lambda n: "assume", _assume))
