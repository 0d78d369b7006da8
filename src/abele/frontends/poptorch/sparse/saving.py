"""Savings by sparsity: weights, memory and modelled cycles of each layer beside a dense one.

Each layer's products are compiled by themselves, as are the dense layer's, for the same rows of activations. Those of a
dynamic layer are charged with full buckets. The last column is found the same way, at halved densities of random
patterns: the largest one at which the forward pass takes no longer than the dense layer's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from abele.compiler import compile_program
from abele.errors import AbeleError, InvalidOptionError
from abele.frontends.poptorch.models.executor import PoplarExecutor
from abele.frontends.poptorch.sparse.layers import SparseLinear
from abele.frontends.poptorch.values.checks import check_module
from abele.graph import Graph, Sequence, Tensor
from abele.machine import systems
from abele.network.ops.sparse_calls import (
    dynamic_product,
    dynamic_sampled_product,
    new_slots,
    new_sparse_values,
    sampled_product,
    sparse_product,
)
from abele.network.ops.sparse_slots import SlotPlan
from abele.numerics import ElementType, f16, f32
from abele.poplibs import poplin
from abele.sparsity import Pattern, random_pattern

ROWS = 32
"""Rows of activations for layers that were not planned for a number of them."""

DENSITIES = tuple(0.5**n for n in range(1, 9))
"""Densities that are tried, from the largest."""


@dataclass(frozen=True)
class LayerSaving:
    """One layer beside a dense one.

    Attributes:
        name: Its name in the model.
        dynamic: True if its pattern can change.
        block: Edge of its blocks.
        held: Weights that are held.
        size: Weights of the dense layer.
        bytes: Bytes of weights on the device, with the words of a dynamic pattern.
        dense_bytes: Bytes of the dense weights.
        forward: Modelled cycles of the forward pass.
        dense_forward: Those of the dense layer.
        step: Modelled cycles of forward pass and both gradients.
        dense_step: Those of the dense layer.
        pays_from: Largest tried density at which the forward pass takes no longer than the dense one; None if none.
    """

    name: str
    dynamic: bool
    block: int
    held: int
    size: int
    bytes: int
    dense_bytes: int
    forward: int
    dense_forward: int
    step: int
    dense_step: int
    pays_from: float | None


@dataclass(frozen=True)
class SavingReport:
    """Savings in a model; they print as a table.

    Attributes:
        system: The machine.
        layers: Its sparse layers.
    """

    system: str
    layers: tuple[LayerSaving, ...]

    def __str__(self) -> str:
        head = ("layer", "held", "of", "block", "bytes", "dense", "forward", "dense", "step", "dense", "pays from")
        rows = [head, *(_row(layer) for layer in self.layers)]
        widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
        lines = [
            "  ".join(t.rjust(w) if n else t.ljust(w) for n, (t, w) in enumerate(zip(r, widths, strict=True)))
            for r in rows
        ]
        return "\n".join([f"cycles of one batch on {self.system}", *(line.rstrip() for line in lines), self.words])

    @property
    def words(self) -> str:
        """The sum in one sentence."""
        held, size, step, dense = (
            sum(getattr(layer, field) for layer in self.layers) for field in ("held", "size", "step", "dense_step")
        )
        change = f"{dense / step:.1f} times as fast" if step < dense else f"{step / max(dense, 1):.1f} times as long"
        return f"{held:,} of {size:,} weights are held ({100 * held / max(size, 1):.1f} %); their steps take {change}."


def _row(layer: LayerSaving) -> tuple[str, ...]:
    pays = "no density" if layer.pays_from is None else f"{layer.pays_from:.3g}"
    return (
        layer.name,
        f"{layer.held:,}",
        f"{layer.size:,}",
        f"{layer.block}{' dynamic' if layer.dynamic else ''}",
        *(
            f"{n:,}"
            for n in (
                layer.bytes,
                layer.dense_bytes,
                layer.forward,
                layer.dense_forward,
                layer.step,
                layer.dense_step,
            )
        ),
        pays,
    )


def report(model: torch.nn.Module | PoplarExecutor, *, rows: int = ROWS, system: str | None = None) -> SavingReport:
    """Savings in a model, layer by layer.

    Args:
        model: The model, or its wrapper.
        rows: Rows of activations for layers that were not planned for a number of them.
        system: The machine; bow-2000 unless ``ABELE_SYSTEM`` says another.

    Raises:
        InvalidOptionError: The model has no sparse layer.
    """
    inner = model.model if isinstance(model, PoplarExecutor) else model
    check_module("a model with sparse layers", inner)
    machine = system or os.environ.get("ABELE_SYSTEM", "bow-2000")
    found = {n: m for n, m in inner.named_modules() if isinstance(m, SparseLinear)}
    if not found:
        raise InvalidOptionError("the model has no sparse layer", remedy="poptorch.sparse.SparseLinear is one")
    return SavingReport(machine, tuple(_saving(n, layer, rows, machine) for n, layer in found.items()))


def _saving(name: str, layer: SparseLinear, rows: int, system: str) -> LayerSaving:
    dtype, pattern, plan = (f16 if layer.values.dtype == torch.float16 else f32), layer.pattern, layer.plan
    rows = rows if plan is None else plan.rows
    sparse = [_cycles(build, system) for build in _sparse_passes(pattern, plan, rows, dtype)]
    dense = _dense_cycles(pattern.shape, rows, dtype, system)
    words = 0 if plan is None else 2 * int(np.prod(plan.meta_shape))
    held = pattern.num_values if plan is None else int(np.prod(plan.values_shape))
    size = pattern.shape[0] * pattern.shape[1]
    return LayerSaving(
        name=name,
        dynamic=layer.dynamic,
        block=pattern.block[0],
        held=pattern.num_values,
        size=size,
        bytes=held * dtype.bytes + words,
        dense_bytes=size * dtype.bytes,
        forward=sparse[0],
        dense_forward=dense[0],
        step=sum(sparse),
        dense_step=sum(dense),
        pays_from=_pays_from(pattern, plan, rows, dtype, system=system, dense=dense[0]),
    )


Build = Callable[[Graph, Sequence], None]


def _sparse_passes(pattern: Pattern, plan: SlotPlan | None, rows: int, dtype: ElementType) -> Iterator[Build]:
    """Forward pass, gradient of the input, gradient of the weights."""
    (outputs, inputs), sizes = pattern.shape, {False: pattern.shape[1], True: pattern.shape[0]}

    def product(graph: Graph, prog: Sequence, *, transposed: bool) -> None:
        width = sizes[transposed]
        if plan is not None:
            words, slots = new_slots(graph, dtype, plan, "weights")
            dynamic_product(graph, words, slots, _spread(graph, dtype, rows, width), plan, prog, transposed=transposed)
            return
        values = new_sparse_values(graph, dtype, pattern, rows, "weights")
        assert values is not None
        sparse_product(graph, values, _spread(graph, dtype, width, rows), pattern, prog, transposed=transposed)

    def sample(graph: Graph, prog: Sequence) -> None:
        if plan is not None:
            words, _ = new_slots(graph, dtype, plan, "weights")
            grad, x = _spread(graph, dtype, rows, outputs), _spread(graph, dtype, rows, inputs)
            dynamic_sampled_product(graph, words, grad, x, plan, prog)
            return
        sampled_product(graph, _spread(graph, dtype, outputs, rows), _spread(graph, dtype, inputs, rows), pattern, prog)

    yield lambda graph, prog: product(graph, prog, transposed=False)
    yield lambda graph, prog: product(graph, prog, transposed=True)
    yield sample


def _spread(graph: Graph, dtype: ElementType, rows: int, columns: int) -> Tensor:
    return graph.map_linear(graph.variable(dtype, (rows, columns), name="dense"))


def _cycles(build: Build, system: str) -> int:
    graph, prog = Graph(systems.resolve(system)), Sequence()
    build(graph, prog)
    return int(compile_program(graph, prog, allow_out_of_memory=True).report.total_cycles)


@lru_cache(64)
def _dense_cycles(shape: tuple[int, int], rows: int, dtype: ElementType, system: str) -> tuple[int, ...]:
    """Forward pass, gradient of the input and of the weights of a dense layer."""
    outputs, inputs = shape

    def product(m: int, k: int, n: int) -> Build:
        def build(graph: Graph, prog: Sequence) -> None:
            left = poplin.create_matmul_input_lhs(graph, dtype, (m, k), (k, n))
            right = poplin.create_matmul_input_rhs(graph, dtype, (m, k), (k, n))
            poplin.matmul(graph, left, right, prog)

        return build

    sizes = (rows, inputs, outputs), (rows, outputs, inputs), (outputs, rows, inputs)
    return tuple(_cycles(product(*size), system) for size in sizes)


def _pays_from(
    pattern: Pattern, plan: SlotPlan | None, rows: int, dtype: ElementType, *, system: str, dense: int
) -> float | None:
    grid = pattern.grid[0] * pattern.grid[1]
    for density in DENSITIES:
        if density * grid < 1:
            return None
        other = random_pattern(pattern.shape, density, pattern.block)
        sized = None if plan is None else SlotPlan(plan.shape, plan.block, other.num_blocks, rows, plan.dtype, system)
        try:
            if _cycles(next(_sparse_passes(other, sized, rows, dtype)), system) <= dense:
                return density
        except AbeleError:  # No plan for so many: fewer may fit.
            continue
    return None
