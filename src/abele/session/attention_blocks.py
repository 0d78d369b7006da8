"""Choice of blocks for an attention: the candidates, compiled by themselves, and the fastest of them.

Operands of an attention become inputs that are scaled first, so that they have the layout of computed values and not
one that suits a candidate; known values stay known. In training, the gradients by all operands belong to the attention.
Cycles are those of the report without streams, and are kept on disk by the hash of the network that was measured.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from abele.compiler import compile_program
from abele.distribution import lower_network
from abele.expr import derivative
from abele.graph import Graph
from abele.llvm.cache import load_object, store_object
from abele.network import Network, NetworkBuilder, Schedule, Value
from abele.network.blocked_attention import MaskedAttention
from abele.network.ir import FrozenDict
from abele.network.ops import build
from abele.network.passes import Differentiate, Pipeline
from abele.network.passes.pipeline import in_blocks, inference_pipeline
from abele.network.score_blocks import RowBlocks
from abele.numerics import f32
from abele.session.settings import Settings
from abele.session.store import own_code

MOST_WAYS = 3
"""Ways that are compiled, those with the fewest scores."""
LEAST_HIDDEN = 32
"""Hidden scores for each tile below which no way is tried: a superstep's sync takes about as long as they do."""


@dataclass(frozen=True)
class ModelledBlocks:
    """Chooses the way whose program takes the fewest cycles on one IPU.

    Attributes:
        settings: The machine, and how products are planned.
        training: True if gradients are computed too.
    """

    settings: Settings
    training: bool

    def choose(self, attention: MaskedAttention, ways: Sequence[RowBlocks]) -> RowBlocks | None:
        """The fastest way, or None where the whole attention is."""
        shape = attention.scores.shape
        tiles = self.settings.target().ipu.num_tiles
        matrices = attention.scores.size // (shape[-2] * shape[-1])
        worth = [w for w in ways if matrices * (shape[-2] * shape[-1] - w.scores) >= LEAST_HIDDEN * tiles]
        if not worth:
            return None
        net = _alone(attention)
        best, least = None, self.cycles(net, None)
        for way in worth[:MOST_WAYS]:
            cycles = self.cycles(net, way)
            if cycles < least:
                best, least = way, cycles
        return best

    def cycles(self, net: Network, way: RowBlocks | None) -> int:
        """Cycles of an attention by itself, computed whole or in blocks."""
        target = replace(self.settings, progress=False, dump_passes=None, cache=None, name="attention")
        parts = (own_code(), repr(target.target(1)), repr(target.planning), repr(target.modes), repr(way), str(net))
        told = "\n".join((*parts, str(self.training)))
        key = f"attention-{hashlib.sha256(told.encode()).hexdigest()}"
        kept = load_object(key)
        if kept is not None and kept.isdigit():
            return int(kept)
        cycles = self._measured(net, way, target)
        store_object(key, str(cycles).encode())
        return cycles

    def _measured(self, net: Network, way: RowBlocks | None, settings: Settings) -> int:
        before = () if way is None else in_blocks(_Given(way))
        if self.training:
            names = tuple(p.name for p in net.parameters)
            net = _with_gradients(Pipeline((*before, Differentiate(names))).run(net))
            before = ()
        final = Pipeline((*before, *inference_pipeline().passes)).run(net)
        graph = Graph(settings.target(1))
        program = lower_network(final, graph, Schedule(), planning=settings.planning, modes=settings.modes)
        steps = compile_program(graph, program.program, allow_out_of_memory=True).report.steps
        own = np.array([kind != "stream" for kind in steps["kind"]], bool)
        return int((np.asarray(steps["cycles"]) * np.asarray(steps["executions"]))[own].sum())


@dataclass(frozen=True)
class _Given:
    """Always one way."""

    way: RowBlocks

    def choose(self, attention: MaskedAttention, ways: Sequence[RowBlocks]) -> RowBlocks | None:
        """The way that was given."""
        return self.way


def _alone(attention: MaskedAttention) -> Network:
    """An attention as a network: its operands are parameters, and the loss is its result times another one."""
    net = NetworkBuilder()
    values: dict[Value, Value] = {}

    def read(value: Value) -> None:
        known = attention.known.get(value)
        name = f"{len(net.parameters)}"
        values[value] = _scaled(net, value, name) if known is None else net.constant(known, value.dtype)

    for op in (*attention.ops.values(), attention.softmax):
        for value in op.inputs:
            if value not in values:
                read(value)
        values[op.output] = net.copy(op, values)[0]
    product = attention.product
    shares, last = product.inputs
    values[shares] = build.reshape(net, values[attention.softmax.output], shares.shape)
    if last not in values:
        read(last)
    (result,) = net.copy(product, values)
    net.output(result)
    weighted = derivative.arg(0) * derivative.arg(1)
    by = _scaled(net, result, f"{len(net.parameters)}")
    net.loss = build.reduce(net, build.map_(net, weighted, [result, by], f32), range(result.ndim))
    return net.finish()


def _scaled(net: NetworkBuilder, like: Value, name: str) -> Value:
    """Computed value: a parameter times a number."""
    return build.map_(net, derivative.arg(0) * 0.5, [net.parameter(like.shape, like.dtype, name)])


def _with_gradients(net: Network) -> Network:
    """A differentiated network whose gradients are results."""
    return replace(net, outputs=(*net.outputs, *net.gradients.values()), gradients=FrozenDict({}), loss=None)
