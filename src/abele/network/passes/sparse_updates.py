"""``sparse-updates``: steps of tables by sums of rows change the rows alone.

A step of SGD on a table of embeddings is written ``table − rate · gradient``, where the gradient has the rows that were
looked up, added up by number, and zeros elsewhere. The rows times −rate are added to the table where it lies: there is
no tensor of the gradient, and the other rows are not touched. Momenta and decays change every row, and stay as they
are. So do tables in f16, where a sum of small rows may count that one by one would be lost to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from abele.expr import Const, Expr, derivative
from abele.expr.nodes import Apply, Load
from abele.network.ir import Network, NetworkBuilder, NetworkOp, Value
from abele.network.ops import build
from abele.network.passes.base import Pass, reading, replaced
from abele.numerics import f32


@dataclass(frozen=True)
class SparseUpdates(Pass):
    """Add rows to a state itself, where its new contents are the state and a multiple of their sums by number."""

    name: ClassVar[str] = "sparse-updates"

    def run(self, net: Network) -> Network:
        """The network with updates of rows; ``net`` itself where there are none."""
        found = _found(net)
        if not found:
            return net
        into, gone = NetworkBuilder.of(net, ops=False), {step.sums for step in found.values()}
        values = {v: v for v in net.entries}
        for op in net.ops:
            with into.at(op.debug, stage=op.stage, place=op.place, hint=op.hint):
                if op in found:
                    values[op.output] = found[op].appended(into, op, values)
                elif op not in gone:
                    values |= zip(op.outputs, into.simplified(reading(op, values)), strict=True)
        return replaced(net, into.ops, values)


@dataclass(frozen=True)
class _TableStep:
    """New contents of a table: ``table + factor · sums``.

    Attributes:
        table: The state.
        sums: The op that adds rows up.
        factor: Over the operands of the map that makes the new contents.
    """

    table: Value
    sums: NetworkOp
    factor: Expr

    def appended(self, net: NetworkBuilder, op: NetworkOp, values: dict[Value, Value]) -> Value:
        """The table with rows added."""
        rows, index = (values[v] for v in self.sums.inputs)
        places, operands = dict[int, int](), [rows]
        for number in sorted(derivative.operands(self.factor)):
            places[number] = len(operands)
            operands.append(build.reshape(net, values[op.inputs[number]], (1,) * rows.ndim))
        factor = derivative.substitute(self.factor, lambda n: derivative.arg(places[n]))
        scaled = build.map_(net, derivative.arg(0) * factor, operands)
        return build.update_rows(net, values[self.table], scaled, index, "add")


def _found(net: Network) -> dict[NetworkOp, _TableStep]:
    """Steps of tables, by the ops that make their new contents."""
    made_by, readers = net.made_by(), dict[Value, list[NetworkOp]]()
    for reader in net.ops:
        for value in dict.fromkeys(reader.inputs):
            readers.setdefault(value, []).append(reader)
    leaves, found = list(net.leaves), dict[NetworkOp, _TableStep]()
    for table, new in net.updates.items():
        op = made_by.get(new)
        if op is None or op.kind != "map" or table not in op.inputs or new.type != table.type or table.dtype != f32:
            continue
        for value in op.inputs:
            sums = made_by.get(value)
            if sums is None or sums.kind != "add_rows" or value.shape != table.shape:
                continue
            factor = _factor(op.attrs["expr"], op.inputs.index(table), op.inputs.index(value))
            alone = readers[value] == [op] and value not in leaves and leaves.count(new) == 1
            if factor is not None and alone and all(op.inputs[n].size == 1 for n in derivative.operands(factor)):
                found[op] = _TableStep(table, sums, factor)
    return found


def _factor(expression: Expr, table: int, sums: int) -> Expr | None:
    """``f`` of an expression ``table + f · sums``; None for others."""
    match expression:
        case Apply(op="add", operands=(Load(operand=number), other)) if number == table:
            return _multiple(other, table, sums)
        case Apply(op="add", operands=(other, Load(operand=number))) if number == table:
            return _multiple(other, table, sums)
        case Apply(op="sub", operands=(Load(operand=number), other)) if number == table:
            found = _multiple(other, table, sums)
            return None if found is None else derivative.substitute(-found, derivative.arg)
    return None


def _multiple(expression: Expr, table: int, sums: int) -> Expr | None:
    """``f`` of an expression ``f · sums``; None for others."""
    match expression:
        case Load(operand=number):
            return Const(1.0) if number == sums else None
        case Apply(op="neg", operands=(inner,)):
            found = _multiple(inner, table, sums)
            return None if found is None else derivative.substitute(-found, derivative.arg)
        case Apply(op="mul", operands=(first, second)):
            for one, other in ((first, second), (second, first)):
                found = _multiple(one, table, sums)
                if found is not None and not {table, sums} & derivative.operands(other):
                    return derivative.substitute(found * other, derivative.arg)
        case Apply(op="div", operands=(first, second)):
            found = _multiple(first, table, sums)
            if found is not None and not {table, sums} & derivative.operands(second):
                return derivative.substitute(found / second, derivative.arg)
    return None
