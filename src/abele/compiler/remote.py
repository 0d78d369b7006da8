"""Remote buffers: time and room of streaming memory."""

from __future__ import annotations

import math

from abele.compiler.durations import host_cycles
from abele.errors import StreamMemoryError
from abele.graph.graph import Graph
from abele.words import counted


def remote_cycles(num_bytes: int, num_ipus: int, graph: Graph) -> int:
    """Tile cycles of one copy between tiles and a remote buffer.

    Args:
        num_bytes: Bytes that one replica moves.
        num_ipus: IPUs of one replica that take part.
        graph: The graph, whose replicas move their rows at the same time.

    Model: the latency of the host link, then each IPU's bytes at the rate that it reaches while all that take part use
    the memory of their machine. A system without streaming memory keeps the rows in the host's.
    Source: ``Dram``, ``HostLink``; that both ways have one latency is guessed.
    """
    system, replicas = graph.whole_system, graph.replicas
    if system.dram is None:
        return host_cycles(num_bytes * replicas, num_ipus * replicas, system)
    rate = system.dram_bytes_per_second(_busy_on_machine(num_ipus, graph))
    seconds = system.host.latency_seconds + num_bytes / num_ipus / rate
    return math.ceil(seconds * system.ipu.clock_hz)


def dram_cycles(num_bytes: int, num_ipus: int, graph: Graph) -> int:
    """Tile cycles for which one such copy keeps a machine's streaming memory from others; the host's without any."""
    system = graph.whole_system
    if system.dram is None:
        return host_cycles(num_bytes * graph.replicas, num_ipus * graph.replicas, system, rendezvous=False)
    moved = num_bytes / num_ipus * _busy_on_machine(num_ipus, graph)
    return math.ceil(moved / system.dram.bytes_per_second * system.ipu.clock_hz)


def _busy_on_machine(num_ipus: int, graph: Graph) -> int:
    """IPUs of one machine that take part when ``num_ipus`` of each replica do: small replicas share a machine."""
    dram = graph.whole_system.dram
    assert dram is not None
    replicas = min(graph.replicas, max(1, dram.ipus_per_dram // graph.system.num_ipus))
    return min(dram.ipus_per_dram, num_ipus * replicas)


def check_remote_memory(graph: Graph) -> None:
    """All remote buffers of all replicas fit the streaming memory.

    Raises:
        StreamMemoryError: They do not.
    """
    system, buffers = graph.whole_system, list(graph.remote_buffers.values())
    needed = graph.replicas * sum(b.bytes for b in buffers)
    if system.dram is None or needed <= system.dram_bytes:
        return
    largest = max(buffers, key=lambda b: b.bytes)
    raise StreamMemoryError(
        f"remote buffers need {needed:,} B of streaming memory, {system.name} has {system.dram_bytes:,} B",
        at=largest.debug.location or None,
        because=f"{counted(len(buffers), 'buffer')} in each of {graph.replicas} replicas; the largest is {largest!r}, "
        f"{largest.bytes:,} B",
        remedy="fewer rows, fewer replicas, or a larger system",
    )
