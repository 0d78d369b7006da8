"""All passes of layers with dynamic sparse weights, on tiles and natively, for many patterns of one program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import InvalidOptionError, PatternMismatchError
from abele.graph import Graph, Sequence
from abele.poplibs.popsparse import dynamic
from abele.sparsity import Pattern, random_pattern
from poplibs.popsparse.dynamic.sparse_kit import grid, layer, patterns_of, tiles_of
from support.examples import examples


@pytest.fixture(scope="module")
def elements() -> Any:
    return layer((30, 28, 12), 0.3, groups=2, metaInfoBucketOversizeProportion=1.0, **grid(4, 3, 1))


@examples(12)
@given(st.floats(0, 0.28), st.integers(0, 2**16))
def test_layer__random_patterns_of_one_program__all_passes_are_right(elements: Any, density: float, seed: int) -> None:
    elements.check(patterns_of(elements, density, seed), seed)


def test_layer__one_dense_row_and_column__is_right(elements: Any) -> None:
    mask = np.zeros((30, 28), bool)
    mask[3], mask[:, 20] = True, True
    elements.check([Pattern.from_dense_mask(mask), random_pattern((30, 28), 0.2)])


def test_layer__all_zero_matrix__gives_zeros(elements: Any) -> None:
    place = elements.check([random_pattern((30, 28), 0.0)] * 2)
    assert place.passes == 0


def test_layer__run_again_with_another_pattern__report_has_its_own_trips(elements: Any) -> None:
    engine = elements.engines["native"]
    elements.check([random_pattern((30, 28), 0.1)] * 2)
    even = engine.report.cycles().total
    skewed = np.zeros((30, 28), bool)
    skewed[:8] = True
    place = elements.check([Pattern.from_dense_mask(skewed), random_pattern((30, 28), 0.05)])
    assert place.passes > 0
    assert engine.report.cycles().total > even
    assert engine.report.cycles().total == elements.engines["tiles"].report.cycles().total
    for made in elements.engines.values():
        costs = dynamic.pass_costs(made.report, made.executable.report)
        assert [(c.passes, c.worst_passes) for c in costs] == [(place.passes, 11)] * 3
        assert all(0 < c.cycles < c.worst_cycles for c in costs)


def test_layer__meta_info_that_no_partitioner_wrote__touches_nothing_beyond(elements: Any) -> None:
    engine, plan = elements.engines["native"], elements.partitioner.plan
    rng = np.random.default_rng(0)
    for seed in range(3):
        made = rng.integers(0, 1 << 16, plan.num_meta).astype("u2")
        made[: plan.info_slots] = 1
        if seed:
            made = np.where(rng.random(plan.num_meta) < 0.9, 1, made).astype("u2")
        engine.write(elements.weights.metaInfo, made)
        engine.run()
    elements.check([random_pattern((30, 28), 0.1)] * 2)


CASES: list[Any] = [
    ((64, 64, 20), 0.3, (4, 4), "half", {}, 1),
    pytest.param((48, 64, 6), 0.4, (4, 2), "half", {"sharedBuckets": False}, 1, marks=pytest.mark.rest),
    pytest.param((32, 32, 8), 0.5, (8, 8), "float", {}, 2, marks=pytest.mark.rest),
    ((64, 32, 16), 0.4, (16, 16), "half", {"partialsType": "half"}, 1),
    ((40, 36, 8), 0.3, (1, 1), "half", {"sharedBuckets": False}, 1),
    pytest.param((24, 36, 4), 0.3, (12, 12), "float", {}, 1, marks=pytest.mark.rest),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "density", "block", "dtype", "options", "groups"), CASES)
def test_layer__blocks_types_and_lists__all_passes_are_right(
    sizes: Any, density: float, block: Any, dtype: str, options: Any, groups: int
) -> None:
    made = layer(sizes, density, block, dtype, groups=groups, metaInfoBucketOversizeProportion=0.5, **options)
    made.check(patterns_of(made, density))


SPILLS: list[Any] = [
    (grid(6, 4, 1), {"metaInfoBucketOversizeProportion": 0.3}),
    pytest.param(
        grid(3, 4, 2, gradWExchangeBuckets=True), {"partitioner.forceBucketSpills": True}, marks=pytest.mark.rest
    ),
    (grid(3, 4, 2, gradWExchangeBuckets=False), {"partitioner.forceBucketSpills": True}),
    (grid(5, 1, 3, gradWExchangeBuckets=True), {"partitioner.forceBucketSpills": True}),
    pytest.param(
        grid(5, 1, 3, gradWExchangeBuckets=False), {"partitioner.forceBucketSpills": True}, marks=pytest.mark.rest
    ),
    (grid(3, 4, 2), {"partitioner.forceBucketSpills": True, "partitioner.optimiseForSpeed": False}),
    pytest.param(
        grid(1, 5, 3, gradWExchangeBuckets=True), {"partitioner.forceBucketSpills": True}, marks=pytest.mark.rest
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "options"), SPILLS)
def test_layer__spills_forced__arrive(parts: dict[str, str], options: dict[str, Any]) -> None:
    options = {"metaInfoBucketOversizeProportion": 0.8, **options}
    made = layer((60, 60, 24), 0.3, (4, 2), "half", **parts, **options)
    place = made.check(patterns_of(made, 0.29))
    assert place.passes > 0


@pytest.mark.slow
def test_layer__area_weighted_imbalance__spills_in_every_dimension() -> None:
    made = layer((64, 64, 8), 0.25, metaInfoBucketOversizeProportion=0.5, **grid(4, 3, 2))
    weight = np.ones((64, 64))
    weight[:16, :22] = 8.0
    drawn = np.random.default_rng(0).random((64, 64)) ** (1 / weight)
    held = drawn >= np.sort(drawn.reshape(-1))[-1000]
    place = made.check([Pattern.from_dense_mask(held)])
    assert place.info[0] > 1
    assert place.passes == 4 * 3 - 1 or place.passes >= 3


def test_pass__option_not_set__is_refused() -> None:
    graph, prog = Graph(tiles_of()), Sequence()
    params = dynamic.FullyConnectedParams.createWithNzRatio(dynamic.SparsityParams(), 0.2, 8, 1, 16, 16)
    weights = dynamic.create_fully_connected_weights(graph, "float", params)
    grad = graph.variable("float", (8, 16), map="linear")
    with pytest.raises(InvalidOptionError, match="'doGradAPass' is not set"):
        dynamic.fully_connected_grad_a(graph, weights, grad, params, prog)
    with pytest.raises(InvalidOptionError, match="'doGradWPass' is not set"):
        dynamic.fully_connected_sparse_grad_w(graph, weights.metaInfo, grad, grad, params, prog)


def test_pass__weights_of_other_options_or_sizes__are_refused() -> None:
    graph, prog = Graph(tiles_of()), Sequence()
    params = dynamic.FullyConnectedParams.createWithNzRatio(dynamic.SparsityParams(), 0.2, 8, 1, 16, 16)
    weights = dynamic.create_fully_connected_weights(graph, "float", params)
    acts = graph.variable("float", (8, 16), map="linear")
    with pytest.raises(PatternMismatchError, match=r"oversize 0\.3 → 0\.5"):
        dynamic.fully_connected_fwd(
            graph, weights, acts, params, prog, options={"metaInfoBucketOversizeProportion": 0.5}
        )
    other = dynamic.FullyConnectedParams.createWithNzRatio(dynamic.SparsityParams(), 0.3, 8, 1, 16, 16)
    with pytest.raises(PatternMismatchError, match="other parameters"):
        dynamic.fully_connected_fwd(graph, weights, acts, other, prog)
    bare = dynamic.SparseTensor(weights.metaInfo[:-2], weights.nzValues)
    with pytest.raises(PatternMismatchError, match="metaInfo is"):
        dynamic.fully_connected_fwd(graph, bare, acts, params, prog)
    with pytest.raises(PatternMismatchError, match="the dense operand is"):
        dynamic.fully_connected_fwd(graph, weights, acts[:4], params, prog)


def test_dense_gradient__that_fits_not__is_split_over_in_channels() -> None:
    graph = Graph(tiles_of())
    params = dynamic.FullyConnectedParams.createWithNzRatio(dynamic.SparsityParams(), 0.001, 8, 1, 4096, 1024)
    splits = dynamic.fully_connected_dense_grad_w_serial_splits(graph, "float", params)
    assert splits[0] > 1
    assert 4096 % splits[0] == 0
    assert splits[1:] == (1, 1)
