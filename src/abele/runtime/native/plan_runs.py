"""Native execution: runs of library calls planned as host kernels over the engine's memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from abele.graph import Program
from abele.graph.interval_set import IntervalSet
from abele.kernels import LeafArgument as KernelArgument
from abele.kernels import NativePlan, plan_native
from abele.kernels import PlanLeaf as KernelLeaf
from abele.runtime.control.leaf import Argument, Leaf, Scratch, StreamUse, Workspace
from abele.runtime.control.virtual_machine import WorkingMemory
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.effects import EffectsOf
from abele.runtime.native.fused_run import FusedRun
from abele.runtime.native.fusion import Run, Storage, split_runs
from abele.runtime.native.kernel_calls import Binder


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

    def parts(self, steps: Sequence[Program]) -> Iterator[Program | FusedRun]:
        """The steps in order, runs replaced by host kernels."""
        for part in split_runs(steps):
            if isinstance(part, tuple):
                if part not in self._fused:
                    self._fused[part] = self._plan(part)
                yield self._fused[part]
            else:
                yield part

    @property
    def listing(self) -> str:
        """All plans as text."""
        return "\n\n".join(fused.listing for fused in self._fused.values())

    def _plan(self, run: Run) -> FusedRun:
        binder = Binder(self._storage)
        calls = [call for number, step in enumerate(run) for call in binder.calls(number, step)]
        plan = plan_native(binder.buffers, calls)
        self._memory.cover(plan.arena_bytes, plan.scratch_bytes)
        phases = tuple(
            tuple((self._leaf(n, plan, run, binder, replica),) for n in range(len(plan.leaves)))
            for replica in range(self._arena.replicas)
        )
        return FusedRun(run, tuple(binder.uses), phases, plan)

    def _leaf(self, number: int, plan: NativePlan, run: Run, binder: Binder, replica: int) -> Leaf:
        leaf = plan.leaves[number]
        return Leaf(
            name=", ".join(leaf.calls),
            address=leaf.address,
            units=leaf.units,
            args=tuple(self._argument(argument, binder, replica) for argument in leaf.args),
            writes=self._written(leaf, run),
            keep=plan,
            kernel=(plan, number),
            steps={n: run[n] for n in sorted(leaf.origins)},
        )

    def _written(self, leaf: KernelLeaf, run: Run) -> IntervalSet:
        """Elements that a leaf may write: the outputs of the calls that it carries out, in whole or in part."""
        return IntervalSet.union(self._effects(run[n]).written for n in sorted(leaf.origins))

    def _argument(self, argument: KernelArgument, binder: Binder, replica: int) -> Argument:
        match argument.kind:
            case "buffer":
                owner = binder.owners[argument.value]
                assert owner is not None
                return owner if isinstance(owner, StreamUse) else self._arena.address(owner, replica)
            case "arena":
                return Workspace(argument.value)
            case "scratch":
                return Scratch()
            case _:
                return argument.value
