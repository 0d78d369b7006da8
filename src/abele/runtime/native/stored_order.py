"""Storage order of a variable on the host, for rows that values name.

Tiles hold a table in parts of its columns, and a variable is row-major in its own shape, so that a row of the table
lies in many pieces. A host that looks up rows wants them whole. Where host kernels alone touch a variable, between
reads and writes of the host, the order of its elements is nobody else's affair: it is stored with its dims in the
order of the view that rows are taken of, and every kernel's view of it is put in these terms (:func:`view_in_order`).

A view is offsets and strides in the row-major elements of the variable: a layout into them, which composes with that
of the stored elements. A view that does not compose with it leaves the variable as it is.

Variables that are seen through the same view in one call (a weight, its gradient, its momentum) run side by side, so
the order spreads from each to the others.

Example: a table [1000, 64] in 4 parts of 16 columns is a variable [4, 1000, 16], and a row is 4 pieces of 16 elements.
Stored with its dims in the order (1, 0, 2), a row is one piece of 64.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from abele.graph import Copy, LibraryCall, Program, StashCopy, Stream, Tensor, Variable
from abele.graph.block import StridedBlock, strides_of
from abele.kernels.nest.ir import HostKernel
from abele.layout import Layout, LayoutError, Modes, row_major

Order = tuple[int, ...]
"""Dims of a variable, the one whose indices lie farthest apart first."""
Factors = tuple[Modes, ...]
WHOLE_BYTES = 64
"""Pieces of a row of at least so many bytes are as good as whole rows: a cache line."""


def view_in_order(variable: Variable, order: Order, factors: Factors, offset: int) -> tuple[Factors, int] | None:
    """A view in row-major elements as one in elements stored in ``order``; None if it steps from one dim into another.

    The first three rows of a [4, 6] table are factors ((3, 6),) and ((6, 1),); in order (1, 0) they are ((3, 1),) and
    ((6, 4),).
    """
    stored = Layout.dense(variable.shape, order)
    flat = Layout.of(mode for along in factors for mode in along)
    try:
        dims = stored.compose(flat, at=offset).reshaped([math.prod(n for n, _ in along) for along in factors])
    except LayoutError:
        return None
    return tuple(along.modes or ((1, 0),) for along in dims), stored(offset)


def order_of_view(variable: Variable, factors: Factors, offset: int) -> Order | None:
    """The dims of ``variable`` as a view of all of it lists them; None if it is no such view."""
    dense = Layout.dense(variable.shape)
    try:
        steps = dense.compose(Layout.of(mode for along in factors for mode in along))
    except LayoutError:
        return None
    dims = {mode: d for d, mode in enumerate(dense.modes) if mode[0] > 1}
    order = [d for d, n in enumerate(variable.shape) if n == 1]
    under_way: tuple[int, int] | None = None  # the dims of the view that list a dim of the variable together
    for extent, step in steps.modes:
        if under_way is not None and under_way[1] != extent * step:
            return None
        under_way = extent * (1 if under_way is None else under_way[0]), step
        if under_way in dims:
            order.append(dims[under_way])
            under_way = None
    is_whole = not offset and under_way is None and len(set(order)) == len(order) == len(variable.shape)
    return tuple(order) if is_whole else None


def order_like(variable: Variable, order: Order, shape: tuple[int, ...]) -> Order | None:
    """The dims of an array of ``shape`` in the order that puts each element where ``order`` puts it in ``variable``.

    A table (1, 16, 2000) in order (0, 2, 1) and its momentum, (16, 2000) in order (1, 0), lie alike. None where no
    order of these dims does.
    """
    stored = Layout.dense(variable.shape, order).coalesced()
    places = [stored(step) if n > 1 else math.inf for n, step in zip(shape, row_major(shape), strict=True)]
    same = tuple(sorted(range(len(shape)), key=lambda d: -places[d]))
    return same if Layout.dense(shape, same).coalesced() == stored else None


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
        for like in views.alike(variable):
            same = order if like.shape == variable.shape else order_like(variable, order, like.shape)
            wanted += [] if same is None else [(like, same)]
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
        if Layout.dense(strided.variable.shape, order) != Layout.dense(strided.variable.shape):
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
    if isinstance(step, StashCopy):
        return [] if step.saves else [step.tensor]
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
        for step in self.steps.get(variable, ()):
            for tensor in _tensors(step):
                if variable not in tensor.variables:
                    continue
                blocks = tensor.content.blocks
                mine = [b for b in blocks or () if b.variable is variable]
                if not mine or any(view_in_order(variable, order, _factors(b), b.offset) is None for b in mine):
                    return False
        return True

    def alike(self, variable: Variable) -> Iterator[Variable]:
        """Variables of the same size that a call sees through the same view."""
        for step in self.steps.get(variable, ()):
            tensors = [t.strided() for t in _tensors(step)] if isinstance(step, LibraryCall) else []
            own = {(t.factors, t.offset) for t in tensors if t is not None and t.variable is variable}
            for t in tensors:
                if t is not None and (t.factors, t.offset) in own and t.variable.size == variable.size:
                    yield t.variable


def _factors(block: StridedBlock) -> Factors:
    return tuple(strides_of(f) for f in block.factors)


def _tensors(step: Program) -> list[Tensor]:
    if isinstance(step, LibraryCall):
        return [*step.inputs, *step.outputs]
    if isinstance(step, StashCopy):
        return [step.tensor]
    assert isinstance(step, Copy)
    return [t for t in (step.source, step.destination) if isinstance(t, Tensor)]


def stored_shape(variable: Variable, orders: Mapping[Variable, Order]) -> tuple[int, ...]:
    """The shape in which a variable is stored."""
    return tuple(variable.shape[d] for d in orders[variable]) if variable in orders else variable.shape
