"""Native execution: runs of library calls planned as host kernels over the engine's memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from abele.graph import Copy, LibraryCall, Program, Stream, Tensor, Variable
from abele.kernels import Argument as KernelArgument
from abele.kernels import Binding, Buffer, NativePlan, bind, copy_kernel, plan_native
from abele.kernels import Call as KernelCall
from abele.kernels import Leaf as KernelLeaf
from abele.kernels.ir import HostKernel
from abele.runtime.arena import Arena
from abele.runtime.effects import EffectsOf
from abele.runtime.fusion import Run, Storage, operands, split_runs
from abele.runtime.interval_set import IntervalSet
from abele.runtime.leaf import Argument, Leaf, Scratch, StreamUse, Workspace
from abele.runtime.lower import Fused
from abele.runtime.machine import WorkingMemory

_NUMBER = re.compile(r"#(\d+) ")


class Native:
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
        self._fused: dict[Run, Fused] = {}

    def parts(self, steps: Sequence[Program]) -> Iterator[Program | Fused]:
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

    def _plan(self, run: Run) -> Fused:
        binder = _Binder(self._storage)
        calls = [binder.call(number, step) for number, step in enumerate(run)]
        plan = plan_native(list(binder.buffers.values()), calls)
        self._memory.cover(plan.arena_bytes, plan.scratch_bytes)
        phases = tuple((self._leaf(leaf, plan, run, binder),) for leaf in plan.leaves)
        return Fused(run, tuple(binder.uses), phases, plan.listing)

    def _leaf(self, leaf: KernelLeaf, plan: NativePlan, run: Run, binder: _Binder) -> Leaf:
        args = tuple(self._argument(argument, binder) for argument in leaf.args)
        name = ", ".join(leaf.calls) or leaf.name
        return Leaf(name, leaf.address, leaf.units, args, None, self._written(leaf, run), keep=plan)

    def _written(self, leaf: KernelLeaf, run: Run) -> IntervalSet:
        """Elements that a leaf may write: the outputs of the calls that it carries out, in whole or in part."""
        # Names without a number are of the planner's own copies, which it keeps in working memory.
        numbers = {int(n) for name in leaf.calls for n in _NUMBER.findall(name)}
        return IntervalSet.union(self._effects(run[n]).written for n in sorted(numbers))

    def _argument(self, argument: KernelArgument, binder: _Binder) -> Argument:
        match argument.kind:
            case "buffer":
                owner = binder.owners[argument.value]
                return owner if isinstance(owner, StreamUse) else self._arena.address(owner)
            case "arena":
                return Workspace(argument.value)
            case "scratch":
                return Scratch()
            case _:
                return argument.value


class _Binder:
    """Numbers the buffers of one run and binds its steps to them.

    Attributes:
        buffers: By number.
        owners: The variable or stream copy behind each buffer.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._numbers: dict[Variable, int] = {}
        self.buffers: dict[int, Buffer] = {}
        self.owners: list[Variable | StreamUse] = []

    @property
    def uses(self) -> list[StreamUse]:
        """Copies from and to streams, in program order."""
        return [o for o in self.owners if isinstance(o, StreamUse)]

    def call(self, number: int, step: Program) -> KernelCall:
        """A step as a kernel bound to buffers; its name tells its number, by which leaves are found to carry it out."""
        name = f"#{number} {step.debug.full_name.replace('#', '')}"
        inputs, outputs = operands(step)
        other = next(t for t in (*inputs, *outputs) if isinstance(t, Tensor))
        bindings = tuple(self._binding(side, other) for side in (*inputs, *outputs))
        return KernelCall(_kernel(step, other), bindings, name)

    def _binding(self, side: Tensor | Stream, other: Tensor) -> Binding:
        if isinstance(side, Stream):
            # A stream has the shape of the tensor at the other end: copies go in flattened order.
            number = self._add(StreamUse(side), other.shape, side)
            return bind(self.buffers[number])
        strided = side.strided()
        assert strided is not None
        return Binding(self._number(strided.variable), strided.factors, strided.offset)

    def _number(self, variable: Variable) -> int:
        if variable not in self._numbers:
            self._numbers[variable] = self._add(variable, variable.shape, variable)
        return self._numbers[variable]

    def _add(self, owner: Variable | StreamUse, shape: tuple[int, ...], like: Variable | Stream) -> int:
        number = len(self.owners)
        pinned = isinstance(owner, StreamUse) or self._storage.is_stored(owner)
        self.buffers[number] = Buffer(number, shape, like.dtype, pinned, like.name)
        self.owners.append(owner)
        return number


def _kernel(step: Program, tensor: Tensor) -> HostKernel:
    if isinstance(step, LibraryCall):
        assert step.kernel is not None
        return step.kernel
    assert isinstance(step, Copy)
    return copy_kernel(tensor.shape, tensor.dtype)
