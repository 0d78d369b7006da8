"""``spread``: what an op reads is on its IPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from abele.graph.debug import DebugRecord
from abele.network.invariant_values import fixed_values
from abele.network.ir import (
    FrozenDict,
    Network,
    NetworkFunction,
    NetworkOp,
    OpBlock,
    Stage,
    Value,
    first_read,
    is_spread,
)
from abele.network.off_chip import OffChipTables, tables, tables_of
from abele.network.passes.base import Pass
from abele.network.passes.place import substituted


@dataclass(frozen=True)
class InsertTransfers(Pass):
    """Let transfers bring values to the other IPUs that read them, once to each.

    In a pipeline a transfer belongs to the stage after the one that makes the value. The seed is not sent there: each
    stage has its own, which counts the micro-batches that the stage has seen. Nor are tables in streaming memory, which
    every IPU reaches.

    Spread blocks have transfers of their own. What enters one is on the IPU that first reads it; a value that a loop
    carries stays on the IPU on which it is before the first trip, and branches leave their results on the IPUs of the
    first of them.
    """

    name: ClassVar[str] = "spread"

    def run(self, net: Network) -> Network:
        """The network with transfers; one on a single IPU stays as it is."""
        if net.num_ipus == 1:
            return net
        pipelined, fixed = net.num_stages > 1, fixed_values(net)

        def stage(value: Value, at_the_end: bool) -> int:
            return value.place.pipeline_stage + (pipelined and not at_the_end and value not in fixed)

        stays = frozenset() if net.seed is None or not pipelined else frozenset({net.seed})
        placing = _Placing(_Functions(), tables(net.ops, net.buffers), stays, stage)
        placing.run(net.ops)
        if placing.moved:
            net = substituted(net, placing.moved)
        return replace(net, ops=tuple(placing.ops))


@dataclass
class _Functions:
    """Functions with transfers in them; each is looked at once."""

    _made: dict[NetworkFunction, NetworkFunction] = field(default_factory=dict)

    def spread(self, function: NetworkFunction) -> NetworkFunction:
        """A spread function with transfers, and its parameters where they are first read."""
        if function not in self._made:
            body = function.body
            places = [first_read(body, p) or p.place for p in body.parameters]
            moved = [replace(p, place=place) for p, place in zip(body.parameters, places, strict=True)]
            made = self.block(body, moved)
            self._made[function] = NetworkFunction(function.name, made, function.num_random)
        return self._made[function]

    def block(
        self, block: OpBlock, parameters: Sequence[Value], wanted: Callable[[int], int | None] = lambda number: None
    ) -> OpBlock:
        """A spread block with transfers.

        Args:
            block: The block.
            parameters: Its parameters, on their IPUs.
            wanted: IPU of the result of a number; None for where it is made.
        """
        own = tables_of(block)
        named = {p: new for p, new in zip(block.parameters, parameters, strict=True) if new is not p}
        placing = _Placing(self, own, frozenset(), lambda value, at_the_end: value.place.pipeline_stage, named)
        placing.run(block.ops)
        results = []
        for number, value in enumerate(block.results):
            ipu = wanted(number)
            made = placing.moved.get(value, value)
            results.append(made if ipu is None or value in own else placing.on(made, ipu, None))
        return OpBlock(tuple(parameters), tuple(placing.ops), tuple(results))


class _Placing:
    """Ops on their way, with a transfer before the first that reads a value on another IPU.

    Args:
        functions: Functions with transfers.
        off_chip: Tables in streaming memory.
        stays: Other values that are not sent.
        stage: Stage of a transfer, for a value and whether it is for an update.
        moved: Values with the ones that take their place.
    """

    def __init__(
        self,
        functions: _Functions,
        off_chip: OffChipTables,
        stays: frozenset[Value],
        stage: Callable[[Value, bool], int],
        moved: dict[Value, Value] | None = None,
    ) -> None:
        self._functions, self._off_chip, self._stays, self._stage = functions, off_chip, stays, stage
        self.ops: list[NetworkOp] = []
        self.moved: dict[Value, Value] = {} if moved is None else moved
        self._sent: dict[tuple[Value, int, bool], Value] = {}
        self._constants: dict[Value, NetworkOp] = {}
        self._tables = {self.moved[v] for v in self.moved if v in off_chip}

    def run(self, ops: Iterable[NetworkOp]) -> None:
        """Place ops in order."""
        for op in ops:
            op = replace(op, inputs=tuple(self.moved.get(v, v) for v in op.inputs))
            if op.kind == "constant":
                self._constants[op.output] = op
            elif is_spread(op):
                op = self._spread(op)
            elif op.place is not None and not self._is_sent(op):
                ipu = op.place.ipu
                op = replace(op, inputs=tuple(self.on(v, ipu, op) for v in op.inputs))
            self.ops.append(op)

    def _is_sent(self, op: NetworkOp) -> bool:
        """True for a transfer that the program itself asks for."""
        return op.kind == "transfer" and op.output.place.pipeline_stage == self._stage(op.inputs[0], False)

    def on(self, value: Value, ipu: int, op: NetworkOp | None) -> Value:
        """A value on an IPU, for an op there."""
        if value.place.ipu == ipu or value in self._stays or value in self._off_chip or value in self._tables:
            return value
        at_the_end = op is not None and op.stage == Stage.UPDATE
        key = (value, ipu, at_the_end)
        if key not in self._sent:
            maker = self._constants.get(value)
            place = replace(value.place, ipu=ipu, pipeline_stage=self._stage(value, at_the_end))
            stage = Stage.UPDATE if at_the_end else value.stage
            made = self._sent[key] = replace(value, name="" if maker is None else value.name, place=place, stage=stage)
            if maker is not None and not at_the_end:
                self.ops.append(replace(maker, outputs=(made,)))
            else:
                debug = op.debug if op is not None else DebugRecord("transfer")
                self.ops.append(NetworkOp("transfer", (value,), (made,), FrozenDict(), debug))
        return self._sent[key]

    # --- spread blocks ---------------------------------------------------------------------------------------------

    def _spread(self, op: NetworkOp) -> NetworkOp:
        """A spread op with transfers before it and in its blocks; its results are where these leave them."""
        if op.kind == "call":
            assert op.function is not None
            function = self._functions.spread(op.function)
            body = function.body
            inputs = [self.on(v, p.place.ipu, op) for v, p in zip(op.inputs, body.parameters, strict=True)]
            op = replace(op, inputs=tuple(inputs), attrs=FrozenDict({**op.attrs, "function": function}))
            return self._with_results(op, body)
        regions: list[OpBlock] = []
        for number, region in enumerate(op.regions):
            ahead = len(region.parameters) - len(op.inputs)
            entering = dict(zip(region.parameters[max(ahead, 0) :], op.inputs[max(-ahead, 0) :], strict=True))
            carried = [v.place.ipu for v in op.inputs[: op.attrs["carried"]]] if "carried" in op.attrs else []
            # The trip is counted where the op will be, which is where its first result is.
            trip = carried[0] if carried else op.output.place.ipu
            ipus_in = [entering[p].place.ipu if p in entering else trip for p in region.parameters]
            parameters = [
                replace(p, place=replace(p.place, ipu=ipu)) for p, ipu in zip(region.parameters, ipus_in, strict=True)
            ]
            first = regions[0].results if regions else ()
            if op.kind == "while" and number == 0:
                carried, first = [], ()
            ipus = carried or [v.place.ipu for v in first]
            regions.append(self._functions.block(region, parameters, ipus.__getitem__ if ipus else lambda _: None))
        return self._with_results(replace(op, regions=tuple(regions)), regions[-1])

    def _with_results(self, op: NetworkOp, block: OpBlock) -> NetworkOp:
        """An op whose results are on the IPUs of a block's."""
        made = []
        for value, result in zip(op.outputs, block.results, strict=True):
            place = replace(value.place, ipu=result.place.ipu)
            made.append(value if place == value.place else replace(value, place=place))
            if made[-1] is not value:
                self.moved[value] = made[-1]
                if value in self._off_chip:
                    self._tables.add(made[-1])
        return replace(op, outputs=tuple(made))
