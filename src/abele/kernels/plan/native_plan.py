"""Native plans, which a planner returns: native functions in order, and the memory they work in."""

from __future__ import annotations

from dataclasses import dataclass, field

from abele.kernels.code.build import build_driver
from abele.kernels.code.drivers import Driver
from abele.kernels.plan.functions import FunctionProgram
from abele.kernels.plan.leaf_work import LeafPart, LeafWork, leaf_parts, leaf_work
from abele.kernels.plan.text import functions_text


@dataclass(frozen=True)
class LeafArgument:
    """One of a leaf's ``args``: a pointer, or an integer in place of one.

    Attributes:
        kind: ``buffer``: storage of the caller's buffer ``value``. ``arena``: byte ``value`` of the plan's arena.
            ``scratch``: the running thread's own scratch memory. ``address``: ``value`` itself.
        value: As ``kind`` says; 0 for scratch.
    """

    kind: str
    value: int = 0


@dataclass(frozen=True)
class PlanLeaf:
    """A native function ``void leaf(i64 begin, i64 end, void** args)`` over parallel units.

    Any split of [0, units) over threads gives the same bits; all threads must be done before the next leaf starts.

    Attributes:
        address: Address of the function.
        units: Number of parallel units.
        args: Its pointer arguments.
        calls: Names of the calls that it carries out, for listings and profiles.
        origins: The caller's numbers of the calls that it carries out, wholly or in part; none where it only moves
            the plan's own values.
        driver: Its driver, where the leaf is more than one function.
    """

    address: int
    units: int
    args: tuple[LeafArgument, ...]
    calls: tuple[str, ...] = ()
    origins: frozenset[int] = frozenset()
    driver: Driver | None = None


@dataclass(frozen=True)
class NativePlan:
    """Leaves to run in order, with a barrier after each.

    Attributes:
        leaves: The leaves.
        arena_bytes: Memory shared by all threads, 64-byte aligned, that the leaves pass values through; its contents
            need not survive between runs of the plan.
        scratch_bytes: Private memory of each thread, 64-byte aligned; contents undefined at the start of a leaf.
        program: The functions that the leaves call, and why they are as they are.
        keep: Objects that must stay alive for the addresses to stay valid.
    """

    leaves: tuple[PlanLeaf, ...]
    arena_bytes: int
    scratch_bytes: int
    program: FunctionProgram | None = field(default=None, repr=False, compare=False)
    keep: object = field(default=None, repr=False, compare=False)

    @property
    def listing(self) -> str:
        """The plan as text: every leaf with its tasks, and how each of them runs."""
        return "" if self.program is None else functions_text(self.program)

    def timed_leaf(self, number: int) -> tuple[object, int]:
        """Second copy of a leaf's function that notes the times of its calls, and its owner.

        Raises:
            ValueError: The leaf is one function.
        """
        driver = self.leaves[number].driver
        if driver is None:
            raise ValueError(f"leaf {number} is one function")
        return build_driver(driver, timed=True)

    def parts(self, number: int) -> tuple[LeafPart, ...]:
        """The functions of a leaf in the order of its driver's steps."""
        return () if self.program is None else leaf_parts(self.program, number)

    def work(self, number: int) -> LeafWork:
        """Arithmetic and memory traffic of one execution of a leaf."""
        return LeafWork() if self.program is None else leaf_work(self.program, number)

    def __str__(self) -> str:
        lines = [f"arena {self.arena_bytes:,} B, scratch per thread {self.scratch_bytes:,} B"]
        for number, leaf in enumerate(self.leaves):
            places = ", ".join(f"{a.kind} {a.value}" if a.kind in ("buffer", "arena") else a.kind for a in leaf.args)
            lines.append(f"leaf {number}: {leaf.units} units over ({places}): {', '.join(leaf.calls)}")
        return "\n".join(lines)
