"""Binding: the steps of a run as kernel calls over numbered buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from abele.graph import Copy, LibraryCall, Program, Stream, Tensor, Variable
from abele.graph.block import StridedBlock
from abele.kernels import BoundKernel, Buffer, OperandBinding, bind, copy_kernel
from abele.layout import Layout, row_major
from abele.numerics import ElementType, u32
from abele.runtime.control.leaf import StreamUse
from abele.runtime.native.fusion import MOST_PARTS, Run, Storage, matched
from abele.runtime.native.stored_order import Factors, stored_shape, unmoved_tables, variables_of, view_in_order
from abele.runtime.native.strided_again import regrouped


class SeedWord:
    """Placeholder of the word for random rounding of a run's results."""


Owner = Variable | StreamUse | SeedWord | None


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
        owners: The variable, stream copy or seed behind each buffer; None for one that only the kernels know.
    """

    def __init__(self, storage: Storage, run: Run) -> None:
        self._storage = storage
        self._orders = dict(storage.orders)
        self._unmoved = unmoved_tables(run, (*storage.orders, *filter(storage.is_stored, variables_of(run))))
        self._numbers: dict[Variable, int] = {}
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

    def _add(self, owner: Owner, shape: tuple[int, ...], dtype: ElementType, name: str) -> int:
        number = len(self.owners)
        pinned = isinstance(owner, StreamUse | SeedWord) or (
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
            yield part[inner], target


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
