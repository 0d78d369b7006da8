"""Traffic of a pipeline: what links, rings and streaming memory take, from the rooms that know."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from abele.compiler import compile_program
from abele.compiler.durations import host_cycles, link_cycles, remote_cycles
from abele.compiler.traffic import LinkBytes
from abele.graph import Graph, Steps
from abele.llvm.kept import kept
from abele.machine import System
from abele.numerics import ElementType, f16, quarter, u32
from abele.own_code import own_code
from abele.poplibs import gcl, popops
from abele.poplibs.gcl import CommGroup

Transfer = tuple[int, int, int]
"""Bytes from one IPU of a replica to another: sender, receiver, bytes."""


def transfer_cycles(transfers: Sequence[Transfer], ipus: int, system: System) -> int:
    """Cycles of one exchange of a pipeline.

    Args:
        transfers: Transfers of a replica; replicas share no links.
        ipus: IPUs of a replica.
        system: The machine.

    Raises:
        MachineError: The system has no links between two of the IPUs.
    """
    sent = np.array([t for t in transfers if t[2] and t[0] != t[1]], np.int64).reshape(-1, 3)
    if not len(sent):
        return 0
    used = system.with_ipus(ipus)
    exchange = used.ipu.exchange
    start = exchange.phase_overhead_cycles + exchange.route_mean_cycles
    return start + link_cycles(LinkBytes(*sent.T), used) + used.sync_cycles_of(ipus)


@dataclass(frozen=True)
class CollectiveCosts:
    """Costs of summing the gradients of one IPU over replicas, linear in their size.

    Attributes:
        start_cycles: Cycles without regard to their size.
        cycles_per_byte: Cycles for each byte besides.
        code_bytes: Code and vertex state on a usual tile. A single one also sums what is left over.
        copies: Temporaries beside the gradients, in multiples of these.
    """

    start_cycles: float
    cycles_per_byte: float
    code_bytes: int
    copies: float


_SMALL, _LARGE = 1 << 20, 1 << 23
"""Bytes of the collectives that are compiled to find their cost."""


@lru_cache(maxsize=64)
def collective_costs(
    ipus: int, replicas: int, system: System, dtype: ElementType = f16, *, group: int = 1
) -> CollectiveCosts:
    """Costs of summing gradients over replicas: programs of that alone are compiled, for one IPU of each replica.

    Args:
        ipus: IPUs of a replica.
        replicas: Number of replicas.
        system: The machine.
        dtype: Element type of the gradients.
        group: Consecutive replicas that compute a model together: those of the same rank sum.
    """
    of = f"{own_code()} {ipus} {replicas} {group} {system!r} {dtype.name}"
    return kept(of, CollectiveCosts, lambda: _collective_costs(ipus, replicas, system, dtype, group))


def _collective_costs(ipus: int, replicas: int, system: System, dtype: ElementType, group: int) -> CollectiveCosts:
    reports = []
    ranks = CommGroup.orthogonal(replicas // group) if group > 1 else CommGroup.all()
    for size in (_SMALL, _LARGE):
        graph, prog = Graph(system.with_ipus(ipus * replicas), replicas=replicas), Steps()
        here = graph.ipu(0) if ipus > 1 else graph
        data = here.map_linear(here.variable(dtype, (size // dtype.bytes,), name="gradients"))
        gcl.all_reduce_cross_replica_in_place(here, data, "add", prog, ranks, name="all_reduce")
        reports.append(compile_program(graph, prog, allow_out_of_memory=True).report)
    small, large = (report.total_cycles for report in reports)
    slope = (large - small) / (_LARGE - _SMALL)
    memory = reports[-1].memory
    held = dict(zip(memory.categories, memory.bytes, strict=True))
    # Of the IPU of the first replica. Stacks are one memory for all steps, and segments have it.
    code = sum(held[name] for name in ("vertex_state", "vertex_code", "control_code", "exchange_code"))
    copies = held["temporaries"][: system.ipu.num_tiles].sum() / _LARGE
    return CollectiveCosts(small - slope * _SMALL, slope, int(np.median(code[: system.ipu.num_tiles])), float(copies))


def all_reduce_cycles(bytes_by_ipu: Sequence[int], replicas: int, system: System, *, group: int = 1) -> int:
    """Cycles of summing gradients over replicas, IPU after IPU: all of them wait at the barriers of each.

    Args:
        bytes_by_ipu: Gradients on each IPU of a replica.
        replicas: Number of replicas.
        system: The machine.
        group: Consecutive replicas that compute a model together: those of the same rank sum.
    """
    if replicas == group or not any(bytes_by_ipu):
        return 0
    costs = collective_costs(len(bytes_by_ipu), replicas, system, group=group)
    return math.ceil(sum(costs.start_cycles + costs.cycles_per_byte * size for size in bytes_by_ipu if size))


@dataclass(frozen=True)
class RingCosts:
    """Costs of writing and reading one row of a ring, linear in its size.

    Attributes:
        start_cycles: Cycles without regard to the size.
        cycles_per_byte: Cycles for each stored byte on a tile besides.
        code_bytes: Codelets and stacks on the fullest tile.
    """

    start_cycles: float
    cycles_per_byte: float
    code_bytes: int


STASH = quarter("F143", 0)
"""The 8-bit float of narrow stashes: of the two formats the one with more digits."""
_ROWS = 2
"""Rows of the ring that is compiled; the time per row hardly depends on their number."""
_ROW_SIZES = (256, 2048)
"""Bytes on a tile of the rows that are compiled."""


@lru_cache(maxsize=16)
def ring_costs(system: System, *, narrow: bool = False) -> RingCosts:
    """Costs of the rows of rings: programs of one are compiled, of float16 values.

    Args:
        system: The machine.
        narrow: True if rows are stored as 8-bit floats.
    """
    return kept(f"{own_code()} {narrow} {system!r}", RingCosts, lambda: _ring_costs(system, narrow=narrow))


def _ring_costs(system: System, *, narrow: bool) -> RingCosts:
    stored, reports = STASH if narrow else f16, []
    for size in _ROW_SIZES:
        graph, prog = Graph(system.with_ipus(1)), Steps()
        made = graph.map_linear(graph.variable(f16, (1, size // stored.bytes * graph.num_tiles), name="made"))
        row = popops.cast(graph, made, stored, prog, "narrow") if narrow else made
        table = popops.create_sliceable_tensor_from_slice(graph, row, [0], [_ROWS], name="ring")
        place = graph.map(graph.variable(u32, (1,), name="place"), 0)
        popops.dynamic_update(graph, table, row, offset=place, dims=[0], sizes=[1], prog=prog, name="write")
        read = popops.dynamic_slice(graph, table, place, [0], [1], prog, name="read")
        if narrow:
            popops.cast(graph, read, f16, prog, "widen")
        reports.append(compile_program(graph, prog, allow_out_of_memory=True).report)
    small, large = (report.total_cycles for report in reports)
    slope = (large - small) / (_ROW_SIZES[1] - _ROW_SIZES[0])
    memory = reports[0].memory
    held = dict(zip(memory.categories, memory.bytes, strict=True))
    return RingCosts(small - slope * _ROW_SIZES[0], slope, int(np.max(held["vertex_code"] + held["stacks"])))


def ring_cycles(row_bytes: npt.NDArray[np.int64], system: System, *, narrow: bool = False) -> npt.NDArray[np.int64]:
    """Cycles of writing and of reading one row of rings; 0 where a row has nothing in it.

    Args:
        row_bytes: A stored row of each, over all tiles.
        system: The machine.
        narrow: True if rows are stored as 8-bit floats.
    """
    if not row_bytes.any():
        return np.zeros_like(row_bytes)
    costs = ring_costs(system, narrow=narrow)
    cycles = np.ceil(costs.start_cycles + costs.cycles_per_byte * row_bytes / system.ipu.num_tiles).astype(np.int64)
    return np.where(row_bytes > 0, cycles, 0)


def streaming_cycles(units: Iterable[float], ipus: int, replicas: int, system: System) -> int:
    """Cycles of bringing data of every replica from streaming memory and back, one unit after the other.

    Args:
        units: Bytes of each unit of one replica, which is on one of its IPUs.
        ipus: IPUs of a replica.
        replicas: Number of replicas.
        system: The machine.
    """
    graph = Graph(system.with_ipus(ipus * replicas), replicas=replicas)
    return sum(2 * remote_cycles(round(size), 1, graph) for size in units)


def away_cycles(
    row_bytes: npt.NDArray[np.int64], copies: npt.NDArray[np.int64], ipus: int, replicas: int, system: System
) -> npt.NDArray[np.int64]:
    """Cycles of writing or of reading one row of rings in streaming memory; 0 where a row has nothing in it.

    Args:
        row_bytes: A stored row of each, over all tiles of an IPU.
        copies: Copies that bring a row there.
        ipus: IPUs of a replica.
        replicas: Number of replicas.
        system: The machine.
    """
    graph = Graph(system.with_ipus(ipus * replicas), replicas=replicas)
    sizes, place = np.unique(row_bytes, return_inverse=True)
    cycles = [remote_cycles(int(size), 1, graph) if size else 0 for size in sizes]
    further = (copies - 1) * remote_cycles(0, 1, graph)
    found = np.array(cycles, np.int64)[place].reshape(row_bytes.shape)
    return np.where(row_bytes > 0, found + further, 0)


Cycles = npt.NDArray[np.int64]
Streams = tuple[int, int]
"""Cycles of some streams behind the meeting with the host: in all, and in which they keep the host's link busy."""


def stream_cycles(sizes: Sequence[int], ipus: int, replicas: int, system: System) -> Streams:
    """Cycles of streams between the host and one IPU of each replica, one after the other.

    Args:
        sizes: Bytes of each, for one replica.
        ipus: IPUs of a replica.
        replicas: Number of replicas.
        system: The machine.
    """
    used = system.with_ipus(ipus * replicas)
    sync = used.ipu.sync.on_chip_cycles
    link = sum(host_cycles(size * replicas, replicas, used, rendezvous=False) for size in sizes)
    return link + sync * len(sizes), link


def meeting_cycles(ipus: int, replicas: int, system: System) -> int:
    """Cycles of one meeting with the host, which consecutive streams share."""
    return host_cycles(0, replicas, system.with_ipus(ipus * replicas))


def handing_cycles(sizes: Sequence[int], io_tiles: int, system: System) -> int:
    """Cycles in which IO tiles hand over what was loaded, or get what is to be sent, one exchange for each.

    Args:
        sizes: Bytes of each.
        io_tiles: Tiles that hand over.
        system: The machine.
    """
    exchange = system.ipu.exchange
    start = exchange.phase_overhead_cycles + exchange.route_mean_cycles + system.ipu.sync.on_chip_cycles
    return sum(start + math.ceil(size / (io_tiles * exchange.bytes_per_cycle)) for size in sizes)


Apart = tuple[int, int] | None
"""Cycles of some work before its replica first meets others of its group, and after it last does; None where it never
does."""


def joined_apart(parts: Iterable[tuple[int, Apart]]) -> Apart:
    """The same of works one after the other, each with its cycles.

    >>> joined_apart([(5, None), (9, (2, 3)), (7, (1, 1)), (4, None)])
    (7, 5)
    """
    before, after, meets = 0, 0, False
    for cycles, apart in parts:
        if apart is not None:
            before, after, meets = before + (0 if meets else apart[0]), apart[1], True
        elif meets:
            after += cycles
        else:
            before += cycles
    return (before, after) if meets else None


@dataclass(frozen=True)
class StageWork:
    """Work of a stage in a tick.

    Attributes:
        ipu: The IPU that it runs on.
        entering: Streams from the host to it.
        cycles: Its own work.
        leaving: Streams to the host from it.
        apart: Cycles of that before and after it meets other replicas, which all IPUs wait for.
    """

    ipu: int
    entering: Streams
    cycles: int
    leaving: Streams
    apart: Apart = None

    def busy_cycles(self, meeting: int, *, apart: bool) -> int:
        """Cycles that its IPU alone is busy: with its streams, where IPUs meet the host apart."""
        return self.cycles + (met(self.entering[0], meeting) + met(self.leaving[0], meeting) if apart else 0)


def tick_cycles(stages: Iterable[StageWork], meeting: int, *, apart: bool = False, beside: bool = False) -> int:
    """Cycles of a tick, without the exchange that it begins with.

    It loads what stages have of the host, runs them, the last one first, and sends what the host has of them. Stages of
    one IPU follow each other, those of different ones run side by side but for where replicas of a group exchange: all
    IPUs are at that barrier. All IPUs wait for the streams of all; where they meet the host apart, each for its own,
    and all share the host's link.

    Args:
        stages: Those that run.
        meeting: Cycles of meeting the host.
        apart: True if IPUs meet the host without one another.
        beside: True if IO tiles meet the host while the others compute.
    """
    listed = list(stages)
    by_ipu = dict.fromkeys((stage.ipu for stage in listed), 0)
    for stage in reversed(listed):
        before, after = stage.apart or (stage.busy_cycles(meeting, apart=apart), 0)
        by_ipu[stage.ipu] += before
        if stage.apart is not None:
            together = max(by_ipu.values()) + stage.busy_cycles(meeting, apart=apart) - before - after
            by_ipu = dict.fromkeys(by_ipu, together)
            by_ipu[stage.ipu] += after
    slowest = max(by_ipu.values(), default=0)
    if apart:
        return max(slowest, sum(stage.entering[1] + stage.leaving[1] for stage in listed))
    entering, leaving = sum(stage.entering[0] for stage in listed), sum(stage.leaving[0] for stage in listed)
    host = met(entering, meeting) + met(leaving, meeting)
    return max(slowest, host) if beside else slowest + host


def met(cycles: int, meeting: int) -> int:
    """Streams and the meeting before them, where there are any."""
    return cycles + meeting if cycles else 0
