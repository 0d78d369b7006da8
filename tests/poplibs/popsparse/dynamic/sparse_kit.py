"""Layers and products with dynamic sparse matrices on few tiles, beside their meaning in float64."""

from __future__ import annotations

import json
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele import Engine
from abele.arrays import Array
from abele.graph import Graph, Sequence, Tensor
from abele.machine import System
from abele.poplibs.popsparse import dynamic
from abele.sparsity import Pattern, random_pattern
from poplibs.poplibs_kit import system_of, two_of

Block = tuple[int, int]


def tiles_of(num_tiles: int = 24) -> System:
    """A Bow with few tiles."""
    return system_of(num_tiles)


def grid(x: int, y: int, z: int, **exchange: bool) -> Any:
    """Options that ask for a grid."""
    wanted: dict[str, Any] = {"partition": {"x": x, "y": y, "z": z}}
    if exchange:
        wanted["exchange"] = exchange
    return {"planConstraints": json.dumps(wanted)}


def values_of(patterns: Items[Pattern], dtype: npt.DTypeLike, seed: int = 0) -> list[Array]:
    """Normal values of each pattern."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((p.num_blocks, *p.block)).astype(dtype) for p in patterns]


@dataclass
class Layer:
    """A layer with all passes, compiled once for all patterns.

    Attributes:
        params: Parameters.
        partitioner: Places patterns.
        weights: Sparse tensor.
        tensors: Input, gradient, output, gradient of the input, gradient of the values.
        engines: One for each mode.
    """

    params: Any
    partitioner: Any
    weights: Any
    tensors: tuple[Tensor, ...]
    engines: dict[str, Engine]

    def check(self, patterns: Items[Pattern], seed: int = 0) -> Any:
        """Run all passes on a pattern in every mode, against float64; returns the placement."""
        params, plan = self.params, self.partitioner.plan
        dtype, groups, batch = plan.dtype.np, params.numGroups, params.batchSize
        values = values_of(patterns, dtype, seed)
        data = self.partitioner.createSparsityDataImpl(list(zip(patterns, values, strict=True)))
        place = self.partitioner.place(patterns)
        rng = np.random.default_rng(seed + 1)
        x, g = (rng.standard_normal(t.shape).astype(dtype) for t in self.tensors[:2])
        dense = np.stack([p.to_dense(v.astype("f8")) for p, v in zip(patterns, values, strict=True)])
        xs, gs = (t.astype("f8").reshape((batch, groups, -1)).transpose((1, 2, 0)) for t in (x, g))
        of_values = [p.values_of(d).reshape(-1) for p, d in zip(patterns, gs @ xs.transpose((0, 2, 1)), strict=True)]
        wanted = (_batched(dense @ xs), _batched(dense.transpose((0, 2, 1)) @ gs), np.concatenate(of_values))
        for mode, engine in self.engines.items():
            for tensor, array in (
                (self.weights.metaInfo, data.metaInfo),
                (self.weights.nzValues, data.nzValues),
                *zip(self.tensors[:2], (x, g), strict=True),
            ):
                engine.write(tensor, array)
            engine.run()
            out, grad, packed = (np.asarray(engine.read(t), "f8") for t in self.tensors[2:])
            found = (out, grad, place.unpack(packed))
            for what, one, other in zip(("forward", "gradA", "gradW"), found, wanted, strict=True):
                scale = abs(other).max(initial=1e-3)
                limit = (5e-3 if dtype == np.float16 else 3e-6) * scale
                assert abs(one - other).max(initial=0) <= limit, (mode, what)
            unused = np.ones(packed.size, bool)
            unused[place.slots] = False
            assert not packed.reshape(-1)[unused].any(), (mode, "unused slots")
        return place


def _batched(tensor: Array) -> Array:
    """[groups, channels, batch] as [batch, groups · channels]."""
    return tensor.transpose((2, 0, 1)).reshape((tensor.shape[2], -1))


def layer(
    sizes: tuple[int, int, int],
    density: float,
    block: Block = (1, 1),
    dtype: str = "float",
    *,
    groups: int = 1,
    modes: Items[str] = ("tiles", "native"),
    num_tiles: int = 24,
    ipu: int | None = None,
    **options: Any,
) -> Layer:
    """A layer of out channels, in channels and batch with all passes; on one of two IPUs if ``ipu`` is given."""
    chosen = {"doGradAPass": True, "doGradWPass": True, **options}
    rows, columns, batch = sizes
    system = tiles_of(num_tiles)
    params = dynamic.FullyConnectedParams.createWithNzRatio(
        dynamic.SparsityParams(blockDimensions=block), density, batch, groups, columns, rows
    )
    whole, prog = Graph(system if ipu is None else two_of(system)), Sequence()
    graph = whole if ipu is None else whole.ipu(ipu)
    weights = dynamic.create_fully_connected_weights(graph, dtype, params, options=chosen)
    x = dynamic.create_fully_connected_input(graph, dtype, params, options=chosen)
    g = graph.variable(dtype, (batch, groups * rows), name="grad", map="linear")
    out = dynamic.fully_connected_fwd(graph, weights, x, params, prog, options=chosen)
    grad = dynamic.fully_connected_grad_a(graph, weights, g, params, prog, options=chosen)
    values = dynamic.fully_connected_sparse_grad_w(graph, weights.metaInfo, g, x, params, prog, options=chosen)
    engines = {mode: Engine(whole, prog, mode=mode) for mode in modes}
    partitioner = dynamic.Partitioner(params, dtype, system, chosen)
    return Layer(params, partitioner, weights, (x, g, out, grad, values), engines)


def patterns_of(made: Layer, density: float, seed: int = 0) -> list[Pattern]:
    """Uniform patterns, one for each group."""
    params = made.params
    block = params.sparsity.blockDimensions
    return [random_pattern(params.shape, density, block, seed=seed + n) for n in range(params.numGroups)]
