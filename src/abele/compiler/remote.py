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

    Model: the latency of the host link, then the bytes at the slower of the IPUs' ports and the streaming memories
    behind them, which the IPUs of a machine share. A system without streaming memory keeps the rows in the host's.
    Source: ``Dram``, ``HostLink``; that both ways have one latency is guessed.
    """
    system, replicas = graph.whole_system, graph.replicas
    if system.dram is None:
        return host_cycles(num_bytes * replicas, num_ipus * replicas, system)
    machines = -(-num_ipus * replicas // system.dram.ipus_per_dram)
    rate = min(
        num_ipus * replicas * system.host.ipu_bytes_per_second,
        machines * system.dram.bytes_per_second,
    )
    seconds = system.host.latency_seconds + num_bytes * replicas / rate
    return math.ceil(seconds * system.ipu.clock_hz)


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
