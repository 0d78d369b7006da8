"""Native plans of steps that use part of what another makes."""

import numpy as np
from poplibs_kit import Bench, assert_close

from abele.poplibs import popops
from abele.runtime import Engine


def test_native_plan__first_rows_of_a_result__are_not_made_with_all_of_it():
    bench = Bench(4)
    x = bench.tensor(np.arange(32, dtype=np.float32).reshape(8, 4))
    whole = popops.map(bench.graph, lambda a: a * 2.0, [x], bench.prog, name="whole")
    part = popops.map(bench.graph, lambda a: a + 1.0, [whole[:5]], bench.prog, name="part")
    with Engine(bench.executable, mode="native", keep=[x, part]) as engine:
        assert "whole+part" not in engine.listing().replace("#0 ", "").replace("#1 ", "")
    (got,) = bench.run(part, mode="native")
    assert_close(got, bench.values(x)[:5] * 2 + 1, x.dtype)
