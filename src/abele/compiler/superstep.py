"""Superstep: the analysis of one compute set, copy, stream or decision, as the timeline and the report need it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.compiler.access import Access
from abele.compiler.cycles import ComputeCycles
from abele.compiler.durations import copy_cycles_by_tile, exchange_cycles
from abele.compiler.exchange import ExchangePlan
from abele.compiler.moves import Moves
from abele.compiler.sync_groups import Link, Meets, SyncGroups
from abele.compiler.tile_vector import TileVector, added
from abele.compiler.traffic import ExchangePhase, LinkBytes
from abele.graph.program import Program
from abele.machine import System

if TYPE_CHECKING:
    from abele.codelet import CodeletDef
    from abele.compiler.lower import Step


# Read-only records: parts of an executable cannot be written, not even into their arrays.


def make_read_only(record: Any) -> None:
    """Make the arrays of a record, and of records in its fields, read-only.

    Args:
        record: A dataclass or a named tuple.
    """
    for value in _values(record):
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
        else:
            make_read_only(value)


def _values(record: Any) -> Iterator[Any]:
    """Values of a record's fields; none of other objects."""
    if isinstance(record, tuple) and hasattr(record, "_fields"):
        yield from record
    elif is_dataclass(record) and not isinstance(record, type):
        yield from (getattr(record, each.name) for each in fields(record))


@dataclass(frozen=True, eq=False, slots=True)
class Exchanged:
    """One exchange phase, summed up.

    Attributes:
        cycles: From the end of its sync to the last word received.
        bytes: Received by all tiles.
        max_receive_bytes: Received by the tile that receives most.
        received_bytes: Received by each tile.
        sent_bytes: Sent by each tile.
        fragments: Pieces that arrive, over all tiles.
        groups: Sync groups at its barrier.
        sync_cycles: Their barriers before it.
        leaves: True if data goes to other IPUs.
        link_bytes: Bytes between IPUs, of the whole machine where they go between replicas.
    """

    cycles: int
    bytes: int
    max_receive_bytes: int
    received_bytes: TileVector
    sent_bytes: TileVector
    fragments: int
    groups: tuple[int, ...]
    sync_cycles: int
    leaves: bool = False
    link_bytes: LinkBytes = field(default_factory=LinkBytes.none)

    def __post_init__(self) -> None:
        make_read_only(self.link_bytes)

    @staticmethod
    def of(phase: ExchangePhase | None, system: System, groups: SyncGroups) -> Exchanged | None:
        """The summary of a phase, if there is one."""
        if phase is None or phase.total_bytes == 0:
            return None
        received = phase.received_bytes
        # Both who receives and who sends has to be at the barrier.
        meeting = groups.touched(TileVector(received.tile_set, received.values + phase.sent_bytes.values))
        leaves = len(phase.link_bytes.source) > 0
        if leaves:
            meeting = groups.between_ipus(meeting)
        within = system.ipu.sync.on_chip_cycles * (phase.num_phases - 1)
        return Exchanged(
            cycles=exchange_cycles(phase, system),
            bytes=phase.total_bytes,
            max_receive_bytes=received.max(),
            received_bytes=received.packed(),
            sent_bytes=phase.sent_bytes.packed(),
            fragments=phase.received_fragments.sum(),
            groups=meeting,
            sync_cycles=groups.sync_cycles(meeting) + within,
            leaves=leaves,
            link_bytes=phase.link_bytes,
        )


@dataclass(frozen=True, eq=False, slots=True)
class Copied:
    """Copies within tiles, summed up.

    Attributes:
        by_tile: Cycles on each tile.
        bytes: Bytes copied on all tiles.
        pieces: Contiguous pieces copied on all tiles.
        groups: Sync groups of the tiles.
        num_tiles: Tiles of these groups.
    """

    by_tile: TileVector
    bytes: int
    pieces: int
    groups: tuple[int, ...]
    num_tiles: int

    @staticmethod
    def of(moves: Moves, system: System, groups: SyncGroups) -> Copied | None:
        """The summary of copies, if there are any."""
        if len(moves.tile) == 0:
            return None
        by_tile = copy_cycles_by_tile(moves, system.ipu, system.num_tiles).packed()
        meeting = groups.touched(by_tile)
        return Copied(by_tile, int(moves.bytes.sum()), int(moves.pieces.sum()), meeting, groups.num_tiles(meeting))


@dataclass(frozen=True, eq=False, slots=True)
class Superstep:
    """A compute set, copy, stream or decision on the machine, analysed once however often it runs.

    Attributes:
        index: Number in the executable.
        kind: Kind of the steps that run it.
        node: Program node that it was found in first.
        access: Variables that it touches.
        before: Exchange that brings its inputs.
        gather: Copies that arrange inputs.
        compute: Its vertices.
        scatter: Copies that put outputs in place.
        after: Exchange that sends outputs home.
        joins_previous: True if it is a stream copy that shares the host rendezvous of the one before it.
        host_cycles: Transfer from or to the host, its own rendezvous included.
        host_bytes: Bytes of that transfer.
        sync_cycles: Its barriers, where they are not one sync of the groups that meet.
        meets: Sync groups that meet at its vertices, in a host transfer or in a step of control.
        num_tiles: Tiles of the groups that meet at its vertices.
        links: Ways out of the chip that a transfer shares with other groups.
        link_cycles: Cycles that it keeps them busy; those before are latency.
        work_cycles: Cycles of work on every tile besides, in a step of control.
        num_vertices: Vertices that it runs.
        num_edges: Field rows that they are wired by.
        codelets: Their codelets.
        data_dependent: Names of those whose cost depends on data; a run can count it.
        buffer_bytes: Memory for data in motion on each tile, or None when it needs none.
        vertex_state: Bytes of its vertices' records on each tile, or None when it has none.
        vertex_code: Bytes of codelets on each tile that no superstep before it needs there, or None.
        exchange_code: Bytes of its exchange instructions on each tile, or None. A program that equal supersteps share
            is counted at the first of them, and at each what readies the program for its variables.
        exchange_code_users: Supersteps on the same tiles that have this exchange program in common, itself included.
    """

    index: int
    kind: str
    node: Program
    joins_previous: bool = False
    access: Access = field(default_factory=Access)
    before: Exchanged | None = None
    gather: Copied | None = None
    compute: ComputeCycles | None = None
    scatter: Copied | None = None
    after: Exchanged | None = None
    host_cycles: int = 0
    host_bytes: int = 0
    sync_cycles: int | None = None
    meets: Meets = ((0,),)
    num_tiles: int = 0
    links: tuple[Link, ...] = ()
    link_cycles: int = 0
    work_cycles: int = 0
    num_vertices: int = 0
    num_edges: int = 0
    codelets: tuple[CodeletDef, ...] = ()
    data_dependent: tuple[str, ...] = ()
    buffer_bytes: TileVector | None = None
    vertex_state: TileVector | None = None
    vertex_code: TileVector | None = None
    exchange_code: TileVector | None = None
    exchange_code_users: int = 1

    @staticmethod
    def of(step: Step, access: Access) -> Superstep:
        """Superstep of a step that touches variables and costs nothing."""
        return Superstep(step.superstep, step.kind, step.node, step.joins_previous, access)

    def moving(self, plan: ExchangePlan, groups: SyncGroups, linked: System | None = None) -> Superstep:
        """The same with an exchange plan between sync groups; bytes between IPUs cross the links of ``linked``."""
        system = groups.system
        return replace(
            self,
            before=Exchanged.of(plan.before, linked or system, groups),
            after=Exchanged.of(plan.after, linked or system, groups),
            gather=Copied.of(plan.gather, system, groups),
            scatter=Copied.of(plan.scatter, system, groups),
            buffer_bytes=plan.buffer_bytes.packed() if plan.buffer_bytes.any() else None,
        )

    def with_exchange_code(self, code: TileVector) -> Superstep:
        """The same with exchange instructions, in bytes on each tile."""
        return replace(self, exchange_code=code if code.any() else None)

    @property
    def exchange_code_bytes(self) -> int:
        """Exchange instructions over all tiles."""
        return 0 if self.exchange_code is None else self.exchange_code.sum()

    @property
    def estimated(self) -> tuple[str, ...]:
        """Those of ``data_dependent`` whose cost no run has counted yet."""
        return self.compute.estimated if self.compute is not None else ()

    def compute_by_tile(self, num_tiles: int) -> TileVector:
        """Cycles that each tile spends on vertices and copies."""
        parts = (self.gather, self.compute, self.scatter)
        return added((part.by_tile for part in parts if part is not None), num_tiles)

    @property
    def rows_before_vertices(self) -> int:
        """Phases in which inputs are brought and arranged, 0 to 2."""
        return (self.before is not None) + (self.gather is not None)

    @property
    def everywhere(self) -> bool:
        """True for a step of control and a host transfer, in which every tile has a part."""
        return self.work_cycles > 0 or self.sync_cycles is not None

    @property
    def is_between_replicas(self) -> bool:
        """True for a copy between replicas: an exchange, of which tiles without a part have the sync alone."""
        return self.kind == "cross_replica"

    def control_by_tile(self, num_tiles: int) -> tuple[TileVector, list[TileVector]]:
        """More than zero on tiles that work; and for each exchange phase on those that send or receive."""
        if self.is_between_replicas:
            # No vertex runs, and nothing is decided. IPUs that meet have all of their tiles at the sync.
            return self.compute_by_tile(num_tiles), [TileVector.one(num_tiles)]
        working = TileVector.one(num_tiles) if self.everywhere else self.compute_by_tile(num_tiles)
        phases = [p for p in (self.before, self.after) if p is not None]
        return working, [added((p.received_bytes, p.sent_bytes), num_tiles) for p in phases]

    def received_by_tile(self, num_tiles: int) -> TileVector:
        """Bytes that each tile receives from others."""
        return added((p.received_bytes for p in (self.before, self.after) if p is not None), num_tiles)
