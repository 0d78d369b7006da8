"""Leaves: the native functions that a control program calls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from abele.arrays import Int64
from abele.graph import Program, Stream
from abele.graph.interval_set import EMPTY, IntervalSet
from abele.kernels import NativePlan
from abele.kernels.plan.native_plan import MEETING_CYCLES

MEETING_BYTES = 4096
"""Bytes that copies touch in about the same time."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Stands for the running thread's own scratch memory among a leaf's arguments."""


@dataclass(frozen=True, eq=False, slots=True)
class StreamUse:
    """Stands for where a stream's elements lie at one copy of the program.

    Attributes:
        stream: The stream.
    """

    stream: Stream


@dataclass(frozen=True, slots=True)
class Workspace:
    """Placeholder of an address in the memory that fused kernels pass values through.

    Attributes:
        offset: Bytes from its start.
    """

    offset: int


@dataclass(frozen=True, slots=True)
class Stepped:
    """A pointer that moves on with every trip of the loop around a leaf.

    Attributes:
        address: In the first trip.
        stride: Bytes that it moves by.
    """

    address: int
    stride: int


@dataclass(frozen=True, slots=True)
class StashRow:
    """Row of a stash that an index names when the run around a leaf begins.

    Attributes:
        address: Of the first row.
        stride: Bytes from row to row.
        index: Address of the index, u32.
    """

    address: int
    stride: int
    index: int


Fixed = int | Scratch | Workspace
"""A pointer that stays the same while programs run: an address, or memory that comes with the threads."""

Argument = Fixed | StreamUse | Stepped | StashRow
"""One pointer that a leaf is given."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """A native function ``void leaf(i64 begin, i64 end, void** args)`` over units that run in parallel.

    Attributes:
        name: Name in listings.
        address: Address of the function.
        units: Number of parallel units; any split over threads gives the same bits.
        args: Its pointers.
        work_bytes: Bytes that it touches, roughly; None when not known. Little work is not worth a split.
        writes: Elements of variables that it writes.
        counter: Address of int64[units] to which a counting codelet adds its issue slots; 0 for the rest.
        seed: Address of a word that is given to a leaf which rounds at random; 0 for the rest.
        keep: Objects that must stay alive for the pointers to stay valid.
        vertices: Number of vertices that it runs; 0 for other leaves.
        kernel: The plan and the number of the leaf in it, of a leaf that host kernels are.
        steps: The steps that such a leaf carries out, wholly or in part, by the numbers that the plan has for them.
        cycles: Instructions on vectors that such a leaf takes, roughly.
        cuts: Units at which threads' shares begin and end, int64[threads + 1]; None for equal numbers of units.
    """

    name: str
    address: int
    units: int
    args: tuple[Argument, ...]
    work_bytes: int | None = None
    writes: IntervalSet = EMPTY
    counter: int = 0
    seed: int = 0
    keep: object = field(default=None, repr=False)
    cuts: Int64 | None = field(default=None, repr=False)
    vertices: int = 0
    kernel: tuple[NativePlan, int] | None = field(default=None, repr=False)
    steps: Mapping[int, Program] = field(default_factory=dict, repr=False)
    cycles: float = math.inf

    def keeping(self, item: object) -> Leaf:
        """Same leaf, which keeps one more object alive."""
        return replace(self, keep=(self.keep, item))

    @property
    def is_short(self) -> bool:
        """True if the leaf of host kernels is not worth a split."""
        return self.cycles <= MEETING_CYCLES

    @property
    def effort(self) -> float:
        """Instructions on vectors, or as many as take the leaf's time; infinite if not known.

        What vertices do with the bytes that they touch is theirs alone.
        """
        if self.work_bytes is None or self.vertices:
            return self.cycles
        return self.work_bytes * MEETING_CYCLES / MEETING_BYTES


Phase = tuple[Leaf, ...]
"""Leaves that do not depend on each other: no barrier between them, one after all."""
