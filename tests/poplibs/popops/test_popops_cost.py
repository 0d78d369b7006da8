"""Cycles of element-wise vertices against published figures, and how work is spread."""

from __future__ import annotations

import numpy as np
import pytest
from poplibs_kit import Bench, system_of

from abele.compiler.cost import vertex_costs
from abele.graph import Execute, Tensor, VertexGroup, walk
from abele.numerics import f16, f32
from abele.poplibs import popops
from abele.poplibs.popops import _1, _2
from abele.poplibs.popops.elementwise.scaled_add import scaled_add_cycles
from abele.poplibs.popops.expr import exp


def _groups(bench: Bench) -> list[VertexGroup]:
    return [g for step in walk(bench.prog) if isinstance(step, Execute) for g in step.compute_set.groups]


def _cycles(bench: Bench) -> int:
    (group,) = _groups(bench)
    return int(vertex_costs(group, bench.graph.system.ipu).amount.max())


def _on_one_tile(bench: Bench, size: int, dtype: str = "f32") -> Tensor:
    return bench.tensor(np.zeros(size), dtype, 0)


@pytest.mark.parametrize(("size", "cycles"), [(10, 203), (1024, 1733)])
def test_add__f32_on_a_tile__is_the_published_estimate(size: int, cycles: int) -> None:
    """Source: machine reference §4.0 (BinaryOp1D, 82 cycles a compute set below silicon)."""
    bench = Bench(1)
    popops.add(bench.graph, _on_one_tile(bench, size), _on_one_tile(bench, size), bench.prog)
    assert _cycles(bench) == cycles


@pytest.mark.parametrize(("size", "cycles"), [(64, 286), (128, 376), (256, 574), (512, 952)])
def test_scaled_subtract__f32_on_a_tile__is_the_published_estimate(size: int, cycles: int) -> None:
    """Source: machine reference §4.0 (ScaledSubtract, 46 cycles a compute set below silicon)."""
    bench = Bench(1)
    popops.scaled_subtract_from(bench.graph, _on_one_tile(bench, size), _on_one_tile(bench, size), 0.5, bench.prog)
    assert _cycles(bench) == cycles


@pytest.mark.parametrize(
    ("build", "cycles"),
    [
        (lambda b, x, y: popops.exp(b.graph, x, b.prog), 20 + 6 * (33 + 10 * 6)),
        (lambda b, x, y: popops.mul(b.graph, x, 2.0, b.prog), 11 + 6 * (20 + 10 * 2)),
        (lambda b, x, y: popops.mul_in_place(b.graph, x, y, b.prog), 11 + 6 * (58 + 10 * 3)),
        (lambda b, x, y: popops.div(b.graph, x, y, b.prog), 11 + 6 * (29 + 10 * 10)),
        (lambda b, x, y: popops.map(b.graph, _1 * 2 + exp(_2), [x, y], b.prog), 11 + 6 * (29 + 10 * (1 + 1 + 5 + 2))),
    ],
)
def test_single_and_fused_operations__120_f32_on_a_tile__follow_the_rule(build: object, cycles: int) -> None:
    bench = Bench(1)
    x, y = _on_one_tile(bench, 120), _on_one_tile(bench, 120)
    build(bench, x, y)  # type: ignore[operator]
    assert _cycles(bench) == cycles


def test_scaled_add__mixed_types__cost_more() -> None:
    ipu, size = system_of(4).ipu, np.array([960])
    same = scaled_add_cycles(size, f32, f32, ipu)
    assert (scaled_add_cycles(size, f32, f16, ipu) > same).all()
    assert (scaled_add_cycles(size, f16, f16, ipu) < same).all()


def test_map__more_elements__never_cost_less() -> None:
    costs = []
    for size in (1, 2, 12, 13, 100, 101, 1000):
        bench = Bench(1)
        popops.add(bench.graph, _on_one_tile(bench, size), _on_one_tile(bench, size), bench.prog)
        costs.append(_cycles(bench))
    assert costs == sorted(costs)


def test_map__activations_on_a_chip__work_is_spread_evenly() -> None:
    bench = Bench(1472)
    x = bench.tensor(np.zeros((64, 64, 9, 9)), "f32", "activations")
    bias = bench.tensor(np.zeros((64, 1, 1)), "f32")
    popops.add(bench.graph, x, bias, bench.prog)
    (group,) = _groups(bench)
    work = np.bincount(group.tile, weights=group.edges["y0"].row_sizes, minlength=1472)
    assert work.min() > 0
    assert work.max() - work.min() <= 16


def test_map__bias__needs_one_group_of_it_on_a_tile() -> None:
    bench = Bench(1472)
    x = bench.tensor(np.zeros((64, 64, 9, 9)), "f32", "activations")
    popops.add(bench.graph, x, bench.tensor(np.zeros((64, 1, 1)), "f32"), bench.prog)
    (group,) = _groups(bench)
    assert group.edges["a1"].row_sizes.max() == 16
