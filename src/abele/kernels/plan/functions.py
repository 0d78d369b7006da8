"""Programs as native functions: calls of each leaf, from loop nests to addresses of code."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from abele.kernels.nest.loop_nest import LoopNest
from abele.kernels.products.schedule import Epilogue, ProductSchedule
from abele.kernels.schedule.pack_panels import Panel
from abele.kernels.schedule.schedule import NestSchedule
from abele.kernels.target import HostTarget
from abele.kernels.tasks.leaves import BlockLoop, OuterLoop
from abele.kernels.tasks.program import Ref, Space, Task

POINTS_PER_ELEMENT = 8
"""Points of a product that a core works through while it moves an element of four bytes from or to memory. At
115 GFLOP/s and 31 GB/s, as ``host_facts.machine_rates`` measured on a Zen 4, it is 7.4."""


@dataclass(frozen=True)
class TaskFunction:
    """One task as a native function over units.

    Attributes:
        task: Task that it carries out.
        nest: Its loops over flat memory; the arrays are ``spaces``, then the panel if there is one.
        spaces: Its pointer arguments.
        is_start: In a loop over blocks: true if it runs once per chunk, not for every block.
        starts: Bytes of every space before the place where its argument points; empty where all are 0.
        moves: Bytes by which every argument moves on with a point of the rows' dim, and of the keys' dim, where the
            leaf runs block after block of rows; empty elsewhere.
        schedule: Loops over register tiles, or a matrix product; None before it is chosen.
        panel: The operand that it packs into scratch memory; its last pointer then points there.
        integers: Integer arguments, after its pointers.
        integer_moves: Amounts by which the first of these grow per point of the rows' dim, and of the keys' dim.
        epilogues: Of a product: operations on the sums of its shares.
        address: Address of the code; 0 before there is some.
        callees: Of a product: addresses of the functions that it calls, its last arguments.
    """

    task: Task
    nest: LoopNest
    spaces: tuple[int, ...]
    is_start: bool = False
    starts: tuple[int, ...] = ()
    moves: tuple[tuple[int, ...], ...] = ()
    schedule: NestSchedule | ProductSchedule | None = None
    panel: Panel | None = None
    epilogues: tuple[tuple[Epilogue, NestSchedule], ...] = ()
    address: int = 0
    integers: tuple[int, ...] = ()
    integer_moves: tuple[tuple[int, ...], ...] = ()
    callees: tuple[int, ...] = ()

    @property
    def units(self) -> int:
        """Number of parallel units."""
        assert self.schedule is not None
        return self.schedule.num_units(self.nest.extents)

    @property
    def cost(self) -> int:
        """Cost by which threads are shared out: points, and elements that it moves once per result."""
        task = self.task
        outside = {e for v in (*task.locals, *(p.value for p in task.puts)) for e in v.walk() if isinstance(e, Ref)}
        results = math.prod(n for _, n in task.parallel)
        moved = results * (len(outside) + len(task.puts)) if task.reduced else 0
        return max(1, task.points + POINTS_PER_ELEMENT * moved)

    @property
    def scratch_bytes(self) -> int:
        """Scratch memory that its panel, or its product, takes; 0 where it has none."""
        if isinstance(self.schedule, ProductSchedule):
            return self.schedule.scratch_bytes
        return self.panel.bytes if self.panel is not None else 0


@dataclass(frozen=True)
class LeafFunctions:
    """The functions of a leaf: in order under ``loop``, or side by side.

    Attributes:
        functions: The functions.
        loop: Loop around them; None where they are side by side.
        in_order: Without a loop: true if they run one after the other, each as a whole, on one thread.
    """

    functions: tuple[TaskFunction, ...]
    loop: BlockLoop | OuterLoop | None = None
    in_order: bool = False

    @property
    def spaces(self) -> tuple[int, ...]:
        """Every space that functions, or the loop, point to, as often as they do."""
        seen = self.loop.seen if isinstance(self.loop, OuterLoop) else None
        return (*(s for f in self.functions for s in f.spaces), *(seen.table if seen is not None else ()))


@dataclass(frozen=True)
class FunctionProgram:
    """Spaces, and the leaves of functions over them in order.

    Attributes:
        spaces: By number.
        leaves: In order, with a barrier after each.
        sizes: Bytes of every space.
        per_thread: Spaces that live in scratch memory of a thread.
        target: The CPU that will run it.
        keep: Owner of the functions' code.
    """

    spaces: tuple[Space, ...]
    leaves: tuple[LeafFunctions, ...]
    sizes: tuple[int, ...]
    per_thread: frozenset[int]
    target: HostTarget
    keep: tuple[object, ...] = field(default=(), repr=False, compare=False)
