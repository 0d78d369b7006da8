"""``join-casts``: a conversion of type is part of the op before it, or of those behind it.

Vertices widen what they load and round what they store, so a cast beside such an op needs no step and no tensor of its
own: ``map(cast(x: f16): f32, y: f32)`` reads x, ``cast(map(…): f32): f16`` writes f16. Two rules, both through views:

- A cast that loses nothing goes into its readers if all of them convert operands (:meth:`OpLowering.widens`): x is less
  to keep than its f32. One other reader, such as a product, needs the tensor anyway. Logits f16[512, 30000] under a
  loss in f32 are 31 MB, without 61 MB beside them.
- A cast that rounds goes into the op before if nothing else reads its result (:meth:`OpLowering.rounds`).

Elements are computed in f32 and rounded once either way. A function whose result is widened for sums and updates alone
gives the narrow one: gradients of weights that autocast converts are added and applied as they are made, in f16.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import ClassVar

from abele.expr import Cast, Expr, derivative
from abele.network.ir import BlockBuilder, FrozenDict, Network, NetworkFunction, NetworkOp, OpBlock, Value
from abele.network.passes.base import BlockPass, BlockRewriting, replaced
from abele.network.passes.recompute import VIEWS
from abele.network.registry import rule_of
from abele.numerics import ElementType, bool_, f16, f32

_VIEWS = VIEWS - {"concat", "bitcast"}
"""Kinds of view of one operand, which may have any type."""


@dataclass(frozen=True)
class JoinCasts(BlockPass):
    """Let ops convert what they read and what they write.

    Attributes:
        anchored: Names of parameters whose gradients the host reads, in the parameters' types.
    """

    name: ClassVar[str] = "join-casts"
    anchored: tuple[str, ...] = ()

    def run(self, net: Network) -> Network:
        """The network with fewer casts; ``net`` itself without any."""
        if not any(op.kind == "cast" for op in net.walk()):
            return net
        # Gradients that updates alone read may have another type.
        gradients = {v for p, v in net.gradients.items() if p.name in self.anchored}
        leaving = gradients.union(replace(net, gradients=FrozenDict()).leaves)
        ops = tuple(_narrow_results(net.ops, leaving))
        made, values = BlockRewriting(self).top(replace(net, ops=ops), leaving)
        return replaced(net, made, values)

    def rewrite(
        self, ops: Sequence[NetworkOp], results: Iterable[Value], into: BlockBuilder, values: dict[Value, Value]
    ) -> None:
        """Append ops with other types, without the casts that these spare."""
        types = _Uses(ops, results).types()
        for op in ops:
            read = tuple(values[v] for v in op.inputs)
            if op.kind == "cast" and read[0].dtype == types.get(op.output, op.output.dtype):
                values[op.output] = read[0]
                continue
            made = tuple(replace(v, dtype=types[v]) if v in types else v for v in op.outputs)
            changed = read != op.inputs or made != op.outputs
            into.append(replace(op, inputs=read, outputs=made, attrs=_converting(op, read)) if changed else op)
            values |= zip(op.outputs, made, strict=True)


class _Uses:
    """The ops of a block by what they make and read; ``results`` are what leaves it."""

    def __init__(self, ops: Sequence[NetworkOp], results: Iterable[Value]) -> None:
        self._ops = ops
        self._results = frozenset(results)
        self._maker = {v: op for op in ops for v in op.outputs}
        self._readers: dict[Value, list[tuple[NetworkOp, int]]] = {}
        for op in ops:
            for operand, value in enumerate(op.inputs):
                self._readers.setdefault(value, []).append((op, operand))

    def types(self) -> dict[Value, ElementType]:
        """Other types of values, with which casts are needless."""
        found: dict[Value, ElementType] = {}
        for op in self._ops:
            if op.kind == "cast":
                source, target = op.inputs[0].dtype, op.output.dtype
                if keeps_all(source, target):
                    shown = self.widened(op.output, source)
                elif target.is_float and source == f32 and not target.is_quarter:
                    shown = self._rounded(op)
                    source = target
                else:
                    continue
                found |= dict.fromkeys(shown, source)
        return found

    def widened(self, value: Value, source: ElementType) -> list[Value]:
        """``value`` and its views, if all that reads them converts operands of type ``source``; otherwise nothing."""
        shown = [value]
        for seen in shown:  # It grows.
            if seen in self._results or seen not in self._readers:
                return []
            for op, operand in self._readers[seen]:
                if op.kind in _VIEWS:
                    shown.append(op.output)
                elif not rule_of(op).widens(op, operand, source):
                    return []
        return shown

    def _rounded(self, op: NetworkOp) -> list[Value]:
        """The result that a cast rounds, with views on the way to it, if nothing else reads them."""
        shown: list[Value] = []
        while len(self._readers[op.inputs[0]]) == 1 and op.inputs[0] not in self._results:
            shown.append(op.inputs[0])
            maker = self._maker.get(op.inputs[0])
            if maker is None or maker.output is not op.inputs[0]:
                return []
            if maker.kind not in _VIEWS:
                return shown if rule_of(maker).rounds(maker) else []
            op = maker
        return []


def keeps_all(source: ElementType, target: ElementType) -> bool:
    """True if the float type ``target``, f16 or f32, has every number of ``source``."""
    if target not in (f16, f32) or source.is_quarter:
        return False
    if source.is_float:
        return target == f32 and source != f32
    return source == bool_ or source.bits <= target.bits // 2


def _converting(op: NetworkOp, read: Sequence[Value]) -> FrozenDict[str, object]:
    """The attributes of an op that reads operands of other types: expressions convert them."""
    if op.kind != "map":
        return op.attrs

    def operand(number: int) -> Expr:
        loaded, before = derivative.arg(number), op.inputs[number].dtype
        return loaded if read[number].dtype == before else Cast(before, loaded)

    return FrozenDict({**op.attrs, "expr": derivative.substitute(op.attrs["expr"], operand)})


def _narrow_results(ops: Sequence[NetworkOp], leaving: Set[Value]) -> Iterator[NetworkOp]:
    """The ops, with functions that give what they widened, where all callers' readers convert it themselves.

    A cast behind the call takes the place of that in the function; it is joined to its readers then.
    """
    uses = _Uses(ops, leaving)
    calls: dict[NetworkFunction, list[NetworkOp]] = {}
    for op in (inner for outer in ops for inner in (outer, *(i for b in outer.blocks for i in b.walk()))):
        if op.function is not None:
            calls.setdefault(op.function, []).append(op)
    outermost = set(ops)
    narrow: dict[NetworkFunction, tuple[NetworkFunction, dict[int, Value]]] = {}
    for function, equal in calls.items():
        casts = _widened_results(function.body) if outermost.issuperset(equal) else {}
        sources = {n: v for n, v in casts.items() if all(uses.widened(c.outputs[n], v.dtype) for c in equal)}
        if sources:
            results = tuple(sources.get(n, v) for n, v in enumerate(function.body.results))
            spared = set(function.body.results).difference(results)
            body = tuple(op for op in function.body.ops if spared.isdisjoint(op.outputs))
            narrow[function] = replace(function, body=replace(function.body, ops=body, results=results)), sources
    for op in ops:
        if op.function not in narrow:
            yield op
            continue
        function, sources = narrow[op.function]
        given = {n: replace(op.outputs[n], dtype=v.dtype) for n, v in sources.items()}
        outputs = tuple(given.get(n, v) for n, v in enumerate(op.outputs))
        yield replace(op, outputs=outputs, attrs=FrozenDict({**op.attrs, "function": function}))
        for number, value in given.items():
            yield NetworkOp("cast", (value,), (op.outputs[number],), FrozenDict(), op.debug)


def _widened_results(block: OpBlock) -> dict[int, Value]:
    """Results of a block that are casts of narrower values, by number; with these values."""
    maker = {v: op for op in block.ops for v in op.outputs}
    read = {v for op in block.ops for v in op.inputs}
    found = {n: maker[v].inputs[0] for n, v in enumerate(block.results) if v in maker and maker[v].kind == "cast"}
    return {
        n: v
        for n, v in found.items()
        if v in maker and keeps_all(v.dtype, block.results[n].dtype) and block.results[n] not in read
    }
