"""Timeline: cost of every step of the program, and its start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from abele.compiler.superstep import Copied, Exchanged, Superstep
from abele.compiler.sync_groups import Link, Meets
from abele.compiler.tile_vector import TileVector
from abele.machine import System

# Step kinds: each leaf of the program tree, in one word.

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
"""Kinds of steps, with their meanings."""

STREAMS = ("stream_in", "stream_out")
HOST_KINDS = (*STREAMS, "remote_in", "remote_out", "host_call", "print")
"""Kinds that are one transfer between tiles and other parts of the system."""
CONTROL_KINDS = ("decide", "abort", "sync", "timer_start", "timer_read", "mode", "seeds")
"""Kinds that steer, or touch the tiles' registers."""
NEUTRAL = ("undef", "assume")
"""Kinds that do nothing on the machine: they do not come between two stream copies."""


def partner_of(kind: str) -> str:
    """Partner of a kind of step beside the tiles of its replica; empty for none."""
    if kind == "cross_replica":
        return "replicas"
    if kind in ("remote_in", "remote_out"):
        return "streaming memory"
    return "host" if kind in HOST_KINDS else ""


@dataclass(frozen=True, slots=True)
class Part:
    """One line of the timeline: an exchange, copies on tiles, vertices, a host transfer or a decision.

    Attributes:
        kind: ``exchange``, ``copy``, ``compute``, ``stream`` or ``control``.
        name: Suffix that tells the parts of one step apart; empty for the main one.
        compute: Cycles of the slowest tile.
        exchange: Cycles of exchange.
        sync: Cycles of barriers and launches.
        host: Cycles of host transfers.
        bytes: Bytes moved between tiles, copied on tiles, or streamed.
        max_receive_bytes: Bytes that the tile receiving most receives.
        num_vertices: Vertices executed.
        active_tiles: Tiles with something to compute.
        balance: Mean compute cycles over the tiles of its groups / those of the slowest.
        meets: Sync groups that meet here; groups of different sets go through it without one another.
        links: Ways out of the chip that it shares with other groups.
        link_cycles: Cycles that it keeps those busy, at its end.
        work: Cycles that each tile spends on vertices or copies.
        sent: Bytes that each tile sends to others.
        received: Bytes that each tile receives from others.
    """

    kind: str
    name: str = ""
    compute: int = 0
    exchange: int = 0
    sync: int = 0
    host: int = 0
    bytes: int = 0
    max_receive_bytes: int = 0
    num_vertices: int = 0
    active_tiles: int = 0
    balance: float = 0.0
    meets: Meets = ((0,),)
    links: tuple[Link, ...] = ()
    link_cycles: int = 0
    work: TileVector | None = None
    sent: TileVector | None = None
    received: TileVector | None = None

    @property
    def groups(self) -> tuple[int, ...]:
        """Sync groups that it keeps busy."""
        return self.meets[0] if len(self.meets) == 1 else tuple(g for meet in self.meets for g in meet)

    @property
    def cycles(self) -> int:
        """Cycles of one execution."""
        return self.compute + self.exchange + self.sync + self.host


def parts_of(superstep: Superstep, system: System) -> tuple[Part, ...]:
    """The parts of a superstep, in the order in which they happen."""
    return tuple(_parts(superstep, system))


def _parts(superstep: Superstep, system: System) -> Iterator[Part]:
    sync = system.sync_cycles if superstep.sync_cycles is None else superstep.sync_cycles
    # Steps with the host, and steps of control, are one part each.
    if superstep.kind in HOST_KINDS:
        yield Part(
            "stream",
            sync=0 if superstep.joins_previous else sync,
            host=superstep.host_cycles,
            bytes=superstep.host_bytes,
            meets=superstep.meets,
            links=superstep.links,
            link_cycles=superstep.link_cycles,
        )
        return
    if superstep.kind in CONTROL_KINDS:
        moved = superstep.before
        yield Part(
            "control",
            compute=superstep.work_cycles,
            sync=sync,
            exchange=moved.cycles if moved else 0,
            host=superstep.host_cycles,
            bytes=moved.bytes if moved else 0,
            meets=superstep.meets,
            sent=moved.sent_bytes if moved else None,
            received=moved.received_bytes if moved else None,
        )
        return
    # A compute set or copy: bring data, arrange it, run the vertices, put results in place, send them home.
    if superstep.before is not None:
        yield _exchange(superstep.before, "exchange", superstep.sync_cycles)
    if superstep.gather is not None:
        yield _copy(superstep.gather, "arrange inputs")
    if superstep.compute is not None:
        by_tile, launch = superstep.compute.by_tile, superstep.compute.launch
        slowest, active, balance = _spread(by_tile, superstep.num_tiles)
        yield Part(
            "compute",
            compute=slowest,
            sync=launch,
            num_vertices=superstep.num_vertices,
            active_tiles=active,
            balance=balance,
            meets=superstep.meets,
            work=by_tile,
        )
    if superstep.scatter is not None:
        yield _copy(superstep.scatter, "arrange outputs" if superstep.kind == "execute" else "on-tile copy")
    if superstep.after is not None:
        yield _exchange(superstep.after, "send outputs", superstep.sync_cycles)


def _exchange(phase: Exchanged, name: str, sync: int | None) -> Part:
    return Part(
        "exchange",
        name,
        exchange=phase.cycles,
        sync=phase.sync_cycles if sync is None else sync,
        bytes=phase.bytes,
        max_receive_bytes=phase.max_receive_bytes,
        meets=(phase.groups,),
        sent=phase.sent_bytes,
        received=phase.received_bytes,
    )


def _copy(copied: Copied, name: str) -> Part:
    slowest, active, balance = _spread(copied.by_tile, copied.num_tiles)
    return Part(
        "copy",
        name,
        compute=slowest,
        bytes=copied.bytes,
        active_tiles=active,
        balance=balance,
        meets=(copied.groups,),
        work=copied.by_tile,
    )


def _spread(by_tile: TileVector, num_tiles: int) -> tuple[int, int, float]:
    """Slowest tile, tiles at work, and the mean of ``num_tiles`` tiles over the slowest."""
    slowest = by_tile.max()
    return slowest, by_tile.count_nonzero(), float(by_tile.sum()) / num_tiles / slowest if slowest else 0.0
