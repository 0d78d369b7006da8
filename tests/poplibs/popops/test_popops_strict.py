"""Indices out of range that are data: what a call gives by default, and graphs whose calls all check them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from poplibs_kit import Bench

from abele.errors import ApplicationRuntimeError
from abele.graph import Tensor
from abele.poplibs import popops

TABLE = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
Call = Callable[[Bench, Tensor, Tensor], Any]


def slice_of(bench: Bench, table: Tensor, index: Tensor) -> Tensor:
    return popops.dynamic_slice(bench.graph, table, index, (0,), (1,), bench.prog)


def update_of(bench: Bench, table: Tensor, index: Tensor) -> Tensor:
    piece = bench.tensor(np.full((1, 3), -1, np.float32))
    popops.dynamic_update(bench.graph, table, piece, index, (0,), (1,), bench.prog)
    return table


def slices_of(bench: Bench, table: Tensor, index: Tensor) -> Tensor:
    return popops.multi_slice(bench.graph, table, index, (0,), (1,), bench.prog)


def gathered(bench: Bench, table: Tensor, index: Tensor) -> Tensor:
    return popops.gather(bench.graph, table, index, 0, bench.prog)


def updates_of(bench: Bench, table: Tensor, index: Tensor) -> Tensor:
    rows = bench.tensor(np.ones((1, 1, 3), np.float32))
    popops.multi_update_add(bench.graph, table, rows, index, 1.0, (0,), (1,), bench.prog)
    return table


CALLS: dict[str, tuple[Call, bool]] = {
    "dynamic_slice": (slice_of, False),
    "dynamic_update": (update_of, True),
    "multi_slice": (slices_of, False),
    "gather": (gathered, False),
    "multi_update_add": (updates_of, True),
}


def bench_of(index: int) -> tuple[Bench, Tensor, Tensor]:
    bench = Bench(4)
    return bench, bench.tensor(TABLE), bench.tensor(np.array([index], np.uint32), layout=0)


@pytest.mark.parametrize("name", CALLS)
def test_index_out_of_range__by_default__gives_zeros_or_changes_nothing(name: str) -> None:
    call, is_update = CALLS[name]
    bench, table, index = bench_of(7)
    (got,) = bench.run_both(call(bench, table, index))
    np.testing.assert_array_equal(got, TABLE if is_update else np.zeros_like(got))


@pytest.mark.parametrize("mode", ["tiles", "native"])
@pytest.mark.parametrize("name", CALLS)
def test_index_out_of_range__in_a_graph_that_validates__stops_and_names_the_call(name: str, mode: str) -> None:
    bench, table, index = bench_of(4)
    popops.validate_indices_by_default(bench.graph)
    out = CALLS[name][0](bench, table, index)
    with pytest.raises(ApplicationRuntimeError, match=rf"{name}: (offset|index) out of range"):
        bench.run(out, mode=mode)


@pytest.mark.parametrize("name", CALLS)
def test_index_in_range__in_a_graph_that_validates__is_as_without(name: str) -> None:
    results = []
    for validate in (True, False):
        bench, table, index = bench_of(3)
        popops.validate_indices_by_default(bench.graph.virtual(0, 2), validate)
        results.append(bench.run_both(CALLS[name][0](bench, table, index))[0])
    np.testing.assert_array_equal(*results)


def test_index_out_of_range__where_the_call_says_so__is_not_checked() -> None:
    bench, table, index = bench_of(9)
    popops.validate_indices_by_default(bench.graph)
    out = popops.multi_slice(bench.graph, table, index, (0,), (1,), bench.prog, options={"validateIndices": False})
    assert not bench.run_both(out)[0].any()


@pytest.mark.parametrize("computation", [None, "add", lambda graph, old, new, prog: new])
def test_scatter__window_outside_in_a_graph_that_validates__is_skipped_still(computation: Any) -> None:
    bench = Bench(4)
    popops.validate_indices_by_default(bench.graph)
    table, index = bench.tensor(TABLE), bench.tensor(np.array([[9], [1]], np.uint32))
    updates = bench.tensor(np.full((2, 3), 100, np.float32))
    popops.scatter(bench.graph, table, index, updates, 1, (1,), (0,), (0,), bench.prog, update_computation=computation)
    wanted = TABLE.copy()
    wanted[1] = 100 + (TABLE[1] if computation == "add" else 0)
    np.testing.assert_array_equal(bench.run_both(table)[0], wanted)
