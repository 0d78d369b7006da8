"""Native execution: runs of library calls planned as host kernels over the engine's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from abele.codelet.rounding import NEAREST, Rounding
from abele.graph import Copy, LibraryCall, Program, StashCopy, Steps, Stream, Tensor, Variable
from abele.graph.block import StridedBlock
from abele.graph.interval_set import IntervalSet
from abele.kernels import BoundKernel, Buffer, NativePlan, OperandBinding, StoreRounding, bind, copy_kernel, plan_native
from abele.kernels import LeafArgument as KernelArgument
from abele.kernels import PlanLeaf as KernelLeaf
from abele.layout import Layout, row_major
from abele.numerics import ElementType, u32
from abele.runtime.control.leaf import Argument, Leaf, Phase, Scratch, StashRow, Stepped, StreamUse, Workspace
from abele.runtime.control.virtual_machine import WorkingMemory
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.effects import EffectsOf
from abele.runtime.memory.host_memory import address_of, aligned_block
from abele.runtime.native.fusion import MOST_PARTS, Replaced, Run, Storage, matched, regrouped, split_runs
from abele.runtime.native.stored_order import Factors, stored_shape, unmoved_tables, variables_of, view_in_order
from abele.runtime.supersteps.seeds import run_offset

# Fused runs: steps that host kernels carry out together, as lowering meets them.

NO_STRIDES: Mapping[Variable, int] = MappingProxyType({})
"""Of a run in no loop, or in a loop that moves nothing on."""


@dataclass(frozen=True, eq=False)
class RunKernels:
    """The host kernels of a run under one rounding.

    Attributes:
        uses: Stream copies among its steps.
        phases: The kernels' leaves in order, for each replica.
        plan: Plan of the kernels.
        seeds: Address of the word that results are rounded by at random, for each replica; none otherwise.
        offset: Number that tells its random numbers from those of other runs.
    """

    uses: tuple[StreamUse, ...]
    phases: tuple[tuple[Phase, ...], ...]
    plan: NativePlan
    seeds: tuple[int, ...] = ()
    offset: int = 0


@dataclass(frozen=True, eq=False)
class FusedRun:
    """A straight run of steps that host kernels carry out together.

    Attributes:
        steps: The steps that it replaces.
        plan: Makes the kernels under a rounding; they are planned when they are first asked for.
    """

    steps: tuple[Program, ...]
    plan: Callable[[Rounding], RunKernels]
    _known: dict[Rounding, RunKernels] = field(default_factory=dict)

    def kernels(self, rounding: Rounding = NEAREST) -> RunKernels:
        """The kernels whose results are rounded so."""
        if rounding not in self._known:
            self._known[rounding] = self.plan(rounding)
        return self._known[rounding]

    @property
    def listing(self) -> str:
        """The plans as text, those of other roundings than to nearest under a line that says so."""
        return "\n\n".join(
            kernels.plan.listing if rounding == NEAREST else f"{rounding}:\n{kernels.plan.listing}"
            for rounding, kernels in self._known.items()
        )


# Binding: the steps of a run as kernel calls over numbered buffers.


class SeedWord:
    """Placeholder of the word for random rounding of a run's results."""


Owner = Variable | StreamUse | StashCopy | SeedWord | None


class Binder:
    """Numbers the buffers of one run and binds its steps to them.

    An operand that is no single strided block (a concatenation, a reshape across factors) goes through a buffer of its
    own, which the planner fills part by part, or does away with. A table that comes from a stream, and that nothing but
    the run looks at, is not copied: rows are taken of it where the host has it.

    Args:
        storage: Variables that are stored, and their order.
        run: The steps.

    Attributes:
        buffers: By number.
        owners: The owner of each buffer; None for one that only the kernels know.
    """

    def __init__(self, storage: Storage, run: Run) -> None:
        self._storage = storage
        self._orders = dict(storage.orders)
        self._unmoved = unmoved_tables(run, (*storage.orders, *filter(storage.is_stored, variables_of(run))))
        self._numbers: dict[Variable, int] = {}
        self._stashes: dict[tuple[Variable, Variable | None, int], int] = {}
        self.buffers: list[Buffer] = []
        self.owners: list[Owner] = []

    def seed(self) -> int:
        """Number of a further buffer: the seed of random rounding, u32[2]."""
        return self._add(SeedWord(), (2,), u32, "rounding seed")

    @property
    def uses(self) -> list[StreamUse]:
        """Copies from and to streams, in program order."""
        return [o for o in self.owners if isinstance(o, StreamUse)]

    def calls(self, number: int, step: Program) -> list[BoundKernel]:
        """Step ``number`` as kernels bound to buffers."""
        origin = frozenset({number})
        return [replace(call, origins=origin) for call in self._calls(f"#{number} {step.debug.full_name}", step)]

    def _calls(self, name: str, step: Program) -> list[BoundKernel]:
        if isinstance(step, LibraryCall):
            return self._library_call(name, step)
        if isinstance(step, StashCopy):
            number = self._stash(step)
            return self._part_copies(name, step.tensor, number, into_view=not step.saves)
        assert isinstance(step, Copy)
        match step.source, step.destination:
            case Tensor(), Tensor():
                return self._copies(name, *matched(step))
            case Stream() as source, Tensor() as destination if step in self._unmoved:
                variable, order = self._unmoved[step]
                self._orders[variable] = order
                self._numbers[variable] = self._stream(source, destination)
                return []
            case Stream() as source, Tensor() as destination:
                return self._part_copies(name, destination, self._stream(source, destination), into_view=True)
            case Tensor() as source, Stream() as destination:
                return self._part_copies(name, source, self._stream(destination, source), into_view=False)
        raise AssertionError(step)

    def _library_call(self, name: str, step: LibraryCall) -> list[BoundKernel]:
        assert step.kernel is not None
        before: list[BoundKernel] = []
        after: list[BoundKernel] = []
        own: list[tuple[Tensor, int]] = []
        bindings: list[OperandBinding] = []
        for tensor in (*step.inputs, *step.outputs):
            is_input = len(bindings) < len(step.inputs)
            if tensor.strided() is not None:
                bindings.append(self._binding(tensor))
                continue
            # The same view as input and output (in place) goes through one buffer.
            number = next((n for t, n in own if t.is_same_view(tensor)), None)
            if number is None:
                number = self._add(None, tensor.shape, tensor.dtype, f"{name}.parts")
                own.append((tensor, number))
                if is_input:
                    before += self._part_copies(name, tensor, number, into_view=False)
            if not is_input:
                after += self._part_copies(name, tensor, number, into_view=True)
            bindings.append(bind(self.buffers[number]))
        return [*before, BoundKernel(step.kernel, tuple(bindings), name), *after]

    def _part_copies(self, name: str, tensor: Tensor, number: int, *, into_view: bool) -> list[BoundKernel]:
        """Copies between the parts of a view and a buffer of the view's shape."""
        calls = []
        for shape, mine, theirs in self._parts(tensor, number):
            sides = (mine, theirs) if into_view else (theirs, mine)
            calls.append(BoundKernel(copy_kernel(shape, tensor.dtype), sides, name))
        return calls

    def _parts(self, tensor: Tensor, number: int) -> Iterator[tuple[tuple[int, ...], OperandBinding, OperandBinding]]:
        """Shape of each part of a view, its place in a row-major buffer of the view's shape, and in its variable."""
        blocks = tensor.content.blocks
        if blocks is not None and len(blocks) <= MOST_PARTS:
            # A reshape may leave parts that lie between each other: those of every sample, say.
            for block in blocks:
                # A dimension for every factor: both sides have the same ones, and nothing has to be split for a copy.
                shape = tuple(n for along in block.factors for n, _, _ in along)
                yield shape, _block_binding(number, tensor.shape, block), self._block_source(block)
            return
        found = regrouped(tensor)
        assert found is not None
        everything = _box_binding(number, found.shape, tuple(slice(0, n) for n in found.shape))
        yield found.shape, everything, self._at(found.variable, found.factors, found.offset)

    def _copies(self, name: str, source: Tensor, destination: Tensor) -> list[BoundKernel]:
        """A copy between views, part by part; through a buffer where the parts of a view lie among each other."""
        if source.blocks is not None and destination.blocks is not None:
            return [self._copy(name, *pair) for pair in _block_pairs(source, destination)]
        number = self._add(None, source.shape, source.dtype, f"{name}.parts")
        into = self._part_copies(name, source, number, into_view=False)
        return [*into, *self._part_copies(name, destination, number, into_view=True)]

    def _copy(self, name: str, source: Tensor, destination: Tensor) -> BoundKernel:
        kernel = copy_kernel(source.shape, source.dtype)
        return BoundKernel(kernel, (self._binding(source), self._binding(destination)), name)

    def _binding(self, tensor: Tensor) -> OperandBinding:
        strided = tensor.strided()
        assert strided is not None
        return self._at(strided.variable, strided.factors, strided.offset)

    def _block_source(self, block: StridedBlock) -> OperandBinding:
        """The view of a block in its variable."""
        factors = tuple(((n, stride),) for along in block.factors for n, _, stride in along)
        return self._at(block.variable, factors, block.offset)

    def _at(self, variable: Variable, factors: Factors, offset: int) -> OperandBinding:
        """A view of a variable, in the order in which it is stored."""
        number, order = self._number(variable), self._orders.get(variable)
        if order is None:
            return OperandBinding(number, factors, offset)
        view = view_in_order(variable, order, factors, offset)
        assert view is not None, "a variable with views that have no form in another order is stored as it is"
        return OperandBinding(number, *view)

    def _number(self, variable: Variable) -> int:
        if variable not in self._numbers:
            shape = stored_shape(variable, self._orders)
            self._numbers[variable] = self._add(variable, shape, variable.dtype, variable.name)
        return self._numbers[variable]

    def _stream(self, stream: Stream, tensor: Tensor) -> int:
        """A buffer for one copy of a stream, in the shape of the other side: copies go in flattened order."""
        return self._add(StreamUse(stream), tensor.shape, stream.dtype, stream.name)

    def _stash(self, step: StashCopy) -> int:
        """The buffer of a stash's row; copies of a row that one index names share it."""
        key = step.variable, None if step.row is None else step.row.variables[0], step.tensor.size
        if key not in self._stashes:
            self._stashes[key] = self._add(step, step.tensor.shape, step.tensor.dtype, step.variable.name)
        return self._stashes[key]

    def _add(self, owner: Owner, shape: tuple[int, ...], dtype: ElementType, name: str) -> int:
        number = len(self.owners)
        pinned = isinstance(owner, StreamUse | StashCopy | SeedWord) or (
            isinstance(owner, Variable) and self._storage.is_stored(owner)
        )
        elements = owner.initial if isinstance(owner, Variable) and owner.kind == "constant" else None
        self.buffers.append(Buffer(number, shape, dtype, pinned, name, elements))
        self.owners.append(owner)
        return number


Box = tuple[slice, ...]


def _block_views(tensor: Tensor) -> Iterator[tuple[Box, Tensor]]:
    """Each block of a view: where it lies in the view, and itself as a view."""
    assert tensor.blocks is not None
    for block in tensor.blocks:
        box = tuple(slice(o, o + n) for o, n in zip(block.origin, block.extents, strict=True))
        yield box, tensor[box]


def _block_pairs(source: Tensor, destination: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
    """Parts of two views of one shape such that both parts are single blocks."""
    for box, part in _block_views(source):
        for inner, target in _block_views(destination[box]):
            piece = part[inner]
            # A box that begins or ends inside of a digit cuts a block into several.
            yield from ((piece, target),) if piece.strided() is not None else _block_pairs(piece, target)


def _box_binding(number: int, shape: tuple[int, ...], box: Box) -> OperandBinding:
    """The view of a box of a row-major buffer."""
    part, first = Layout.dense(shape).sliced(box)
    return OperandBinding(number, tuple((mode,) for mode in part.modes), first)


def _block_binding(number: int, shape: tuple[int, ...], block: StridedBlock) -> OperandBinding:
    """The view of a block's places in a row-major buffer of ``shape``."""
    strides = row_major(shape)
    factors = tuple(
        ((n, step * stride),) for along, stride in zip(block.factors, strides, strict=True) for n, step, _ in along
    )
    return OperandBinding(number, factors, sum(o * stride for o, stride in zip(block.origin, strides, strict=True)))


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

    def flattened(self, steps: Steps, replaced: Replaced) -> tuple[Program, ...]:
        """The steps of a sequence as they run; ``replaced`` hears of sequences that the host's own stand in for."""
        return self._storage.flattened(steps, replaced)

    def stands_in(self, host_body: Steps) -> bool:
        """True if a host's steps run in place of others, where the behaviour allows it."""
        return self._storage.stands_in(host_body)

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
            cycles=leaf.cycles,
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
                if isinstance(owner, StashCopy):
                    return self._stash_row(owner, place.replica)
                address, stride = self._arena.address(owner, place.replica), place.strides.get(owner, 0)
                return Stepped(address, stride * owner.dtype.bytes) if stride else address
            case "arena":
                return Workspace(argument.value)
            case "scratch":
                return Scratch()
            case _:
                return argument.value

    def _stash_row(self, step: StashCopy, replica: int) -> Argument:
        """The row of a stash that a copy reads or writes."""
        address = self._arena.address(step.variable, replica)
        if step.row is None:
            return address
        row = step.row.strided()
        assert row is not None
        index = self._arena.address(row.variable, replica) + row.offset * row.variable.dtype.bytes
        return StashRow(address, step.stash.shape[1] * step.variable.dtype.bytes, index)
