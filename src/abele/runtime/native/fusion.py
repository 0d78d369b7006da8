"""Fusion: which steps host kernels carry out together, and which variables need storage of their own then.

A *run* is a stretch of straight-line code whose steps all have a meaning as kernels over strided arrays: library calls
with a kernel, copies between views, streams. Control, vertices by hand and views without strided form end a run.
Within one, order and storage are the planner's business; at its ends, memory is as if the steps had run one by one.

That leaves values which nobody outside can see. A variable lives only inside the kernels if one run alone touches it
(another run, or a vertex, would look into memory), if no element of it is read there before it is written (it would
carry a value from round to round), and if each of its values is read again later in the run (the last value of a
variable that nobody reads is a result, which the host may ask for). Each condition is decided by element sets or by
position, never by names, and whatever is not known to be invisible is stored.

Example: of y = 2 · (a + b) as two calls, the sum lives only inside the kernels: the run alone touches it, writes it
first, and reads it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from abele.arrays import Int64
from abele.graph import (
    Call,
    Copy,
    End,
    Execute,
    Function,
    HostLoop,
    HostOrder,
    LibraryCall,
    Program,
    StashCopy,
    Steps,
    Stream,
    Tensor,
    Variable,
    WriteUndef,
    walk,
)
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.effects import EffectsOf
from abele.runtime.native.stored_order import Order, stored_orders

# Finding a strided form again for views that lost theirs.
#
# A reshape may cut across the factors of a dimension: 200 elements that lie as 25 groups of 8, seen as 8 x 25. Such a
# view only has a list of addresses. Joined with its neighbours, the dimension is strided again (here: 200 = 25 x 8).
#
# Joins of neighbouring dimensions are tried, fewest first, until the table of addresses is a sum of one term per
# dimension and each term is nested strides. The first line of the table along each dimension gives the terms; that
# their sum is the whole table is then checked element by element, so a wrong guess cannot pass. With up to six
# dimensions there are at most 32 joins.

Factors = tuple[tuple[int, int], ...]

_MOST_DIMS = 6


@dataclass(frozen=True, slots=True)
class Regrouped:
    """A view with some neighbouring dimensions joined, as one strided block.

    Attributes:
        variable: Its storage.
        offset: Element of the variable at which it begins.
        shape: Extents of the joined dimensions.
        factors: Extents and strides of each, outermost first.
    """

    variable: Variable
    offset: int
    shape: tuple[int, ...]
    factors: tuple[Factors, ...]


def regrouped(tensor: Tensor) -> Regrouped | None:
    """A view as one strided block of fewer dimensions, or None when it is none; most dimensions first."""
    if len(tensor.variables) != 1 or not 0 < tensor.ndim <= _MOST_DIMS:
        return None
    (variable,) = tensor.variables
    table = tensor.addresses() - variable.base
    offset = int(table.reshape(-1)[0])
    for shape in _joined_shapes(tensor.shape):
        factors = _separated(table.reshape(shape) - offset)
        if factors is not None:
            return Regrouped(variable, offset, shape, factors)
    return None


def _joined_shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Shapes with neighbouring dimensions joined, those with most dimensions first."""
    level = {shape}
    while level:
        yield from sorted(level)
        # One more join on each level; a set, since several orders of joins give the same shape.
        level = {(*s[:d], s[d] * s[d + 1], *s[d + 2 :]) for s in level for d in range(len(s) - 1)}


def _separated(table: Int64) -> tuple[Factors, ...] | None:
    """Factors of every dimension, if the offset of an element is a sum of one strided term per dimension."""
    lines = [table[tuple(slice(None) if e == d else 0 for e in range(table.ndim))] for d in range(table.ndim)]
    factors = [_line_factors(line) for line in lines]
    if any(f is None for f in factors):
        return None
    total = sum(line.reshape((-1,) + (1,) * (table.ndim - d - 1)) for d, line in enumerate(lines))
    return tuple(f for f in factors if f is not None) if np.array_equal(total, table) else None


def _line_factors(line: Int64) -> Factors | None:
    """Extents and strides that list a line of offsets, outermost first."""
    found: list[tuple[int, int]] = []
    while len(line) > 1:
        steps = np.diff(line)
        # The first change of step ends the innermost factor; every other row must then look like the first.
        breaks = np.flatnonzero(steps != steps[0])
        extent = int(breaks[0]) + 1 if len(breaks) else len(line)
        if len(line) % extent:
            return None
        rows = line.reshape(-1, extent)
        if (rows - rows[:, :1] != rows[0] - rows[0, 0]).any():
            return None
        found.append((extent, int(steps[0])))
        line = rows[:, 0]
    return tuple(reversed(found)) or ((1, 0),)


Run = tuple[Program, ...]
"""Steps that follow each other and that host kernels can carry out: library calls, and copies between them."""

_OUTSIDE: Run = ()
_MOST_BLOCKS = 16
MOST_PARTS = 256
"""Parts of an operand that are copied one by one: each is a call to plan, which is less than to run vertices."""
_MANY_ELEMENTS = 1 << 16
"""Elements whose rearrangement is worth the time to compile a kernel, some 30 ms."""


Replaced = Callable[[Steps, Program], None]
"""Hears of a sequence that the host's own steps stand in for, and of the last of those."""


def flattened(steps: Steps, replaced: Replaced | None = None, *, stashes: bool = True) -> Iterator[Program]:
    """The steps of a sequence with those of sequences inside it, but for declarations that do nothing.

    Args:
        steps: The sequence.
        replaced: Hears of each sequence inside for which the host has others, all of which kernels can carry out: these
            come in its place, and join the run around them. Without it, and otherwise, such sequences stay whole.
        stashes: False to leave sequences whole for which the host needs stashes.
    """
    for step in steps:
        if not isinstance(step, Steps):
            if not isinstance(step, WriteUndef):
                yield step
        elif step.host_body is None:
            yield from flattened(step, replaced, stashes=stashes)
        elif (
            replaced is not None
            and (stashes or not uses_stashes(step.host_body))
            and (inside := tuple(flattened(step.host_body)))
            and all(map(is_fusible, inside))
        ):
            replaced(step, inside[-1])
            yield from inside
        else:
            yield step


def _unheard(_steps: Steps, _last: Program) -> None:
    """Of what is replaced nobody needs to know."""


def split_runs(steps: Sequence[Program]) -> Iterator[Program | Run]:
    """Steps in order, those that belong to a run taken together."""
    for fits, group in groupby(steps, is_fusible):
        members = tuple(group)
        # Plain copies alone gain nothing from a kernel, unless elements are rearranged one by one.
        if fits and any(isinstance(s, LibraryCall | StashCopy) or _is_rearrangement(s) for s in members):
            yield members
        else:
            yield from members


def is_fusible(step: Program) -> bool:
    """True if a host kernel can replace a step: every operand is a few strided blocks, or one when regrouped."""
    match step:
        case LibraryCall():
            return step.kernel is not None and all(map(_is_operand, (*step.inputs, *step.outputs)))
        case Copy(source=Tensor(), destination=Tensor()):
            source, destination = matched(step)
            return _is_operand(source) and _is_operand(destination) and not source.overlaps(destination)
        case (
            Copy(source=Stream(), destination=Tensor() as tensor)
            | Copy(source=Tensor() as tensor, destination=Stream())
        ):
            return _is_bindable(tensor)
        case StashCopy():
            return _is_bindable(step.tensor)
        case _:
            return False


def uses_stashes(host_body: Steps) -> bool:
    """True if a host's steps keep values in stashes."""
    return any(isinstance(step, StashCopy) for step in host_body)


def has_kernels(host_body: Steps) -> bool:
    """True if every library call of a host's steps, and all that is in its loops, can run as kernels.

    Operands that no kernel can be bound to, such as a view of very many parts, leave the work to vertices.
    """
    return all(
        all(map(is_fusible, flattened(step.body))) if isinstance(step, HostLoop) else is_fusible(step)
        for step in walk(host_body)
        if isinstance(step, HostLoop | LibraryCall)
    )


def _is_rearrangement(step: Program) -> bool:
    """True if a fusible step copies many elements one by one: a host kernel needs no list of them."""
    if not (isinstance(step, Copy) and isinstance(step.source, Tensor) and isinstance(step.destination, Tensor)):
        return False
    return step.source.size >= _MANY_ELEMENTS and any(_is_scattered(side) for side in matched(step))


def _is_scattered(tensor: Tensor) -> bool:
    """True if neighbours in a view of strided blocks are apart in its variables."""
    return any(next((f[-1][-1] for f in reversed(b.factors) if f), 1) != 1 for b in tensor.blocks or ())


def _is_operand(tensor: Tensor) -> bool:
    """True if an operand is strided, or few enough strided parts to be copied one by one."""
    parts = tensor.content.blocks
    if parts is not None and 0 < len(parts) <= MOST_PARTS:
        return tensor.size > 0 and all(b.variable.dtype == tensor.dtype for b in parts)
    if tensor.size == 0:
        return False
    found = regrouped(tensor)
    return found is not None and found.variable.dtype == tensor.dtype


def _is_bindable(tensor: Tensor) -> bool:
    blocks = tensor.blocks
    return (
        blocks is not None
        and 0 < len(blocks) <= _MOST_BLOCKS
        and all(b.variable.dtype == tensor.dtype for b in blocks)
        and tensor.size > 0
    )


def matched(copy: Copy) -> tuple[Tensor, Tensor]:
    """Source and destination of a copy on the device in one shape: elements go in flattened order."""
    source, destination = copy.source, copy.destination
    assert isinstance(source, Tensor)
    assert isinstance(destination, Tensor)
    if source.shape == destination.shape:
        return source, destination
    reshaped = source.reshape(destination.shape)
    if reshaped.blocks is not None:
        return reshaped, destination
    return source, destination.reshape(source.shape)


def operands(step: Program) -> tuple[tuple[End, ...], tuple[End, ...]]:
    """Operands that a fusible step reads and writes."""
    if isinstance(step, LibraryCall):
        return step.inputs, step.outputs
    if isinstance(step, StashCopy):
        # The stash is nobody else's; it is not among the operands, so that it has storage.
        return ((step.tensor,), ()) if step.saves else ((), (step.tensor,))
    assert isinstance(step, Copy)
    return (step.source,), (step.destination,)


class Storage:
    """Variables that must be stored as the graph says, and variables inside one run only.

    A variable needs no storage when a single run touches it, writes it before it reads it, and reads its last value:
        one that nobody reads is a result. Constants, variables with initial contents and those that the host keeps are
        stored.

    Args:
        programs: All programs of the engine.
        effects: Elements that steps touch.
        arena: Tells the variables of a set of elements.
        keep: Variables that the host wants to read.
        may_place: True if the floating-point behaviour may ask for vertices in place of host kernels.
        watched: True if something looks at memory while programs run.
        stashes: True if the host has the memory for stashes.

    Attributes:
        orders: Variables that are stored with their dims in another order, as rows are taken of them.
    """

    def __init__(
        self,
        programs: Iterable[Program],
        effects: EffectsOf,
        arena: Arena,
        keep: Iterable[Variable],
        *,
        may_place: bool = False,
        watched: bool = False,
        stashes: bool = True,
    ) -> None:
        self._effects = effects
        self._arena = arena
        self._stored = set(keep)
        self._may_place = may_place
        self._stashes = stashes
        # Variables to which host bodies give another order: those of the steps being visited; all that some host body
        # writes; and those that others see as well.
        self._ordered: frozenset[Variable] = frozenset()
        self._all_ordered: set[Variable] = set()
        self._seen_elsewhere = set(self._stored)
        self._user: dict[Variable, Run] = {}
        self._functions: set[Function] = set()
        # Steps of runs, and variables that something else touches.
        self._in_runs: dict[Program, None] = {}
        self._fixed: set[Variable] = set()
        self._exposed: set[Variable] = set()
        for program in programs:
            self._visit(program)
        may_order = not (may_place or watched)
        self.orders: dict[Variable, Order] = self._found_orders() if may_order else {}

    def flattened(self, steps: Steps, replaced: Replaced = _unheard) -> tuple[Program, ...]:
        """The steps of a sequence as they run: kernels take the place of others where nothing can forbid it."""
        return tuple(flattened(steps, None if self._may_place else replaced, stashes=self._stashes))

    def stands_in(self, host_body: Steps) -> bool:
        """True if a host's steps run in place of others, where the behaviour allows it."""
        return has_kernels(host_body) and (self._stashes or not uses_stashes(host_body))

    def is_stored(self, variable: Variable) -> bool:
        """True if a variable has storage of its own, valid before and after each run."""
        return (
            variable in self._stored
            or variable.is_constant
            or variable.initial is not None
            or self._user.get(variable, _OUTSIDE) is _OUTSIDE
        )

    @property
    def fused(self) -> frozenset[Variable]:
        """The variables without storage."""
        return frozenset(v for v in self._user if not self.is_stored(v))

    @property
    def reordered(self) -> frozenset[Variable]:
        """Variables whose elements always have the order of host bodies."""
        return frozenset(filter(self.keeps_host_order, self._all_ordered))

    def keeps_host_order(self, variable: Variable) -> bool:
        """True if a variable always has the order of host bodies: no other step uses it."""
        seen = variable in self._seen_elsewhere or variable.is_constant or variable.initial is not None
        return variable in self._all_ordered and not seen

    def _found_orders(self) -> dict[Variable, Order]:
        known = {v for v in self._exposed if v.is_constant}
        return stored_orders(self._in_runs, self._fixed | self._all_ordered | known, self._exposed)

    def _visit(self, step: Program) -> None:
        match step:
            case Steps(host_body=Steps() as host_body):
                outer, self._ordered = self._ordered, self._ordered | self._orders_of(host_body)
                self._visit_parts(self.flattened(step))
                self._visit(host_body)
                self._ordered = outer
            case Steps():
                self._visit_parts(self.flattened(step))
            case LibraryCall():
                self._visit_parts((step,))
            case Call():
                self._visit_all((*step.copies_in, *step.copies_out))
                if step.function not in self._functions:
                    self._functions.add(step.function)
                    self._visit(step.function.body)
            case Execute():
                # Vertices by hand look into memory, wherever their compute set runs.
                self._touch_outside(step)
            case _:
                if isinstance(step, HostLoop):
                    self._fixed.update(step.strides)
                self._use((v for t in (*step.reads(), *step.writes()) for v in t.variables), _OUTSIDE)
                self._visit_all(step.children())

    def _orders_of(self, host_body: Steps) -> frozenset[Variable]:
        """Variables to which a host body gives another order, if it is sure to run."""
        if self._may_place or not self.stands_in(host_body):
            return frozenset()
        found = Counter(s.variable for s in walk(host_body) if isinstance(s, HostOrder))
        # Only one that writes all of a variable changes its order afterwards alone: what else would have written it?
        self._all_ordered.update(v for v, times in found.items() if times == 1)
        return frozenset(found)

    def _visit_all(self, steps: Iterable[Program]) -> None:
        for step in steps:
            self._visit(step)

    def _visit_parts(self, steps: Sequence[Program]) -> None:
        for part in split_runs(steps):
            if isinstance(part, tuple):
                self._visit_run(part)
            elif isinstance(part, LibraryCall):
                self._fixed.update(_variables_of((*part.inputs, *part.outputs)))
                self._visit(part.body)
            else:
                self._visit(part)

    def _touch_outside(self, step: Program) -> None:
        self._use(self._arena.variables_in(self._effects(step).touched), _OUTSIDE)

    def _use(self, variables: Iterable[Variable], run: Run) -> None:
        for variable in variables:
            if variable not in self._ordered:
                self._seen_elsewhere.add(variable)
            if run is _OUTSIDE:
                self._fixed.add(variable)
            # Runs are compared by identity: equal steps elsewhere are another run.
            if self._user.setdefault(variable, run) is not run:
                self._user[variable] = _OUTSIDE  # a second user, of whatever kind

    def _visit_run(self, run: Run) -> None:
        # Exposed: read before they are written, so that the value comes from before the run.
        exposed = self._arena.variables_in(self._effects.sequence(run).exposed)
        self._stored.update(exposed)
        self._exposed.update(exposed)
        self._in_runs.update(dict.fromkeys(run))
        read_later: set[Variable] = set()  # backwards: what some step after this one reads
        for step in reversed(run):
            inputs, outputs = (_variables_of(side) for side in operands(step))
            self._stored.update(v for v in outputs if v not in read_later)
            read_later.update(inputs)
            self._use((*inputs, *outputs), run)


def _variables_of(side: Iterable[End]) -> list[Variable]:
    return [v for t in side if isinstance(t, Tensor) for v in t.variables]
