"""Native execution: runs of library calls planned as host kernels over the engine's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from abele.codelet.rounding import NEAREST, Rounding
from abele.graph import Program, Variable
from abele.graph.interval_set import IntervalSet
from abele.kernels import LeafArgument as KernelArgument
from abele.kernels import NativePlan, StoreRounding, plan_native
from abele.kernels import PlanLeaf as KernelLeaf
from abele.runtime.control.leaf import Argument, Leaf, Scratch, Stepped, StreamUse, Workspace
from abele.runtime.control.virtual_machine import WorkingMemory
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.effects import EffectsOf
from abele.runtime.memory.host_memory import address_of, aligned_block
from abele.runtime.native.fused_run import NO_STRIDES, FusedRun, RunKernels
from abele.runtime.native.fusion import Run, Storage, split_runs
from abele.runtime.native.kernel_calls import Binder, SeedWord
from abele.runtime.supersteps.seeds import run_offset


class _RunPlace(NamedTuple):
    """Replica and loop in which a run is executed: elements by which the loop moves variables on, and the seed's
    address.
    """

    replica: int
    strides: Mapping[Variable, int]
    seed: int = 0


class HostKernels:
    """Gives the host kernels for runs of steps; each run is planned once.

    Args:
        arena: Memory of the stored variables.
        effects: Elements that steps touch.
        storage: Variables that are stored.
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
                    self._fused[part] = self._fuse(part, strides)
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

    def _fuse(self, run: Run, strides: Mapping[Variable, int]) -> FusedRun:
        # Runs are numbered in program order, so that what one draws is the same in every process.
        number = len(self._fused)
        return FusedRun(run, lambda rounding: self._plan(number, run, strides, rounding))

    def _plan(self, number: int, run: Run, strides: Mapping[Variable, int], rounding: Rounding) -> RunKernels:
        binder = Binder(self._storage, run)
        calls = [call for n, step in enumerate(run) for call in binder.calls(n, step)]
        seed = binder.seed() if rounding.is_random else None
        plan = plan_native(
            binder.buffers, calls, None if rounding == NEAREST else StoreRounding(seed, rounding.saturates)
        )
        self._memory.cover(plan.arena_bytes, plan.scratch_bytes)
        replicas = range(self._arena.replicas)
        words = [aligned_block(8) for _ in replicas if rounding.is_random]
        seeds = tuple(map(address_of, words))
        places = [_RunPlace(replica, strides, seeds[replica] if seeds else 0) for replica in replicas]
        phases = tuple(
            tuple((self._leaf(n, plan, run, binder, place).keeping(words),) for n in range(len(plan.leaves)))
            for place in places
        )
        return RunKernels(tuple(binder.uses), phases, plan, seeds, run_offset(number))

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
                if isinstance(owner, SeedWord):
                    return place.seed
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
