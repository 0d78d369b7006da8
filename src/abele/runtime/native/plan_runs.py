"""Native execution: runs of library calls planned as host kernels over the engine's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from abele.graph import Program, Variable
from abele.graph.interval_set import IntervalSet
from abele.kernels import LeafArgument as KernelArgument
from abele.kernels import NativePlan, plan_native
from abele.kernels import PlanLeaf as KernelLeaf
from abele.runtime.control.leaf import Argument, Leaf, Scratch, Stepped, StreamUse, Workspace
from abele.runtime.control.virtual_machine import WorkingMemory
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.effects import EffectsOf
from abele.runtime.native.fused_run import NO_STRIDES, FusedRun
from abele.runtime.native.fusion import Run, Storage, split_runs
from abele.runtime.native.kernel_calls import Binder


class _RunPlace(NamedTuple):
    """Where a run is executed: in which replica, and in a loop that moves some variables on by so many elements."""

    replica: int
    strides: Mapping[Variable, int]


class HostKernels:
    """Gives the host kernels for runs of steps; each run is planned once.

    Args:
        arena: Where stored variables are.
        effects: What steps touch.
        storage: Which variables are stored.
        memory: Working memory, which grows to what the plans need.
    """

    def __init__(self, arena: Arena, effects: EffectsOf, storage: Storage, memory: WorkingMemory) -> None:
        self._arena = arena
        self._effects = effects
        self._storage = storage
        self._memory = memory
        self._fused: dict[Run, FusedRun] = {}

    def parts(
        self, steps: Sequence[Program], strides: Mapping[Variable, int] = NO_STRIDES
    ) -> Iterator[Program | FusedRun]:
        """The steps in order, runs replaced by host kernels.

        Args:
            steps: The steps.
            strides: Elements by which variables move on with every trip of the loop around the steps.
        """
        for part in split_runs(steps):
            if isinstance(part, tuple):
                if part not in self._fused:
                    self._fused[part] = self._plan(part, strides)
                yield self._fused[part]
            else:
                yield part

    def keeps_host_order(self, variable: Variable) -> bool:
        """True if a variable always has the order that host bodies give it."""
        return self._storage.keeps_host_order(variable)

    @property
    def listing(self) -> str:
        """All plans as text."""
        return "\n\n".join(fused.listing for fused in self._fused.values())

    def _plan(self, run: Run, strides: Mapping[Variable, int]) -> FusedRun:
        binder = Binder(self._storage, run)
        calls = [call for number, step in enumerate(run) for call in binder.calls(number, step)]
        plan = plan_native(binder.buffers, calls)
        self._memory.cover(plan.arena_bytes, plan.scratch_bytes)
        phases = tuple(
            tuple((self._leaf(n, plan, run, binder, _RunPlace(replica, strides)),) for n in range(len(plan.leaves)))
            for replica in range(self._arena.replicas)
        )
        return FusedRun(run, tuple(binder.uses), phases, plan)

    def _leaf(self, number: int, plan: NativePlan, run: Run, binder: Binder, place: _RunPlace) -> Leaf:
        leaf = plan.leaves[number]
        return Leaf(
            name=", ".join(leaf.calls),
            address=leaf.address,
            units=leaf.units,
            args=tuple(self._argument(argument, binder, place) for argument in leaf.args),
            writes=self._written(leaf, run),
            keep=plan,
            kernel=(plan, number),
            steps={n: run[n] for n in sorted(leaf.origins)},
        )

    def _written(self, leaf: KernelLeaf, run: Run) -> IntervalSet:
        """Elements that a leaf may write: the outputs of the calls that it carries out, in whole or in part."""
        return IntervalSet.union(self._effects(run[n]).written for n in sorted(leaf.origins))

    def _argument(self, argument: KernelArgument, binder: Binder, place: _RunPlace) -> Argument:
        match argument.kind:
            case "buffer":
                owner = binder.owners[argument.value]
                assert owner is not None
                if isinstance(owner, StreamUse):
                    return owner
                address, stride = self._arena.address(owner, place.replica), place.strides.get(owner, 0)
                return Stepped(address, stride * owner.dtype.bytes) if stride else address
            case "arena":
                return Workspace(argument.value)
            case "scratch":
                return Scratch()
            case _:
                return argument.value
