"""Storage order of a variable on the host, for rows that values name.

Tiles hold a table in parts of its columns, and a variable is row-major in its own shape, so that a row of the table
lies in many pieces. A host that looks up rows wants them whole. Where host kernels alone touch a variable, between
reads and writes of the host, nobody else depends on the order of its elements. So it is stored with its dims in the
order of the view that rows are taken of, and the strides of every kernel's view are those of this order
(:class:`Strides`).

A view is offsets and strides in the row-major elements of the variable. Each stride is a number of steps along one dim;
a run of so many steps that it would pass the dim's end is split into steps along this dim and along the one outside
of it. What is left is checked: where the sum of all steps stays inside of every dim, no step carries from one dim into
the next, so that the place of an element is the sum of its steps' distances in the new order, too. A view without such
a form leaves the variable as it is.

Variables that are seen through the same view in one call (a weight, its gradient, its momentum) run side by side, so
the order spreads from each to the others.

Example: a table [1000, 64] in 4 parts of 16 columns is a variable [4, 1000, 16], and a row is 4 pieces of 16 elements.
Stored with its dims in the order (1, 0, 2), a row is one piece of 64.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from abele.graph import Copy, LibraryCall, Program, Stream, Tensor, Variable
from abele.graph.block import StridedBlock, row_major, strides_of
from abele.kernels.nest.ir import HostKernel

Order = tuple[int, ...]
"""Dims of a variable, the one whose indices lie farthest apart first."""
Factors = tuple[tuple[tuple[int, int], ...], ...]
WHOLE_BYTES = 64
"""Least bytes of a piece of a row that is as good as a whole row: a cache line."""
_Step = tuple[int, int, int]
"""Steps along a dim: dim, number, and indices of each."""


@dataclass(frozen=True)
class Strides:
    """Shape and strides of a variable.

    Attributes:
        shape: Shape of the variable.
        strides: Distance of neighbours along each dim, in elements.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def of(shape: tuple[int, ...], order: Order) -> Strides:
        """Dense, in the order of dims."""
        dense = row_major([shape[d] for d in order])
        return Strides(shape, tuple(dense[order.index(d)] for d in range(len(shape))))

    def view(self, factors: Factors, offset: int) -> tuple[Factors, int] | None:
        """A view in row-major elements as one in these; None if it steps from one dim into another."""
        first = [int(n) for n in np.unravel_index(offset, self.shape)]
        low, high = list(first), list(first)
        made: list[tuple[tuple[int, int], ...]] = []
        for along in factors:
            steps = [_steps(self.shape, n, stride) for n, stride in along]
            if any(found is None for found in steps):
                return None
            found = [step for some in steps for step in some or ()]
            for count, distance, dim in found:
                if distance:  # a step of none has no dim, which matters where the variable has none
                    end = high if distance > 0 else low
                    end[dim] += (count - 1) * distance
            made.append(tuple((n, k * self.strides[dim] if k else 0) for n, k, dim in found) or ((1, 0),))
        if min(low, default=0) < 0 or any(n >= extent for n, extent in zip(high, self.shape, strict=True)):
            return None
        return tuple(made), sum(n * s for n, s in zip(first, self.strides, strict=True))


def _steps(shape: tuple[int, ...], count: int, stride: int) -> list[_Step] | None:
    """``count`` steps of ``stride`` row-major elements as steps along dims, outermost first."""
    if count == 1 or not stride:
        return [(count, 0, 0)]
    inner = row_major(shape)
    dim = next((d for d, n in enumerate(shape) if n > 1 and inner[d] <= abs(stride) < inner[d] * n), None)
    if dim is None or stride % inner[dim]:
        return None
    distance = abs(stride) // inner[dim]
    sign = 1 if stride > 0 else -1
    if (count - 1) * distance < shape[dim]:
        return [(count, sign * distance, dim)]
    here = shape[dim] // distance
    if shape[dim] % distance or count % here:
        return None
    outer = _steps(shape, count // here, stride * here)
    return None if outer is None else [*outer, (here, sign * distance, dim)]


def order_of_view(variable: Variable, factors: Factors, offset: int) -> Order | None:
    """The dims of ``variable`` as a view of all of it lists them; None if it is no such view."""
    found = [_steps(variable.shape, n, stride) for along in factors for n, stride in along if n > 1]
    if offset or any(steps is None for steps in found):
        return None
    steps = [step for some in found for step in some or ()]
    dims = [dim for _, _, dim in steps]
    if any(k != 1 or n != variable.shape[dim] for n, k, dim in steps) or len(set(dims)) != len(dims):
        return None
    units = [d for d, n in enumerate(variable.shape) if n == 1]
    order = (*units, *dims)
    return order if len(order) == len(variable.shape) else None


def row_operands(kernel: HostKernel) -> Iterator[tuple[int, int]]:
    """Operands that a kernel takes rows of, or stores rows in, each with the dim of the rows."""
    if all(t.is_float for t in kernel.types):
        return
    found: dict[int, int] = {}
    for nest in kernel.nests:
        found.update({load.operand: load.dim for load in nest.row_loads()})
        found.update({s.operand: s.row.dim for s in nest.stores if s.row is not None})
    yield from found.items()


def stored_orders(
    calls: Iterable[Program], fixed: Collection[Variable], kept: Collection[Variable]
) -> dict[Variable, Order]:
    """The variables that are better stored in another order, with the order.

    Args:
        calls: All steps that host kernels carry out, each once.
        fixed: Variables that something else touches.
        kept: Variables that hold values from run to run: the tables that are worth it.
    """
    steps = list(calls)
    wanted = [
        pair
        for s in steps
        if isinstance(s, LibraryCall)
        for pair in _wanted(s)
        if pair[0] in kept and pair[0] not in fixed
    ]
    if not wanted:
        return {}
    views = _Views(steps)
    orders: dict[Variable, Order] = {}
    while wanted:
        variable, order = wanted.pop()
        if variable in orders or variable in fixed or not views.allow(variable, order):
            continue
        orders[variable] = order
        wanted += [(like, order) for like in views.alike(variable)]
    return orders


def _wanted(call: LibraryCall) -> Iterator[tuple[Variable, Order]]:
    """Variables of which a call takes rows in pieces, and orders with whole rows."""
    assert call.kernel is not None
    tensors = (*call.inputs, *call.outputs)
    for number, dim in row_operands(call.kernel):
        strided = tensors[number].strided() if number < len(tensors) else None
        if strided is None or math.prod(tensors[number].shape[dim + 1 :]) == 1:
            continue
        extent, stride = strided.factors[-1][-1]
        pieces = extent if stride == 1 else 1
        order = order_of_view(strided.variable, strided.factors, strided.offset)
        if order is None or pieces * strided.variable.dtype.bytes >= WHOLE_BYTES:
            continue
        if Strides.of(strided.variable.shape, order).strides != row_major(strided.variable.shape):
            yield strided.variable, order


def unmoved_tables(run: Sequence[Program], seen: Iterable[Variable]) -> dict[Program, tuple[Variable, Order]]:
    """Copies from streams that a run can do without: rows are taken of the data in place.

    Args:
        run: Steps that host kernels carry out.
        seen: Variables that must hold their values where the graph says.

    Returns:
        For such a copy the table, and the order in which the stream has its dims.
    """
    tables = {
        tensor.variables[0]
        for step in run
        if isinstance(step, LibraryCall) and step.kernel is not None
        for number, _ in row_operands(step.kernel)
        if number < step.kernel.num_inputs and len((tensor := step.inputs[number]).variables) == 1
    }.difference(seen)
    if not tables:
        return {}
    views, found = _Views(run), dict[Program, tuple[Variable, Order]]()
    for step in run:
        if not (isinstance(step, Copy) and isinstance(step.source, Stream) and isinstance(step.destination, Tensor)):
            continue
        strided = step.destination.strided()
        if strided is None or strided.variable not in tables or step.source.dtype != strided.variable.dtype:
            continue
        variable, order = strided.variable, order_of_view(strided.variable, strided.factors, strided.offset)
        written = sum(variable in t.variables for other in views.steps[variable] for t in _written(other))
        if order is not None and written == 1 and views.allow(variable, order):
            found[step] = (variable, order)
    return found


def variables_of(run: Iterable[Program]) -> dict[Variable, None]:
    """The variables that steps of a run touch."""
    return dict.fromkeys(v for step in run for t in _tensors(step) for v in t.variables)


def _written(step: Program) -> list[Tensor]:
    if isinstance(step, LibraryCall):
        return list(step.outputs)
    assert isinstance(step, Copy)
    return [step.destination] if isinstance(step.destination, Tensor) else []


class _Views:
    """Views of variables by steps."""

    def __init__(self, steps: Sequence[Program]) -> None:
        self.steps: dict[Variable, list[Program]] = {}
        for step in steps:
            for variable in dict.fromkeys(v for t in _tensors(step) for v in t.variables):
                self.steps.setdefault(variable, []).append(step)

    def allow(self, variable: Variable, order: Order) -> bool:
        """True if all views of a variable have a form in another order."""
        strides = Strides.of(variable.shape, order)
        for step in self.steps.get(variable, ()):
            for tensor in _tensors(step):
                if variable not in tensor.variables:
                    continue
                blocks = tensor.content.blocks
                mine = [b for b in blocks or () if b.variable is variable]
                if not mine or any(strides.view(_factors(b), b.offset) is None for b in mine):
                    return False
        return True

    def alike(self, variable: Variable) -> Iterator[Variable]:
        """Variables of the same shape that a call sees through the same view."""
        for step in self.steps.get(variable, ()):
            tensors = [t.strided() for t in _tensors(step)] if isinstance(step, LibraryCall) else []
            own = {(t.factors, t.offset) for t in tensors if t is not None and t.variable is variable}
            for t in tensors:
                if t is not None and (t.factors, t.offset) in own and t.variable.shape == variable.shape:
                    yield t.variable


def _factors(block: StridedBlock) -> Factors:
    return tuple(strides_of(f) for f in block.factors)


def _tensors(step: Program) -> list[Tensor]:
    if isinstance(step, LibraryCall):
        return [*step.inputs, *step.outputs]
    assert isinstance(step, Copy)
    return [t for t in (step.source, step.destination) if isinstance(t, Tensor)]


def stored_shape(variable: Variable, orders: Mapping[Variable, Order]) -> tuple[int, ...]:
    """The shape in which a variable is stored."""
    return tuple(variable.shape[d] for d in orders[variable]) if variable in orders else variable.shape
