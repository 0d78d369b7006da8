"""A small report made by hand, whose figures one can check in the head."""

from __future__ import annotations

import numpy as np
import pytest

from abele.machine import systems
from abele.report import LIVENESS, OPS, RUNS, STEPS, VARIABLES, Memory, Report, sum_by_op

NUM_TILES = 8


def make_report() -> Report:
    steps = STEPS.table(
        name=["in", "conv/exchange", "conv/multiply", "loss", "other program"],
        kind=["stream", "exchange", "compute", "compute", "control"],
        program=[0, 0, 0, 0, 1],
        op=[-1, 0, 0, 1, -1],
        executions=[2, 4, 4, 4, 1],
        cycles=[100, 50, 200, 50, 7],
        compute_cycles=[0, 0, 180, 40, 0],
        exchange_cycles=[0, 30, 0, 0, 0],
        sync_cycles=[0, 20, 20, 10, 7],
        host_cycles=[100, 0, 0, 0, 0],
        tile_balance=[0, 0, 0.5, 0.5, 0],
    )
    ops = OPS.table(
        name=["conv", "loss"],
        kind=["poplin.convolution", "popnn.nll"],
        path=["layer1", ""],
        file=["model.py", "model.py"],
        line=[12, 20],
        flops=[1000, 10],
        **sum_by_op(steps.where("program", 0), 2),
    )
    return Report(
        target={**systems.bow_2000().with_ipus(1).figures(), "num_tiles": NUM_TILES},
        graph={"num_variables": 3, "num_compute_sets": 2},
        steps=steps,
        ops=ops,
        memory=Memory.of(NUM_TILES, 1000, variables=np.arange(NUM_TILES) * 10, stacks=100, gaps=4),
        variables=VARIABLES.table(name=["w", "x"], type="f32", bytes=[64, 32], always_live=[True, False]),
        liveness=LIVENESS.table(step=[0, 1], live_bytes=[32, 32], max_tile_bytes=[4, 4]),
        compute_cycles_by_tile=np.full(NUM_TILES, 440, np.int64),
        runs=RUNS.empty(),
        meta={"name": "toy", "steps_per_run": 2, "samples_per_run": 64, "sample_name": "images"},
    )


@pytest.fixture(scope="session")
def report() -> Report:
    return make_report()
