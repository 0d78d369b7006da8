"""Traffic of a pipeline: what links, rings and streaming memory take, from the rooms that know."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from abele.compiler import compile_program
from abele.compiler.durations import host_cycles
from abele.compiler.links import link_cycles
from abele.compiler.remote import remote_cycles
from abele.compiler.traffic import LinkBytes
from abele.graph import Graph
from abele.graph import Sequence as Steps
from abele.machine import System
from abele.numerics import ElementType, f16, u32
from abele.poplibs import gcl, popops

Transfer = tuple[int, int, int]
"""Bytes from one IPU of a replica to another: sender, receiver, bytes."""


def transfer_cycles(transfers: Sequence[Transfer], ipus: int, system: System) -> int:
    """Cycles of one exchange of a pipeline.

    Args:
        transfers: What a replica sends; replicas share no links.
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
    """What summing the gradients of one IPU over replicas costs, which grows evenly with them.

    Attributes:
        start_cycles: Cycles without regard to their size.
        cycles_per_byte: Cycles for each byte besides.
        code_bytes: Code, vertex state and stacks on the fullest tile.
    """

    start_cycles: float
    cycles_per_byte: float
    code_bytes: int


_SMALL, _LARGE = 1 << 20, 1 << 23
"""Bytes at which collectives are compiled to find what they cost."""


@lru_cache(maxsize=64)
def collective_costs(ipus: int, replicas: int, system: System, dtype: ElementType = f16) -> CollectiveCosts:
    """Costs of summing gradients over replicas: programs of that alone are compiled, for one IPU of each replica.

    Args:
        ipus: IPUs of a replica.
        replicas: How many sum.
        system: The machine.
        dtype: Element type of the gradients.
    """
    reports = []
    for size in (_SMALL, _LARGE):
        graph, prog = Graph(system.with_ipus(ipus * replicas), replicas=replicas), Steps()
        here = graph.ipu(0) if ipus > 1 else graph
        data = here.map_linear(here.variable(dtype, (size // dtype.bytes,), name="gradients"))
        gcl.all_reduce_cross_replica_in_place(here, data, "add", prog, name="all_reduce")
        reports.append(compile_program(graph, prog, allow_out_of_memory=True).report)
    small, large = (report.total_cycles for report in reports)
    slope = (large - small) / (_LARGE - _SMALL)
    memory = reports[-1].memory
    held = dict(zip(memory.categories, memory.bytes, strict=True))
    code = sum(held[name] for name in ("vertex_state", "vertex_code", "control_code", "exchange_code", "stacks"))
    return CollectiveCosts(small - slope * _SMALL, slope, int(np.max(code)))


def all_reduce_cycles(bytes_by_ipu: Sequence[int], replicas: int, system: System) -> int:
    """Cycles of summing gradients over replicas, IPU after IPU: all are at the barrier of what leaves one.

    Args:
        bytes_by_ipu: Gradients on each IPU of a replica.
        replicas: How many sum.
        system: The machine.
    """
    if replicas == 1 or not any(bytes_by_ipu):
        return 0
    costs = collective_costs(len(bytes_by_ipu), replicas, system)
    return math.ceil(sum(costs.start_cycles + costs.cycles_per_byte * size for size in bytes_by_ipu if size))


@lru_cache(maxsize=64)
def _ring_costs(system: System, rows: int) -> tuple[float, float]:
    """Cycles of writing and reading one row of a ring: a constant, and for each byte on a tile."""
    sizes = (256, 2048)
    cycles = []
    for size in sizes:
        graph, prog = Graph(system.with_ipus(1)), Steps()
        row = graph.map_linear(graph.variable(f16, (1, size // 2 * graph.num_tiles), name="row"))
        table = popops.create_sliceable_tensor_from_slice(graph, row, [0], [rows], name="ring")
        place = graph.map(graph.variable(u32, (1,), name="place"), 0)
        popops.dynamic_update(graph, table, row, offset=place, dims=[0], sizes=[1], prog=prog, name="write")
        popops.dynamic_slice(graph, table, place, [0], [1], prog, name="read")
        cycles.append(compile_program(graph, prog, allow_out_of_memory=True).report.total_cycles)
    slope = (cycles[1] - cycles[0]) / (sizes[1] - sizes[0])
    return cycles[0] - slope * sizes[0], slope


def ring_cycles(row_bytes: npt.NDArray[np.int64], system: System) -> npt.NDArray[np.int64]:
    """Cycles of writing and of reading one row of rings; 0 where a row has nothing in it.

    Args:
        row_bytes: A row of each, over all tiles.
        system: The machine.
    """
    if not row_bytes.any():
        return np.zeros_like(row_bytes)
    # How long a row takes hardly depends on how many there are; two stand for all.
    base, slope = _ring_costs(system, 2)
    cycles = np.ceil(base + slope * row_bytes / system.ipu.num_tiles).astype(np.int64)
    return np.where(row_bytes > 0, cycles, 0)


def streaming_cycles(units: Iterable[float], ipus: int, replicas: int, system: System) -> int:
    """Cycles of bringing data of every replica from streaming memory and back, one unit after the other.

    Args:
        units: Bytes of each unit of one replica, which is on one of its IPUs.
        ipus: IPUs of a replica.
        replicas: How many there are.
        system: The machine.
    """
    graph = Graph(system.with_ipus(ipus * replicas), replicas=replicas)
    return sum(2 * remote_cycles(round(size), 1, graph) for size in units)


Cycles = npt.NDArray[np.int64]
Streams = tuple[int, int]
"""Cycles of some streams: in all, and in which they keep the host's link busy."""


def stream_cycles(sizes: Sequence[int], ipus: int, replicas: int, system: System) -> Streams:
    """Cycles of streams between the host and one IPU of each replica, one after the other.

    Args:
        sizes: Bytes of each, for one replica.
        ipus: IPUs of a replica.
        replicas: How many there are.
        system: The machine.
    """
    used = system.with_ipus(ipus * replicas)
    sync = used.ipu.sync.on_chip_cycles
    link = sum(host_cycles(size * replicas, replicas, used, rendezvous=False) for size in sizes)
    # Streams that follow each other meet the host once.
    meeting = host_cycles(0, replicas, used)
    return meeting + link + sync * len(sizes), link


@dataclass(frozen=True)
class StageWork:
    """What a stage does in a tick.

    Attributes:
        ipu: Where.
        entering: Streams from the host before it.
        cycles: Its own work.
        leaving: Streams to the host after it.
    """

    ipu: int
    entering: Streams
    cycles: int
    leaving: Streams


def tick_cycles(stages: Iterable[StageWork], *, apart: bool = False) -> int:
    """Cycles of a tick, without the exchange that it begins with.

    Stages of one IPU follow each other, those of different ones run side by side. At a transfer from or to the host all
    IPUs meet, in the order of the program; where they meet it apart, the host serves one after the other.

    Args:
        stages: In the order of the program: the last one first.
        apart: True if IPUs meet the host without one another.
    """
    free: dict[int, int] = {}
    met = host = 0
    for stage in stages:
        now = free.get(stage.ipu, met)
        for streams, cycles in ((stage.entering, stage.cycles), (stage.leaving, 0)):
            whole, link = streams
            if whole and apart:
                start = max(now, host)
                now, host = start + whole, start + link
            elif whole:
                now = met = max(now, met, *free.values()) + whole
                free.clear()
            now += cycles
            free[stage.ipu] = now
    return max(free.values(), default=met)


@dataclass(frozen=True)
class StageWorks:
    """What a stage does in a tick for each of several begins; cycles as int64[begins].

    Attributes:
        entering: Streams from the host before it: in all, and in which they keep the host's link busy.
        cycles: Its own work.
        leaving: Streams to the host after it.
    """

    entering: tuple[Cycles, Cycles]
    cycles: Cycles
    leaving: tuple[Cycles, Cycles]


def end_cycles(back: int, forward: StageWork, last: StageWorks, *, together: bool, apart: bool = False) -> Cycles:
    """Cycles of a tick of first and last stage, as :func:`tick_cycles` has them, for each begin of the last.

    Args:
        back: The backward stage of the first, which begins.
        forward: The first stage.
        last: The last stage.
        together: True if both are on one IPU.
        apart: True if IPUs meet the host without one another.
    """
    first = host = np.full_like(last.cycles, 0)
    first = first + back
    other = first if together else host

    def streamed(streams: tuple[Cycles, Cycles] | Streams, now: Cycles, beside: Cycles) -> tuple[Cycles, Cycles]:
        """When the IPU that has the streams goes on, and the other one."""
        nonlocal host
        whole, link = map(np.asarray, streams)
        start = np.maximum(now, host if apart else beside)
        host = np.where(whole > 0, start + link, host)
        return np.where(whole > 0, start + whole, now), beside if apart else np.where(whole > 0, start + whole, beside)

    other, first = streamed(last.entering, other, first)
    other, first = streamed(last.leaving, other + last.cycles, first)
    first, other = streamed(forward.entering, other if together else first, other)
    first, other = streamed(forward.leaving, first + forward.cycles, other)
    return first if together else np.maximum(first, other)
