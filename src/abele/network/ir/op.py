"""Ops, and the blocks of ops that functions and the bodies of control flow are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from abele.graph.debug import DebugRecord
from abele.network.ir.frozen import FrozenDict
from abele.network.ir.value import Place, Stage, Value

SAME_ELEMENTS = frozenset({"reshape", "permute"})
"""Kinds of op whose result shows each element of the operand once, a view of it."""

# Hints: what a model's author says about how single products and convolutions are planned.


@dataclass(frozen=True)
class ConvGroup:
    """Convolutions that are planned together.

    Attributes:
        number: Number of the network's group; 0 where its members are one op already.
        plan_type: ``parallel``: at the same time, each on tiles of its own; ``serial``: one after the other on all.
        reserved_tiles: Tiles that each has at least.
        back_off: Proportion by which the longest may take longer than the shortest.
    """

    number: int = 0
    plan_type: str = "parallel"
    reserved_tiles: int = 50
    back_off: float = 0.1

    @property
    def options(self) -> dict[str, Any]:
        """PopLibs' options of multi-convolutions."""
        return {
            "planType": self.plan_type,
            "perConvReservedTiles": self.reserved_tiles,
            "cycleBackOff": self.back_off,
        }


@dataclass(frozen=True)
class PlanHint:
    """Planning of one op where it differs from that of the others. Results change by their rounding alone.

    Attributes:
        proportion: Share of a tile's memory that it plans with; None for that of the others.
        partials: Type of partial sums of f16 operands; None for that of the others.
        dithered: True to begin at a tile of its own.
        group: Convolutions that it is planned together with.
    """

    proportion: float | None = None
    partials: str | None = None
    dithered: bool = False
    group: ConvGroup | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Options of the hint, under the libraries' names."""
        said = {"available_memory_proportion": self.proportion, "partials_type": self.partials}
        given = {name: value for name, value in said.items() if value is not None}
        return given | ({"enable_conv_dithering": True} if self.dithered else {})


@dataclass(frozen=True, eq=False, slots=True)
class NetworkOp:
    """One operation.

    Attributes:
        kind: Name of the rule of :mod:`abele.network.registry` that gives its meaning.
        inputs: Values that it reads.
        outputs: Values that it makes; any number.
        attrs: Numbers, tuples, strings and functions that it is configured with.
        debug: Module path and the user's source line.
        regions: Bodies of control flow. A region sees its parameters alone: what it reads is handed to it.
    """

    kind: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attrs: FrozenDict[str, Any]
    debug: DebugRecord
    regions: tuple[OpBlock, ...] = ()

    @property
    def output(self) -> Value:
        """The first output."""
        return self.outputs[0]

    @property
    def stage(self) -> Stage:
        """Stage of its results."""
        return self.outputs[0].stage if self.outputs else Stage.FORWARD

    @property
    def place(self) -> Place | None:
        """Place of its results, if it has some."""
        return self.outputs[0].place if self.outputs else None

    @property
    def hint(self) -> PlanHint | None:
        """Hint of the model's author on how the op is planned."""
        said = self.attrs.get("hint")
        return said if isinstance(said, PlanHint) else None

    @property
    def function(self) -> NetworkFunction | None:
        """The function that it calls, if it calls one."""
        called = self.attrs.get("function")
        return called if isinstance(called, NetworkFunction) else None

    @property
    def blocks(self) -> tuple[OpBlock, ...]:
        """Every block that it may run: its regions, or the body of the function that it calls."""
        called = self.function
        return self.regions if called is None else (called.body, *self.regions)

    def __str__(self) -> str:
        from abele.network.ir.printer import op_text

        return op_text(self)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class OpBlock:
    """Ops in order, isolated from the values around them.

    Attributes:
        parameters: Values that enter.
        ops: In an order in which every value is made before it is read.
        results: Values that leave.
    """

    parameters: tuple[Value, ...]
    ops: tuple[NetworkOp, ...]
    results: tuple[Value, ...]

    def walk(self) -> Iterator[NetworkOp]:
        """Every op, those of regions and functions included (a function's once per call)."""
        for op in self.ops:
            yield op
            for block in op.blocks:
                yield from block.walk()


@dataclass(frozen=True, eq=False, slots=True)
class NetworkFunction:
    """A block with a name, which ``call`` ops run.

    Attributes:
        name: Unique in a network.
        body: Block that a call runs.
        count: Number of random modifiers that one call uses up.
    """

    name: str
    body: OpBlock
    num_random: int = field(default=0)
