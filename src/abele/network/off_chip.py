"""Tables in streaming memory: state of which programs load and store single rows; it is never on the chip.

A table is a value [rows, …] like any other: ``load_row`` reads it, ``store_row`` makes a new version of it, and calls,
loops and branches hand it on. Which values are tables follows from these ops. A table has one history: a version is
read only until the next one is made. So the machine keeps one buffer, which all versions name, and copies none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from abele.errors import NetworkError
from abele.network.ir import NetworkOp, OpBlock, Value

LOAD, STORE = "load_row", "store_row"
"""Kinds of op on rows of tables."""

_ENTERED = frozenset({"call", "cond", "switch", "loop", "while"})
"""Kinds of op whose blocks take its last operands; those of others, such as own gradients, take other values."""


@dataclass(frozen=True)
class OffChipTables:
    """Values on their way through ops in order, as far as they may be tables.

    Attributes:
        origins: For each value that is one that entered, or a later version of it, that one.
        used: Those that entered and of which rows are loaded or stored: the tables.
        stored: Those of which rows are stored.
        old: Values of which rows were stored since.
    """

    origins: Mapping[Value, Value]
    used: frozenset[Value]
    stored: frozenset[Value]
    old: frozenset[Value]

    def __contains__(self, value: Value) -> bool:
        return self.origins.get(value) in self.used


@dataclass(frozen=True)
class _Operand:
    """Use of one operand by an op.

    Attributes:
        number: Its number.
        results: Numbers of the results that are it afterwards.
        is_used: True if rows of it are loaded or stored.
        is_stored: True if rows of it are stored.
    """

    number: int
    results: frozenset[int]
    is_used: bool = True
    is_stored: bool = False


def tables(ops: Iterable[NetworkOp], entering: Iterable[Value]) -> OffChipTables:
    """The tables among values that enter.

    Raises:
        NetworkError: Rows of a result, or of a version that another one followed.
    """
    origins = {v: v for v in entering}
    versions = dict.fromkeys(origins, 0)
    newest = dict(versions)
    used, stored = set[Value](), set[Value]()
    for op in ops:
        for operand in _operands(op):
            value = op.inputs[operand.number]
            origin = origins.get(value)
            if origin is None or (operand.is_used and versions[value] != newest[origin]):
                if not operand.is_used:
                    continue
                why = "is not kept from run to run" if origin is None else "has another row since"
                raise NetworkError(f"{op.kind} is of rows of {value}, which {why}")
            if operand.is_used:
                used.add(origin)
            version = versions[value]
            if operand.is_stored:
                stored.add(origin)
                version = newest[origin] = version + 1
            for made in (op.outputs[n] for n in operand.results):
                origins[made], versions[made] = origin, version
    old = frozenset(v for v, origin in origins.items() if versions[v] != newest[origin])
    return OffChipTables(origins, frozenset(used), frozenset(stored), old)


_FOUND: WeakKeyDictionary[OpBlock, OffChipTables] = WeakKeyDictionary()
"""Tables of blocks that are alive: each is asked for at every call of its function."""


def tables_of(block: OpBlock) -> OffChipTables:
    """The tables among the parameters of a block."""
    found = _FOUND.get(block)
    if found is None:
        found = _FOUND[block] = tables(block.ops, block.parameters)
    return found


def stores_rows(op: NetworkOp) -> bool:
    """True if an op stores rows of some of its operands."""
    return any(operand.is_stored for operand in _operands(op))


def handed_on(op: NetworkOp) -> Iterator[tuple[Value, Value]]:
    """Operands of an op, each with a result that shows its newest version if it is a table."""
    for operand in _operands(op):
        for result in operand.results:
            yield op.inputs[operand.number], op.outputs[result]


def _operands(op: NetworkOp) -> Iterator[_Operand]:
    """Uses of the operands of an op, as rows or in its blocks."""
    if op.kind in (LOAD, STORE):
        is_stored = op.kind == STORE
        yield _Operand(0, frozenset({0} if is_stored else ()), is_stored=is_stored)
        return
    if op.kind not in _ENTERED:
        return
    # A branch's first operand chooses; the body of a loop begins with the trip, its condition has no results.
    first = 1 if op.kind in ("cond", "switch") else 0
    results = op.blocks[-1:] if op.kind == "while" else op.blocks
    for number in range(first, len(op.inputs)):
        entered = [(tables_of(b), b.parameters[number - len(op.inputs)]) for b in op.blocks]
        leaving = [_leaving(block, block.parameters[number - len(op.inputs)]) for block in results]
        there = frozenset.intersection(*leaving)
        if op.kind in ("loop", "while"):
            there &= {number}
        is_used, is_stored = any(v in t.used for t, v in entered), any(v in t.stored for t, v in entered)
        yield _Operand(number, there, is_used, is_stored)


def _leaving(block: OpBlock, parameter: Value) -> frozenset[int]:
    """Numbers of the results of a block that are a parameter's newest version."""
    found = tables_of(block)
    return frozenset(n for n, v in enumerate(block.results) if found.origins.get(v) is parameter and v not in found.old)
