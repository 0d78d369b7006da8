"""Collectives between the IPUs of one replica."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.errors import TensorError
from abele.graph import Graph, Tensor, concat
from abele.graph.mapping import TileMapping
from abele.graph.program import Copy, Sequence, WriteUndef
from abele.numerics import ElementType
from abele.poplibs.gcl.calls import ReduceCall
from abele.poplibs.gcl.costs import cheapest
from abele.poplibs.gcl.methods import Lane, Move, gather_steps, lanes_of, num_parts, scatter_steps
from abele.poplibs.gcl.operators import CollectiveOperator, after_receiving, before_sending, combine
from abele.poplibs.gcl.options import Wanted, read_method
from abele.poplibs.gcl.order import ring_order
from abele.poplibs.gcl.ring import apart
from abele.poplibs.gcl.rows import column_parts
from abele.poplibs.poputil.mapping import linear_mapping, map_tensor_linearly
from abele.poplibs.poputil.options import Options
from abele.poplibs.poputil.record_calls import takes_fields_of
from abele.words import counted


@takes_fields_of(ReduceCall, name="reduce_scatter_within")
def reduce_scatter_within_replica(call: ReduceCall) -> Tensor:
    """Combine the rows of ``data``, one per IPU, and leave each IPU a part of the result.

    Args:
        graph: A graph over several IPUs.
        data: [IPUs, n]; row i belongs on IPU i.
        op: A :class:`CollectiveOperator` or its name, not ``LOCAL``.
        prog: Sequence that the steps are appended to.
        options: See :data:`COLLECTIVE_OPTIONS`; ``method`` counts.
        name: Name of the steps.

    Returns:
        [IPUs, ⌈n/IPUs⌉]: row i, on IPU i, has elements i·⌈n/IPUs⌉ on; what lies behind the last is padding.

    Raises:
        TensorError: ``data`` does not have one row for each IPU, or the operator is ``LOCAL``.
        InvalidOptionError: A misspelt operator or option.
        TypeMismatchError: The operator does not take elements of this type.
    """
    graph, data, prog, name = call.graph, call.data, call.prog, call.name
    kind, method = call.kind(), call.method()
    ipus = _check(graph, data, name)
    if kind is CollectiveOperator.LOCAL:
        raise TensorError(f"{name}: the operator local combines nothing between IPUs")
    with graph.scope(name):
        width = -(-data.shape[1] // ipus)
        circle = _circle(graph, method, width * data.dtype.bytes)
        sent = before_sending(graph, kind, data, prog, "reduce_scatter")
        own = _on_ipus(graph, data.dtype, ipus, width, "own")
        prog.add(Copy(_padded(graph, sent, ipus * width), own.reshape((ipus, -1))))
        received = _on_ipus(graph, data.dtype, len(circle.lanes), width, "received")
        prog.add(WriteUndef(received))
        parts = column_parts(graph, data.dtype, width, num_parts(circle.lanes))
        for step, moves in enumerate(scatter_steps(circle.lanes, ipus)):
            going = [(m, parts[m.part]) for m in moves if m.part < len(parts)]
            ends = [(circle.rows(own, m)[:, at], circle.lane(received, m)[:, at]) for m, at in going]
            _copy_all(ends, prog)
            for together in apart([m for m, _ in going]):
                into = concat([circle.arriving(own, m)[:, parts[m.part]].flatten() for m in together])
                other = concat([circle.lane(received, m)[:, parts[m.part]].flatten() for m in together])
                combine(graph, kind, into, other, prog, f"step{step}")
        result = _chosen(own, np.arange(ipus), np.arange(ipus))
        after_receiving(graph, kind, result, ipus, prog, "reduce_scatter")
    return result


def all_gather_within_replica(
    graph: Graph, data: Tensor, prog: Sequence, *, options: Options = None, name: str = "all_gather_within"
) -> Tensor:
    """Give every IPU the rows of all: [IPUs, n] → [IPUs, IPUs · n], row i on IPU i.

    Arguments and errors as of :func:`reduce_scatter_within_replica`.
    """
    method, ipus = read_method(name, options), _check(graph, data, name)
    with graph.scope(name):
        width = data.shape[1]
        circle = _circle(graph, method, width * data.dtype.bytes)
        gathered = _on_ipus(graph, data.dtype, ipus, width, "gathered")
        prog.add(WriteUndef(gathered))
        prog.add(Copy(data, _chosen(gathered, np.arange(ipus), np.arange(ipus))))
        parts = column_parts(graph, data.dtype, width, num_parts(circle.lanes))
        for moves in gather_steps(circle.lanes, ipus):
            going = [(m, parts[m.part]) for m in moves if m.part < len(parts)]
            _copy_all([(circle.rows(gathered, m)[:, at], circle.arriving(gathered, m)[:, at]) for m, at in going], prog)
    return gathered.reshape((ipus, -1))


@takes_fields_of(ReduceCall, name="all_reduce_within")
def all_reduce_within_replica(call: ReduceCall) -> Tensor:
    """Combine the rows of ``data`` and give every IPU the result: [IPUs, n] → [IPUs, n], row i on IPU i.

    Arguments and errors as of :func:`reduce_scatter_within_replica`.

    Model: reduce-scatter and all-gather on a ring: 2·(IPUs−1)/IPUs of a row's bytes go over each link, half of it each
    way where the method runs both ways.
    """
    part = reduce_scatter_within_replica(**vars(call))
    whole = all_gather_within_replica(call.graph, part, call.prog, options=call.options, name=call.name)
    return whole[:, : call.data.shape[1]]


@dataclass(frozen=True)
class _Circle:
    """The IPUs of a replica as a ring.

    Attributes:
        order: IPUs by place, int64[ipus].
        lanes: Lanes that run round the ring.
    """

    order: Int64
    lanes: tuple[Lane, ...]

    def rows(self, tensor: Tensor, move: Move) -> Tensor:
        """Rows of ``tensor`` [IPUs, parts, width] that the IPU at each place sends: [IPUs, width]."""
        return _chosen(tensor, self.order, np.roll(self.order, -move.sent))

    def arriving(self, tensor: Tensor, move: Move) -> Tensor:
        """Rows of ``tensor`` [IPUs, parts, width] that receive a move's data: [IPUs, width]."""
        onto = np.roll(self.order, -move.way)
        return _chosen(tensor, onto, np.roll(onto, -move.received))

    def lane(self, received: Tensor, move: Move) -> Tensor:
        """Rows of ``received`` [IPUs, lanes, width] that receive a move's data: [IPUs, width]."""
        onto = np.roll(self.order, -move.way)
        return _chosen(received, onto, np.full(len(onto), move.lane))


def _circle(graph: Graph, method: Wanted, row_bytes: int) -> _Circle:
    every = np.arange(graph.system.num_ipus, dtype=np.int64)[None]
    order = ring_order(every, 1, graph.system)
    chosen = cheapest(every, order, 1, graph.system, row_bytes) if method == "auto" else method
    return _Circle(order, lanes_of(chosen, every.size))


def _copy_all(ends: list[tuple[Tensor, Tensor]], prog: Sequence) -> None:
    """Copies side by side, in one exchange."""
    if ends:
        source, destination = (concat([view.flatten() for view in side]) for side in zip(*ends, strict=True))
        prog.add(Copy(source, destination))


def _check(graph: Graph, data: Tensor, name: str) -> int:
    ipus = graph.system.num_ipus
    if data.ndim != 2 or data.shape[0] != ipus:
        raise TensorError(
            f"{name}: {data!r} does not have one row for each of the {counted(ipus, 'IPU')}",
            remedy=f"shape ({ipus}, n)",
        )
    return ipus


def _on_ipus(graph: Graph, dtype: ElementType, parts: int, width: int, name: str) -> Tensor:
    """A variable [IPUs, parts, width] with each part spread over the tiles of its IPU."""
    ipus, each = graph.system.num_ipus, graph.system.ipu.num_tiles
    made = graph.variable(dtype, (ipus, parts, width), name=name)
    one = linear_mapping(graph, width, dtype)
    used = min(each, len(one.tile))
    # Chunks for all tiles of the graph are joined to as many as one IPU has tiles.
    begin = one.begin[np.arange(used, dtype=np.int64) * len(one.begin) // used]
    starts = np.arange(ipus * parts, dtype=np.int64)[:, None] * width + begin
    ipu = np.repeat(np.arange(ipus, dtype=np.int64), parts)[:, None]
    tile = (ipu * each + np.arange(used)).astype(np.int32)
    return graph.map(made, TileMapping(made.size, starts.ravel(), tile.ravel()))


def _padded(graph: Graph, data: Tensor, width: int) -> Tensor:
    missing = width - data.shape[1]
    if not missing:
        return data
    zeros = graph.constant(data.dtype, (data.shape[0], missing), 0, name="padding")
    return concat([data, map_tensor_linearly(graph, zeros)], 1)


def _chosen(tensor: Tensor, ipus: Int64, parts: Int64) -> Tensor:
    """Part ``parts[k]`` of IPU ``ipus[k]`` for each k: [k, width]."""
    return concat([tensor[i, p : p + 1] for i, p in zip(ipus.tolist(), parts.tolist(), strict=True)])
