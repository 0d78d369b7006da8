"""Nodes that compute or move data, as the compiler sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from abele.compiler.access import undef_access
from abele.compiler.exchange import plan_replica_copy
from abele.compiler.nodes.meaning import NODES, NodeMeaning
from abele.compiler.remote import remote_cycles
from abele.graph.control import AssumeEqualAcrossReplicas, CrossReplicaCopy
from abele.graph.host import HostCall
from abele.graph.program import Copy, Execute, PrintTensor, WriteUndef
from abele.graph.remote import RemoteBuffer
from abele.graph.stream import Stream
from abele.graph.tensor import Tensor
from abele.words import counted, tiles_text

if TYPE_CHECKING:
    from abele.compiler.analyse import Analysis
    from abele.compiler.lower import Step
    from abele.compiler.superstep import Superstep


# --- vertices --------------------------------------------------------------------------------------------------------


def _execute(analysis: Analysis, superstep: Superstep, step: Step) -> None:
    assert isinstance(step.node, Execute)
    analysis.compute_set(superstep, step.node.compute_set)


NODES.add(Execute, NodeMeaning(lambda n: "execute", _execute, name=lambda n: n.compute_set.name))


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


def _copy_name(node: Copy) -> str:
    match node:
        case Copy(source=Stream() | RemoteBuffer() as end) | Copy(destination=Stream() | RemoteBuffer() as end):
            return end.name
    return str(node.debug.full_name)


def _copy(analysis: Analysis, superstep: Superstep, step: Step) -> None:
    node = step.node
    assert isinstance(node, Copy)
    if isinstance(node.source, Tensor) and isinstance(node.destination, Tensor):
        analysis.copy(superstep, node, step.name)
        return
    analysis.check_access(superstep, step)
    tensor = node.source if isinstance(node.source, Tensor) else node.destination
    assert isinstance(tensor, Tensor)
    superstep.host_bytes = tensor.bytes
    analysis.meet_host(superstep, [tensor])
    if node.remote is not None:
        ipus = analysis.ipus_of([tensor])
        superstep.host_cycles = remote_cycles(tensor.bytes, ipus, analysis.graph)
        superstep.link_cycles = superstep.host_cycles - remote_cycles(0, ipus, analysis.graph)
        superstep.links = analysis.groups.drams(superstep.meets[0])
    else:
        superstep.host_cycles = analysis.host_cycles([tensor], rendezvous=not superstep.joins_previous)
    analysis.add_buffers([tensor], inward=node.destination is tensor)


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


NODES.add(Copy, NodeMeaning(_copy_kind, _copy, name=_copy_name, differs=_copy_differs, why=_copy_why))


def _cross_replica(analysis: Analysis, superstep: Superstep, step: Step) -> None:
    node = step.node
    assert isinstance(node, CrossReplicaCopy)
    analysis.check_access(superstep, step)
    plan = plan_replica_copy(node.source, node.destination, node.map, analysis.layout, analysis.tiles_per_ipu)
    whole = analysis.graph.whole_system
    superstep.sync_cycles = whole.sync_cycles
    analysis.set_exchange(superstep, plan, whole if analysis.graph.replicas > 1 else None)


NODES.add(
    CrossReplicaCopy,
    NodeMeaning(
        lambda n: "cross_replica",
        _cross_replica,
        differs=lambda n: "a CrossReplicaCopy",
        why=lambda n: [f"  from {_spread(n.source)} to {_spread(n.destination)} of another replica"],
    ),
)


# --- the host --------------------------------------------------------------------------------------------------------


def _host_call(analysis: Analysis, superstep: Superstep, step: Step) -> None:
    """Inputs go to the host, outputs come back: a rendezvous each, even where nothing is given or taken."""
    node = step.node
    assert isinstance(node, HostCall)
    analysis.check_access(superstep, step)
    superstep.host_bytes = sum(t.bytes for t in (*node.inputs, *node.outputs))
    superstep.host_cycles = analysis.host_cycles(node.inputs) + analysis.host_cycles(node.outputs)
    analysis.meet_host(superstep, (*node.inputs, *node.outputs), rendezvous=2)
    analysis.add_buffers(node.inputs, inward=False)
    analysis.add_buffers(node.outputs, inward=True)


NODES.add(
    HostCall, NodeMeaning(lambda n: "host_call", _host_call, differs=lambda n: f"host function {n.function.name!r}")
)


def _print(analysis: Analysis, superstep: Superstep, step: Step) -> None:
    node = step.node
    assert isinstance(node, PrintTensor)
    analysis.check_access(superstep, step)
    superstep.host_bytes = node.tensor.bytes
    superstep.host_cycles = analysis.host_cycles([node.tensor])
    analysis.meet_host(superstep, [node.tensor])


NODES.add(PrintTensor, NodeMeaning(lambda n: "print", _print, name=lambda n: n.title))


# --- declarations ----------------------------------------------------------------------------------------------------


def _undef(analysis: Analysis, superstep: Superstep, step: Step) -> None:
    assert isinstance(step.node, WriteUndef)
    superstep.access = undef_access(step.node.tensor, analysis.layout)


def _assume(analysis: Analysis, superstep: Superstep, step: Step) -> None:
    analysis.check_access(superstep, step)


NODES.add(WriteUndef, NodeMeaning(lambda n: "undef", _undef, name=lambda n: n.tensor.name))
NODES.add(AssumeEqualAcrossReplicas, NodeMeaning(lambda n: "assume", _assume))
