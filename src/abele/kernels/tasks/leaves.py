"""Programs divided into leaves: the work between two barriers of all threads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from abele.arrays import Array
from abele.kernels.target import HostTarget
from abele.kernels.tasks.layout import SpaceLayout
from abele.kernels.tasks.program import SampleDim, Space, Task


@dataclass(frozen=True)
class BlockLoop:
    """Loop that runs the tasks of a leaf block after block of samples.

    Attributes:
        samples: Number of samples.
        block: Samples in a block.
        chunks: Runs of consecutive blocks; the leaf's parallel units.
        dims: The sample dim's name in every task of the leaf.
        starts: Tasks that run once at the start of every chunk, before its blocks.
        partials: Spaces whose first dim is the chunk; inside the loop, its index counts from the chunk at hand.
        outer: Extents of the dims outside the last, for samples that are rows of several dims; these are part of every
            block's place.
        outer_dims: The names of these dims in every task.
        places: Place of the last dim in the spaces that exist for one block at a time, for samples that are rows.
    """

    samples: int
    block: int
    chunks: int
    dims: tuple[str, ...]
    starts: tuple[Task, ...] = ()
    partials: frozenset[int] = frozenset()
    outer: tuple[int, ...] = ()
    outer_dims: tuple[tuple[str, ...], ...] = ()
    places: Mapping[int, int] | None = None

    @property
    def blocks(self) -> int:
        """Number of blocks, the last maybe not full."""
        return math.prod(self.outer) * -(-self.samples // self.block)

    def names_outside(self, number: int) -> tuple[str, ...]:
        """The names of the outer dims in task ``number`` of the leaf."""
        return self.outer_dims[number] if self.outer_dims else ()

    def place_of(self, block: int) -> tuple[tuple[int, ...], int]:
        """Point of the outer dims at which ``block`` is, and its number among the blocks there."""
        inside = -(-self.samples // self.block)
        point, rest = [], block // inside
        for extent in reversed(self.outer):
            rest, at = divmod(rest, extent)
            point.append(at)
        return tuple(reversed(point)), block % inside


@dataclass(frozen=True)
class SeenKeys:
    """Loop that runs tasks block after block of rows, each with the keys in a table made at run time.

    The table has for every block of rows the first key that one of its rows sees, and the one after the last. Tasks are
    made once for each of a few numbers of keys, and the smallest number that covers the range is called: as if rows and
    keys began at the block's first row and the range's first key. Only spaces that exist for one block at a time do not
    move along. Tasks of no number of keys run once for a point, before its first block or after its last.

    Attributes:
        rows: Points of the rows' dim in a block.
        blocks: Blocks of rows.
        keys: Points of the keys' dim.
        step: Factor that numbers of keys are multiples of, but for the last, which is all.
        grain: A range starts at a multiple of it, unless it ends at the last key.
        table: The spaces of the first keys and of those after the last, in f32: outer dims, then blocks.
        outer: Numbers of the outer dims that the table has, in its order.
        row_dims: The name of the rows' dim in every task.
        key_dims: The name of the keys' dim in every task; empty where it has none.
        kinds: Of every task the place of its number of keys among :attr:`counts`; -1 before the blocks, the number of
            :attr:`counts` after them.
        local: Spaces that exist for one block at a time.
    """

    rows: int
    blocks: int
    keys: int
    step: int
    grain: int
    table: tuple[int, int]
    outer: tuple[int, ...]
    row_dims: tuple[str, ...]
    key_dims: tuple[str, ...]
    kinds: tuple[int, ...]
    local: frozenset[int]

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of keys that tasks are made for."""
        return (*range(self.step, self.keys, self.step), self.keys)

    def range_of(self, first: float, last: float) -> tuple[int, int]:
        """The place among :attr:`counts`, and the first key, of the range for ``first`` to before ``last``."""
        start = int(first) // self.grain * self.grain
        kind = -(-max(int(last) - start, 1) // self.step) - 1
        return kind, min(start, self.keys - self.counts[kind])


@dataclass(frozen=True)
class OuterLoop:
    """Loop that runs the tasks of a leaf point after point of shared outer dims; points are the leaf's units.

    Attributes:
        extents: Extents of the dims, slowest first.
        dims: The names of the dims in every task of the leaf.
        seen: Loop over blocks of rows at each point; None: each task runs once.
    """

    extents: tuple[int, ...]
    dims: tuple[tuple[str, ...], ...]
    seen: SeenKeys | None = None

    @property
    def points(self) -> int:
        """Number of points."""
        return math.prod(self.extents)

    def __str__(self) -> str:
        return " × ".join(map(str, self.extents))


@dataclass(frozen=True)
class LeafTasks:
    """The tasks of a leaf.

    Attributes:
        tasks: In order; without a loop, in any order once :func:`abele.kernels.tasks.group_leaves` has run.
        loop: Loop over blocks of samples, or over points of outer dims; None: each task runs whole.
    """

    tasks: tuple[Task, ...]
    loop: BlockLoop | OuterLoop | None = None


@dataclass(frozen=True)
class LeafProgram:
    """Spaces, and the leaves over them in order.

    Attributes:
        spaces: By number.
        leaves: In order, with a barrier after each.
        target: The CPU that will run it.
        samples: The dim along which leaves run block by block; None where none does.
        block: Samples in a block.
        layouts: Layouts of the spaces that are not row-major.
        constants: The elements of pinned buffers that never change, by id.
    """

    spaces: tuple[Space, ...]
    leaves: tuple[LeafTasks, ...]
    target: HostTarget
    samples: SampleDim | None = None
    block: int = 1
    layouts: Mapping[int, SpaceLayout] = field(default_factory=dict)
    constants: Mapping[int, Array] = field(default_factory=dict, repr=False, compare=False)

    def bytes_of(self, space: Space) -> int:
        """Bytes of ``space`` in its layout, a last block of fewer samples included."""
        layout = self.layouts.get(space.number)
        if layout is None:
            return space.bytes
        if layout.elements is not None:
            return space.type.bytes * layout.elements
        if layout.is_one_point:
            return space.type.bytes * max(1, *(n * step for n, step in zip(space.shape, layout.strides, strict=True)))
        if self.samples is None:
            return space.bytes
        blocks = 1 if layout.is_per_thread else -(-self.samples.extent // self.block)
        return space.bytes // self.samples.extent * self.block * blocks
