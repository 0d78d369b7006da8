"""Split loop dims and buffers until every access indexes whole dims of its buffer: bound kernels become tasks.

A view may run one of its dims over several strides of the buffer (the channels of a ``[C1, B, H, W, C0]`` variable),
and another view of the same buffer may split it elsewhere. With addresses alone, a later pass could not tell that two
tasks touch the same elements at the same point, so nothing could be fused or run sample by sample.

Buffers and loops are therefore split at all places where any view splits them. A buffer has a chain of divisors over
its addresses, a loop dim one over its indices (:class:`~abele.layout.Divisors`), and a view maps the marks of one
onto marks of the other. Adding a mark to either may call for one in the other, in the same call or in another that
shares the buffer; marks are only ever added and there are finitely many divisors, so this comes to a fixpoint. There,
each digit of a loop runs over exactly one digit of each buffer: an index is a whole dim, by construction.

Two things have no such splitting. A window runs over positions that no digit can express, so the dim under it is kept
whole, and where another view must split it the operand goes through a copy of its own. And two views may want marks
that do not divide each other; then the digits between are kept as one dim, indexed by address. Each attempt finds all
of these at once and the next one starts afresh with them, since a copy, or a dim kept whole, changes the other chains;
mending one at a time takes an attempt for each, and made networks of many layers slow to plan.

Rows that values name are found by address: a buffer need not be split for them, and a view may run over its rows in
several strides, as the number of a row can be taken apart where it is used. Only the loops over the other dims are
split as the view's strides are. Rows whose elements lie apart, such as those of a table that tiles hold column by
column, go through a copy whose rows are stretches of memory, where enough of them are touched.

Example: a dim of 32 that one view has as [2, 16] and another as [4, 8] gets marks at 8 and 16, and becomes digits [2,
2, 8].
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from abele.kernels.nest.binding import BoundCalls, BoundKernel, Buffer, OperandBinding, bind
from abele.kernels.nest.check import mentioned_dims
from abele.kernels.nest.copy_kernel import copy_kernel
from abele.kernels.nest.ir import Affine, Expr, HostKernel, Index, Load, Nest, Random, RowLoad, Store, affine
from abele.kernels.nest.loop_nest import Bound, ElementAccess, Hash, RowFetch, RowPlace
from abele.kernels.nest.normalise import normalised, overwrites
from abele.kernels.nest.rewrite import rewrite
from abele.kernels.tasks.lower_nest import lower_nest
from abele.kernels.tasks.program import Ref, Space, SpaceTable, TaskProgram, plain
from abele.layout import Divisors, Layout, Modes, digits, offset_at, row_major
from abele.numerics import u32

MIN_STRETCH_BYTES = 64
"""Least bytes of a stretch of a row that is read as well as a whole row: a cache line."""
MIN_USES = 0.5
"""Accesses per table element above which copying the table row-major is cheaper. Measured: a single element takes 2 to
3 ns, one of a stretch a tenth of that, one copied from columns to rows 0.3 to 0.5.
"""


@dataclass
class _CannotIndexError(Exception):
    """Operand without a split of its index, or buffer of which views disagree.

    Attributes:
        call: Number of the call.
        operand: The operand, which needs a copy of its own if ``whole`` is None.
        buffer: Its buffer.
        whole: Addresses between which the buffer must not be split.
    """

    call: int
    operand: int
    buffer: int = 0
    whole: tuple[int, int] | None = None


def split_dims(form: BoundCalls) -> TaskProgram:
    """Split loop dims and buffers until every access indexes whole dims of its buffer: kernels become tasks.

    Raises:
        TensorError: Stores over different dims of one nest read what each other write.
    """
    known, calls = dict(form.buffers), list(form.calls)
    whole = dict[int, set[tuple[int, int]]]()
    while True:
        attempt = _Splitting(known, calls, whole)
        issues = attempt.issues()
        if not issues:
            return attempt.program(form)
        copied = [(i.call, i.operand) for i in issues if i.whole is None]
        assert not any(calls[n].moves for n, _ in copied), "a copy has one factor a dim, and needs no copy"
        # From the last call on, so that the numbers of those before it stay.
        for number in sorted({n for n, _ in copied}, reverse=True):
            operands = _copied(calls[number], [operand for n, operand in copied if n == number])
            calls[number : number + 1] = _with_copies(known, calls[:number], calls[number], operands)
        if copied:
            whole.clear()
            continue
        for issue in issues:
            ranges = whole.setdefault(issue.buffer, set())
            assert issue.whole is not None
            assert issue.whole not in ranges, "a range that is whole does not split"
            ranges.add(issue.whole)


def _copied(call: BoundKernel, operands: Sequence[int]) -> list[int]:
    """Operands that go through copies so that ``operands`` need no splits.

    A temporary has no layout of its own that could be at fault: one of the nests that meet in it runs a dim in the
        factors of an operand's view. Outputs, which are written once, are copied first.
    """
    bound = range(len(call.bindings))
    if all(operand in bound for operand in operands):
        return list(operands)
    split = [n for n in bound if any(len(factors) > 1 for factors in call.bindings[n].factors)]
    outputs = [n for n in split if n in call.kernel.outputs]
    return sorted({*(n for n in operands if n in bound), *(outputs or split)})


def _with_copies(
    buffers: dict[int, Buffer], earlier: Sequence[BoundKernel], call: BoundKernel, operands: Sequence[int]
) -> list[BoundKernel]:
    """``call`` with ``operands`` going through copies of their own, amid the calls that fill and empty these.

    Copies of outputs are filled where they must be, because the call may leave elements as they were.
    """
    name, bindings = f"{call.name}.copy", list(call.bindings)
    before: list[BoundKernel] = []
    after: list[BoundKernel] = []
    for operand in sorted(operands, reverse=True):
        shape, type_ = call.kernel.shapes[operand], call.kernel.types[operand]
        own, view = Buffer(min([0, *buffers]) - 1, shape, type_, pinned=False, name=name), call.bindings[operand]
        buffers[own.id], bindings[operand] = own, bind(own)
        kernel, there, here = _copy_of(view, own)
        is_output = operand in call.kernel.outputs
        kept = _holds_values(buffers[view.buffer], earlier) and not overwrites(call.kernel, operand)
        if not is_output or kept:
            # Of an output too, where the call may leave elements as they were.
            before.append(normalised(BoundKernel(kernel, (there, here), name, call.origins, moves=True)))
        if is_output:
            after.insert(0, normalised(BoundKernel(kernel, (here, there), name, call.origins, moves=True)))
    return [*before, replace(call, bindings=tuple(bindings)), *after]


def _copy_of(view: OperandBinding, own: Buffer) -> tuple[HostKernel, OperandBinding, OperandBinding]:
    """A kernel that copies between a view and its own buffer, and how it sees each of them.

    It has a dim for every factor of the view, so that neither side runs a dim over several strides: such a copy splits
    wherever its buffers do, whatever other views want of these. With the dims of the view it might need a copy itself,
    and that another one, for ever.
    """
    factors = [factor for along in view.factors for factor in along]
    shape = tuple(extent for extent, _ in factors)
    dense = bind(replace(own, shape=shape))
    return copy_kernel(shape, own.type), replace(view, factors=tuple((f,) for f in factors)), dense


def _holds_values(buffer: Buffer, earlier: Sequence[BoundKernel]) -> bool:
    """True if ``buffer`` holds values that count after ``earlier`` calls."""
    return buffer.pinned or any(c.bindings[n].buffer == buffer.id for c in earlier for n in c.kernel.outputs)


def _laid_like(buffer: Buffer, view: OperandBinding) -> OperandBinding:
    """All of ``buffer``, its factors in the order in which those of ``view`` lie in memory."""
    factors = [factor for along in view.factors for factor in along]
    inner_first = sorted(range(len(factors)), key=lambda n: abs(factors[n][1]))
    modes = iter(Layout.dense([extent for extent, _ in factors], inner_first[::-1]).modes)
    return OperandBinding(buffer.id, tuple(tuple([next(modes) for _ in along]) for along in view.factors))


_Asked = tuple[object, int, tuple[Affine, ...], object]
"""Requested index: nest and how its loops are split, operand, index, and the operand's layout."""


class _Splitting:
    """One attempt, with the operands copied and the ranges of buffers kept whole so far."""

    def __init__(
        self, buffers: dict[int, Buffer], calls: list[BoundKernel], whole: dict[int, set[tuple[int, int]]]
    ) -> None:
        self.calls = calls
        self.bindings: list[list[OperandBinding]] = []
        self.buffers: dict[int, Buffer] = dict(buffers)
        for call in calls:
            own = [self._temporary(buffer, call) for buffer in self._temporaries(call)]
            self.bindings.append([*call.bindings, *own])
        self.chains = {b.id: Divisors(math.prod(b.shape)) for b in self.buffers.values()}
        for number, ranges in whole.items():
            for low, high in ranges:
                self.chains[number].keep_whole(low, high)
        self.splits = {
            (c, n, d): Divisors(extent)
            for c, call in enumerate(calls)
            for n, item in enumerate(call.kernel.nests)
            for d, extent in item.dims
        }
        self._split_to_fixpoint()
        self.indices: dict[_Asked, tuple[Affine, ...]] = {}
        self.views = [
            (call, _View(self, c, n, item)) for c, call in enumerate(calls) for n, item in enumerate(call.kernel.nests)
        ]

    def _temporaries(self, call: BoundKernel) -> list[Buffer]:
        first = min([0, *self.buffers]) - 1
        return [
            Buffer(first - n, call.kernel.shapes[t], call.kernel.types[t], False, f"{call.name}.{t}")
            for n, t in enumerate(call.kernel.temporaries)
        ]

    def _temporary(self, buffer: Buffer, call: BoundKernel) -> OperandBinding:
        """Binding of a temporary of ``call``: laid out as an operand of its shape, which loops walk beside it."""
        self.buffers[buffer.id] = buffer
        shapes = call.kernel.shapes
        return next(
            (
                _laid_like(buffer, view)
                for number, view in enumerate(call.bindings)
                if shapes[number] == buffer.shape and all(stride for along in view.factors for _, stride in along)
            ),
            bind(buffer),
        )

    def issues(self) -> list[_CannotIndexError]:
        """Obstacles to indexing whole dims in this attempt, no range twice."""
        found: dict[object, _CannotIndexError] = {}
        for _, view in self.views:
            for issue in view.issues():
                key = (issue.call, issue.operand) if issue.whole is None else (issue.buffer, *issue.whole)
                found.setdefault(key, issue)
        return list(found.values())

    def program(self, form: BoundCalls) -> TaskProgram:
        """The tasks, where there are no issues."""
        spaces = SpaceTable()
        used = dict.fromkeys(b.buffer for bindings in self.bindings for b in bindings)
        rounding = form.rounding
        if rounding is not None and rounding.seed is not None:
            used.setdefault(rounding.seed)
        self.spaces: dict[int, Space] = {}
        for number in used:
            buffer = self.buffers[number]
            shape = self.chains[number].shape
            name = buffer.name or f"b{number}"
            self.spaces[number] = spaces.add(shape, buffer.type, name, number if buffer.pinned else None)
        tasks = [task for call, view in self.views for task in lower_nest(view, call.name, call.origins)]
        held = {n: b.elements for n in used if (b := self.buffers[n]).pinned and b.elements is not None}
        if rounding is not None and rounding.seed is not None:
            rounding = replace(rounding, seed=self.spaces[rounding.seed].number)
        return TaskProgram(spaces.all(), tuple(tasks), form.target, constants=held, rounding=rounding)

    def _split_to_fixpoint(self) -> None:
        # Every access as a triple: the marks of its buffer, its view, and the marks of the loops that index it.
        accesses = [
            (
                self.chains[self.bindings[c][operand].buffer],
                self.bindings[c][operand],
                self._loop_chains(c, n, operand, index),
            )
            for c, call in enumerate(self.calls)
            for n, item in enumerate(call.kernel.nests)
            for operand, index in _accesses(item)
        ]
        # A window or a part of a dim moves over every address of its range: no digit may split that range.
        for chain, binding, loops in accesses:
            for factors, loop in zip(binding.factors, loops, strict=True):
                if loop is None and len(factors) == 1:
                    chain.keep_whole(abs(factors[0][1]), abs(factors[0][1]) * factors[0][0])
        # Rows that values name need loops split as their view is, but never along the dim of the rows.
        for c, call in enumerate(self.calls):
            for n, item in enumerate(call.kernel.nests):
                for operand, index, dim, _ in _row_accesses(item):
                    loops = self._loop_chains(c, n, operand, index)
                    self._split_loops(self.bindings[c][operand], loops, dim)
        # Every view splits its buffer where its own strides begin and end.
        for chain, binding, _ in accesses:
            for factors in binding.factors:
                for extent, stride in factors:
                    if extent > 1 and stride:
                        chain.add(abs(stride))
                        chain.add(abs(stride) * extent)
        # Marks travel between loops and buffers until none is new; they are divisors, so that ends.
        pairs = {
            (id(chain), id(loop), factors): (chain, loop, factors)
            for chain, binding, loops in accesses
            for factors, loop in zip(binding.factors, loops, strict=True)
            if loop is not None and math.prod([extent for extent, _ in factors]) == loop.marks[-1]
        }
        # Marks are only ever added, so their number tells whether a pair has changed since it last agreed.
        agreed = dict.fromkeys(pairs, 0)
        changed = True
        while changed:
            changed = False
            for key, (chain, loop, factors) in pairs.items():
                marks = len(chain.marks) + len(loop.marks)
                if marks != agreed[key]:
                    agreed[key] = marks
                    changed |= _agree(chain, loop, factors)

    @staticmethod
    def _split_loops(binding: OperandBinding, loops: Sequence[Divisors | None], dim: int) -> None:
        """Split ``loops`` as ``binding`` is but along ``dim``, whose places are values."""
        for number, (factors, loop) in enumerate(zip(binding.factors, loops, strict=True)):
            if loop is not None and number != dim:
                for radix in reversed(row_major([extent for extent, _ in factors])):
                    loop.add(radix)

    def _loop_chains(self, call: int, number: int, operand: int, index: tuple[Affine, ...]) -> list[Divisors | None]:
        """For every index that is a whole loop dim over a whole view dim, the dim's chain."""
        kernel = self.calls[call].kernel
        extents, shape = kernel.nests[number].extents, kernel.shapes[operand]
        names = [plain(a) for a in index]
        whole = [d and extents[d] == n for d, n in zip(names, shape, strict=True)]
        return [self.splits[call, number, d] if d and w else None for d, w in zip(names, whole, strict=True)]


def _accesses(item: Nest) -> list[tuple[int, tuple[Affine, ...]]]:
    found = [(load.operand, load.index) for load in item.loads()]
    return list(dict.fromkeys(found + [(s.operand, s.index) for s in item.stores if s.row is None]))


_RowAccess = tuple[int, tuple[Affine, ...], int, frozenset[str]]
"""Operand with rows that values name: its other dims' index, the dim of the rows, and the dims that name them."""


def _row_accesses(item: Nest) -> list[_RowAccess]:
    """The accesses of a nest to rows that values name."""
    found = [(e.operand, e.index, e.dim, frozenset(mentioned_dims(e.row))) for e in item.row_loads()]
    rows = ((s, s.row) for s in item.stores)
    stored = [(s.operand, s.index, r.dim, frozenset(mentioned_dims(r.value))) for s, r in rows if r is not None]
    return list(dict.fromkeys(found + stored))


def _agree(chain: Divisors, loop: Divisors, factors: Modes) -> bool:
    """Split ``chain`` and ``loop`` where the other is split under ``factors``; whether anything changed.

    Args:
        chain: Of the buffer.
        loop: Of the dim.
        factors: Extents and strides in the buffer that all of the dim runs over.
    """
    changed = False
    # Factors count like digits: one step of the next is a whole round of this one.
    for (extent, stride), radix in reversed(_with_radix(factors)):
        changed |= loop.add(radix)
        step = abs(stride)
        if step:
            for mark in chain.between(step, step * extent):
                changed |= mark % step == 0 and loop.add(radix * (mark // step))
            for mark in loop.between(radix, radix * extent):
                changed |= mark % radix == 0 and chain.add(step * (mark // radix))
    return changed


def _with_radix(factors: Modes) -> list[tuple[tuple[int, int], int]]:
    """Each factor with the indices per step of it."""
    return list(zip(factors, row_major([extent for extent, _ in factors]), strict=True))


class _View:
    """Dims of one nest of one call after splitting, and the map from its indices to those of spaces."""

    def __init__(self, splitting: _Splitting, call: int, number: int, item: Nest) -> None:
        self.owner, self.call, self.nest = splitting, call, item
        self.types = splitting.calls[call].kernel.types
        self.shapes = splitting.calls[call].kernel.shapes
        self.parts = {d: self._parts(d, splitting.splits[call, number, d]) for d, _ in item.dims}
        self.dims = tuple((name, extent) for d, _ in item.dims for name, extent, _ in reversed(self.parts[d]))
        self.extents = dict(self.dims)
        self.digits = tuple(
            tuple(name for name, _, _ in reversed(parts)) for parts in self.parts.values() if len(parts) > 1
        )
        self.whole = {d: affine(*((name, radix) for name, _, radix in parts)) for d, parts in self.parts.items()}
        self._form = id(item), tuple(tuple(splitting.splits[call, number, d].marks) for d, _ in item.dims)

    @staticmethod
    def _parts(dim: str, chain: Divisors) -> list[tuple[str, int, int]]:
        shape = chain.shape
        if len(shape) == 1:
            return [(dim, shape[0], 1)]
        inner_first = zip(reversed(shape), chain.marks, strict=False)
        return [(f"{dim}.{n}", extent, radix) for n, (extent, radix) in enumerate(inner_first)]

    def dims_of(self, item: Store) -> set[str]:
        """The split dims that the index of ``item`` mentions."""
        names = {name for a in item.index for name in a.substitute(self.whole).names}
        if item.row is not None:
            names |= {part for dim in mentioned_dims(item.row.value) for part in self.whole[dim].names}
        return names

    def space(self, operand: int) -> int:
        """Number of the space of ``operand``."""
        return self.owner.spaces[self._binding(operand).buffer].number

    def _binding(self, operand: int) -> OperandBinding:
        return self.owner.bindings[self.call][operand]

    def bounds(self, operand: int, index: tuple[Affine, ...]) -> tuple[Bound, ...]:
        """The conditions under which ``index`` is inside ``operand``, those left out that always hold."""
        found = []
        for position, extent in zip(index, self.shapes[operand], strict=True):
            low, high = position.bounds(self.nest.extents)
            if low < 0 or high >= extent:
                found.append(Bound(position.substitute(self.whole), extent))
        return tuple(found)

    def issues(self) -> Iterator[_CannotIndexError]:
        """Obstacles to indexing whole dims in this nest."""
        for operand, index in _accesses(self.nest):
            try:
                self.index(operand, index)
            except _CannotIndexError as issue:
                yield issue
        for access in _row_accesses(self.nest):
            operand, index, dim, _ = access
            if self._lies_apart(access):
                yield _CannotIndexError(self.call, operand)
                continue
            try:
                self._address(operand, index, dim)
            except _CannotIndexError as issue:
                yield issue
        for part in self.nest.expressions():
            if isinstance(part, Random) and not self._is_seed(part.seed):
                yield _CannotIndexError(self.call, part.seed)

    def index(self, operand: int, index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """``index`` into ``operand`` as one into its space.

        Calls of one kernel whose loops and buffers are split alike have the same; repeated layers make many of them.
        """
        binding = self._binding(operand)
        marks = tuple(self.owner.chains[binding.buffer].marks)
        asked = self._form, operand, index, (self.shapes[operand], marks, binding.offset, binding.factors)
        found = self.owner.indices.get(asked)
        if found is None:
            found = self.owner.indices[asked] = self._index(operand, index)
        return found

    def _index(self, operand: int, index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        binding = self._binding(operand)
        shape = self.owner.chains[binding.buffer].shape
        result = [Affine(())] * len(shape)
        offset = binding.offset
        sure = not self.bounds(operand, index)
        for position, factors in zip(index, binding.factors, strict=True):
            factors = tuple(f for f in factors if f[0] > 1)
            if not position.terms and sure:
                offset += offset_at(factors, position.const)
                continue
            for place, stride in self._steps(operand, position, factors):
                digit, count = self._digit(operand, stride)
                result[digit] = result[digit] + place * count
        result = [a + n for a, n in zip(result, reversed(digits(offset, shape)), strict=True)]
        for number, (a, extent) in enumerate(zip(result, reversed(shape), strict=True)):
            low, high = a.bounds(self.extents)
            if sure and (low < 0 or high >= extent):
                raise self._joined(operand, number)
        return tuple(reversed(result))

    def row(self, operand: int, index: tuple[Affine, ...], dim: int, row: Expr) -> tuple[Affine, RowPlace]:
        """The address of the first row of ``operand`` along ``dim`` at ``index``, and the distance of ``row``."""
        factors = tuple(f for f in self._binding(operand).factors[dim] if f[0] > 1)
        return self._address(operand, index, dim), RowPlace(self.expression(row), factors or ((1, 0),))

    def _lies_apart(self, access: _RowAccess) -> bool:
        """True if rows are touched whose elements lie apart, often enough for a copy to pay."""
        operand, index, dim, named_by = access
        shape, binding, last = self.shapes[operand], self._binding(operand), len(index) - 1
        name = plain(index[last])
        if last == dim or name is None or name in named_by or self.nest.extents[name] < shape[last]:
            return False
        stretch = 1
        for extent, stride in reversed(binding.factors[last]):
            stretch *= extent if stride == stretch or extent == 1 else 1
        if stretch == shape[last] or stretch * self.types[operand].bytes >= MIN_STRETCH_BYTES:
            return False
        return math.prod(self.nest.extents.values()) >= MIN_USES * math.prod(shape)

    def _address(self, operand: int, index: tuple[Affine, ...], dim: int) -> Affine:
        binding = self._binding(operand)
        address = affine(binding.offset)
        for number, (position, factors) in enumerate(zip(index, binding.factors, strict=True)):
            factors = tuple(f for f in factors if f[0] > 1)
            if number == dim or not factors:
                continue
            name = plain(position)
            if not position.terms:
                address = address + offset_at(factors, position.const)
            elif len(factors) == 1:
                address = address + position.substitute(self.whole) * factors[0][1]
            elif name and self.nest.extents[name] == math.prod(extent for extent, _ in factors):
                for place, stride in self._split_steps(operand, self.parts[name], factors):
                    address = address + place * stride
            else:
                raise _CannotIndexError(self.call, operand)
        return address

    def _digit(self, operand: int, stride: int) -> tuple[int, int]:
        """The digit of the operand's buffer in which ``stride`` moves, and by how much."""
        chain = self.owner.chains[self._binding(operand).buffer]
        digit = chain.digit_of(abs(stride))
        if stride % chain.marks[digit]:
            raise self._joined(operand, digit - 1)
        return digit, stride // chain.marks[digit]

    def _joined(self, operand: int, digit: int) -> _CannotIndexError:
        """Error for an index that needs ``digit`` of the operand's buffer and the next one to be one."""
        buffer = self._binding(operand).buffer
        marks = self.owner.chains[buffer].marks
        first = max(0, min(digit, len(marks) - 3))
        return _CannotIndexError(self.call, operand, buffer, (marks[first], marks[min(first + 2, len(marks) - 1)]))

    def _steps(self, operand: int, position: Affine, factors: Modes) -> list[tuple[Affine, int]]:
        """``position`` over ``factors`` as terms (index, stride)."""
        dim = plain(position)
        size = math.prod(extent for extent, _ in factors)
        if dim and self.nest.extents[dim] == size:
            return self._split_steps(operand, self.parts[dim], factors)
        if len(factors) > 1:
            raise _CannotIndexError(self.call, operand)
        if not factors:
            return []
        extent, stride = factors[0]
        inside = self.owner.chains[self._binding(operand).buffer].between(abs(stride), abs(stride) * extent)
        if inside:
            raise _CannotIndexError(self.call, operand)
        return [(position.substitute(self.whole), stride)] if stride else []

    def _split_steps(self, operand: int, parts: list[tuple[str, int, int]], factors: Modes) -> list[tuple[Affine, int]]:
        steps = []
        for (extent, stride), radix in reversed(_with_radix(factors)):
            inside = [p for p in parts if radix <= p[2] < radix * extent]
            if math.prod(p[1] for p in inside) != extent or any(p[2] % radix for p in inside):
                raise _CannotIndexError(self.call, operand)
            steps += [(affine(name), stride * (part // radix)) for name, _, part in inside if stride]
        return steps

    def expression(self, expression: Expr) -> Expr:
        """``expression`` over spaces and split dims."""

        def change(part: Expr) -> Expr | None:
            match part:
                case Load():
                    bounds = self.bounds(part.operand, part.index)
                    return Ref(self.space(part.operand), self.index(part.operand, part.index), part.fill, bounds)
                case RowLoad():
                    address, place = self.row(part.operand, part.index, part.dim, part.row)
                    access = ElementAccess(self.space(part.operand), self.types[part.operand], address)
                    return RowFetch(access, place, part.fill)
                case Index():
                    return Index(part.affine.substitute(self.whole))
                case Random():
                    return Hash(self._seed(part.seed), part.modifier, part.index.substitute(self.whole))
            return None

        return rewrite(expression, change)

    def _seed(self, operand: int) -> ElementAccess:
        return ElementAccess(self.space(operand), u32, affine(const=self._binding(operand).offset))

    def _is_seed(self, operand: int) -> bool:
        """True if the two numbers of a seed lie side by side."""
        return self._binding(operand).factors[0][-1] == (2, 1)
