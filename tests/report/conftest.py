"""A small report made by hand, whose figures one can check in the head."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from abele.machine import systems
from abele.report import (
    BUFFER_TILES,
    GROUPS,
    LIFETIMES,
    LIVENESS,
    OPS,
    PHASE_TILES,
    PROGRAM_TILES,
    RUNS,
    SPANS,
    STEP_GROUPS,
    STEPS,
    VARIABLE_TILES,
    VARIABLES,
    Memory,
    Report,
    sum_by_op,
)

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
        superstep=[0, 1, 1, 2, 3],
        phase=[-1, 0, 1, 2, -1],
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
        program_tiles=PROGRAM_TILES.table(
            program=[0, 1], first_tile=[0, 0], num_tiles=[NUM_TILES, 2], compute_cycles=[440, 7]
        ),
        phase_tiles=PHASE_TILES.table(
            phase=[0, 0, 1, 2],
            first_tile=[0, 4, 0, 2],
            num_tiles=[4, 4, 8, 3],
            compute_cycles=[0, 0, 180, 40],
            sent_bytes=[8, 0, 0, 0],
            received_bytes=[0, 8, 0, 0],
        ),
        variable_tiles=VARIABLE_TILES.table(
            variable=[0, 1], first_tile=[0, 4], num_tiles=[8, 4], bytes=[8, 8], padded_bytes=[8, 12]
        ),
        lifetimes=LIFETIMES.table(variable=[1, 1], first_step=[0, 3], last_step=[1, 3]),
        buffer_tiles=BUFFER_TILES.table(superstep=[1], first_tile=[5], num_tiles=[2], bytes=[32]),
        runs=RUNS.empty(),
        meta={"name": "toy", "steps_per_run": 2, "samples_per_run": 64, "sample_name": "images"},
    )


@pytest.fixture(scope="session")
def report() -> Report:
    return make_report()


def make_overlapped() -> Report:
    """Two groups, 100 cycles: a stream of 40 on one under compute of 30 on the other; they meet for an exchange."""
    steps = STEPS.table(
        name=["stream", "work", "move", "tidy"],
        kind=["stream", "compute", "exchange", "copy"],
        executions=[1, 1, 1, 2],
        cycles=[40, 30, 20, 20],
        compute_cycles=[0, 20, 0, 20],
        exchange_cycles=[0, 0, 10, 0],
        sync_cycles=[10, 10, 10, 0],
        host_cycles=[30, 0, 0, 0],
        start_cycle=[0, 0, 40, 60],
        basis="static",
    )
    groups = GROUPS.table(
        name=["IPU 0", "io"],
        tiles=[6, 2],
        busy_cycles=[90, 60],
        idle_cycles=[10, 40],
        compute_cycles=[60, 0],
        exchange_cycles=[10, 10],
        sync_cycles=[20, 20],
        host_cycles=[0, 30],
        end_cycle=[100, 60],
        tile_balance=[0.5, 0.0],
    )
    spans = SPANS.table(
        group=[1, 0, 0, 1, 0, 0],
        step=[0, 1, 2, 2, 3, 3],
        start_cycle=[0, 0, 40, 40, 60, 80],
        cycles=[40, 30, 20, 20, 20, 20],
    )
    return replace(
        make_report(),
        steps=steps,
        groups=groups,
        spans=spans,
        ops=OPS.empty(),
        phase_tiles=PHASE_TILES.empty(),
        lifetimes=LIFETIMES.empty(),
        step_groups=STEP_GROUPS.table(step=[0, 1, 2, 3], first_group=[1, 0, 0, 0], num_groups=[1, 1, 2, 1]),
        program_tiles=PROGRAM_TILES.table(program=0, first_tile=[0], num_tiles=[6], compute_cycles=[30]),
        meta={"name": "overlapped"},
    )


@pytest.fixture(scope="session")
def overlapped() -> Report:
    return make_overlapped()
