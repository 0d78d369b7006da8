"""Floating-point exceptions: supersteps that make a NaN or an infinity from finite numbers.

An element that is NaN after a superstep, in a vertex that read no NaN, comes from an invalid operation. One that is
infinite, in a vertex that read no infinity, comes from a division by zero or an overflow if the processor's flags say
that one happened; the flags also tell the two apart. A vertex that stores comparisons of floats, as ``x < y`` makes it,
and read a NaN, made an invalid operation too; ``x != x``, which asks for NaN, is none.

Limits: what a vertex computes and does not store goes unseen, as do integers. Code of selected branches may run whole
and raise flags, and some functions reach infinity without a flag. So an infinity that a codelet stores as a constant,
in a superstep that also divides by zero and throws the quotient away, counts as a division by zero; and ``log(0)``
does not. Vertices in plain Python have no flags: there every new infinity counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.codelet.tree import (
    Assign,
    CastExpr,
    Compare,
    ConstExpr,
    Element,
    Local,
    Scalar,
    StoreStmt,
    VertexExpr,
    walk,
)
from abele.codelet.vertex import CodeletDef
from abele.codelet.written import WrittenCode
from abele.errors import ApplicationRuntimeError
from abele.graph import Execute
from abele.runtime.control.emitter import Emitter
from abele.runtime.control.leaf import Leaf, Phase
from abele.runtime.control.primitives import INFINITY, find_nonfinite, primitives
from abele.runtime.control.virtual_machine import Callbacks
from abele.runtime.memory.host_memory import address_of
from abele.runtime.supersteps.float_behaviour import CHECKS, DIVIDE_BY_ZERO, INVALID, OVERFLOW, Behaviour
from abele.runtime.supersteps.placed_groups import PlacedGroup

_NAN, _INFINITE = 1, 2
_FLAG_DIVIDE_BY_ZERO, _FLAG_OVERFLOW = 4, 8
_NAMES = {INVALID: "an invalid operation", DIVIDE_BY_ZERO: "a division by zero", OVERFLOW: "an overflow"}


class _Scan:
    """Findings in the rows of one field of all vertices of a group."""

    def __init__(self, vertex: Int64, address: Int64, size: Int64, type_name: str) -> None:
        self.vertex = vertex
        self.found = np.zeros(max(1, len(vertex)), dtype=np.uint8)
        tables = (address, size, self.found)
        args = tuple(address_of(t) for t in tables)
        code = find_nonfinite(type_name)
        self.leaf = Leaf("look for NaN and infinity", code, len(vertex), args, int(size.sum()), keep=(self, tables))

    def merge(self, into: npt.NDArray[np.uint8]) -> None:
        """Add the findings of each row to its vertex."""
        np.bitwise_or.at(into, self.vertex, self.found[: len(self.vertex)])


class _WatchedGroup:
    """One group: scans of its operands and of its results."""

    def __init__(self, placed: PlacedGroup) -> None:
        self.placed = placed
        self.reads: list[_Scan] = []
        self.writes: list[_Scan] = []
        self._compares = _stores_comparisons(placed.group.codelet)
        edges = [f for f in placed.group.codelet.fields if f.direction != "state"]
        for field, memory in zip(edges, placed.tables.memory, strict=True):
            if field.type.name not in INFINITY or not len(memory.vertex):
                continue
            table = memory.vertex, memory.address, memory.bytes, field.type.name
            if field.direction != "out":
                self.reads.append(_Scan(*table))
            if field.direction != "in":
                self.writes.append(_Scan(*table))

    def fresh(self) -> npt.NDArray[np.uint8]:
        """Flags of values that each vertex wrote and had not read, uint8[vertices]."""
        before, after = (np.zeros(self.placed.num, dtype=np.uint8) for _ in range(2))
        for scans, into in ((self.reads, before), (self.writes, after)):
            for scan in scans:
                scan.merge(into)
        # What a vertex has read it may pass on without being to blame; but NaN has no place in an order.
        after &= ~before
        if self._compares:
            after |= before & np.uint8(_NAN)
        return after


def _stores_comparisons(codelet: CodeletDef) -> bool:
    """True if a library vertex stores the result of comparing floats that it read."""
    if not isinstance(codelet.source, WrittenCode):
        return False
    statements = list(walk(codelet.source.tree.body))
    made = {s.name: s.value for s in statements if isinstance(s, Assign)}

    def plain(value: VertexExpr) -> VertexExpr:
        if isinstance(value, CastExpr):
            return plain(value.arg)
        return plain(made[value.name]) if isinstance(value, Local) and value.name in made else value

    stored = [plain(s.value) for s in statements if isinstance(s, StoreStmt)]
    return any(
        _is_comparison(v.op, plain(v.left), plain(v.right))
        for v in stored
        if isinstance(v, Compare) and v.left.type.kind == "float"
    )


def _is_comparison(op: str, left: VertexExpr, right: VertexExpr) -> bool:
    """False for tests of NaN, ``x != x``, or of truth, ``x != 0``, and for sums and other values made first."""
    asks = left is right or (op == "!=" and isinstance(right, ConstExpr) and right.value == 0)
    return not asks and all(isinstance(value, Element | Scalar | ConstExpr) for value in (left, right))


class FloatChecks:
    """Checks one superstep.

    Args:
        step: The superstep.
        behaviour: Exceptions that are on.
        callbacks: Callbacks that judge findings.
        num_threads: Host threads.
    """

    def __init__(self, step: Execute, behaviour: Behaviour, callbacks: Callbacks, num_threads: int) -> None:
        self._step = step
        self._behaviour = behaviour
        self._callbacks = callbacks
        self._flags: Int64 = np.zeros(num_threads, dtype=np.int64)
        self._groups: list[_WatchedGroup] = []
        self._has_flags = True

    def before(self, emitter: Emitter, groups: Sequence[PlacedGroup], *, native: bool) -> None:
        """Append the scan of the operands, before the vertices run.

        Args:
            emitter: Emitter of the code.
            groups: The vertices.
            native: True if they run as native code, whose flags mean something.
        """
        self._groups = [_WatchedGroup(placed) for placed in groups]
        self._has_flags = native
        scans = tuple(s.leaf for g in self._groups for s in g.reads if s.leaf.units)
        emitter.phase((*scans, *self._flag_leaves(primitives().clear_flags)))

    def after(self, emitter: Emitter) -> None:
        """Append the scan of the results and its judgement."""
        scans = tuple(s.leaf for g in self._groups for s in g.writes if s.leaf.units)
        emitter.expect_barrier()
        emitter.phase((*self._flag_leaves(primitives().read_flags), *scans))
        emitter.callback(self._callbacks.add(self._judge))

    def _flag_leaves(self, address: int) -> Phase:
        args = (address_of(self._flags),)
        return (Leaf("floating-point flags", address, len(self._flags), args, keep=self._flags),)

    def _judge(self) -> None:
        wanted = self._behaviour.present & CHECKS
        flags = int(np.bitwise_or.reduce(self._flags))
        for watched in self._groups:
            fresh = watched.fresh()
            if not fresh.any():
                continue
            for kind, vertices in self._kinds(fresh, flags):
                if kind & wanted:
                    raise self._error(kind, watched.placed, int(vertices[0]), len(vertices))

    def _kinds(self, fresh: npt.NDArray[np.uint8], flags: int) -> list[tuple[int, Int64]]:
        """Exceptions of the findings, each with the vertices that show it."""
        invalid, infinite = (np.flatnonzero(fresh & bit) for bit in (_NAN, _INFINITE))
        kinds = [(INVALID, invalid)]
        # Plain Python raises no flags: either exception may have been it.
        if not self._has_flags:
            flags = _FLAG_DIVIDE_BY_ZERO | _FLAG_OVERFLOW
        if flags & _FLAG_DIVIDE_BY_ZERO:
            kinds.append((DIVIDE_BY_ZERO, infinite))
        if flags & _FLAG_OVERFLOW:
            kinds.append((OVERFLOW, infinite))
        return [(kind, vertices) for kind, vertices in kinds if len(vertices)]

    def _error(self, kind: int, placed: PlacedGroup, vertex: int, count: int) -> ApplicationRuntimeError:
        group = placed.group
        replica, number = divmod(vertex, group.num)
        where = f"vertex {number} of {group.num} × {group.codelet.name} on tile {int(group.tile[number])}"
        if placed.replicas > 1:
            where += f" of replica {replica}"
        more = f" and {count - 1} more" if count > 1 else ""
        name = _NAMES[kind]
        if not self._has_flags and kind != INVALID:
            name = f"{_NAMES[DIVIDE_BY_ZERO]} or {_NAMES[OVERFLOW]}"
        return ApplicationRuntimeError(
            f"floating-point exception: {name} in compute set {placed.compute_set.name!r}",
            at=self._step.debug.location,
            because=f"{where}{more}\nmade at {group.origin_of(number).location}",
            remedy="SetFloatingPointBehaviour switches this exception off",
        )
