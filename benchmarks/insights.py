"""What insights and comparisons of a Pod64's report take: 94,208 tiles, 50,000 steps, 100,000 variables.

Prints milliseconds, the best and the median of several runs, and the best of the processor, which other
work on the machine does not lengthen: of reports in memory, and of one that was just opened, so that the columns that
insights ask for are read from the file and checked.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from abele.machine import systems
from abele.report import (
    BUFFER_TILES,
    CRITICAL,
    GROUPS,
    LIFETIMES,
    LIVENESS,
    OPS,
    PHASE_TILES,
    PROGRAM_TILES,
    STEP_GROUPS,
    STEPS,
    VARIABLE_TILES,
    VARIABLES,
    Memory,
    Report,
    sum_by_op,
)
from abele.report.compare import compare

SYSTEM = systems.get("bow-pod64")
NUM_STEPS, NUM_OPS, NUM_VARIABLES = 50_000, 5_000, 100_000
RUNS_OF_STEP, RUNS_OF_VARIABLE = 20, 10
LINES = 40
TIMES = 9


def pod_report(seed: int) -> Report:
    """A report of random figures."""
    rng = np.random.default_rng(seed)
    tiles, ipus = SYSTEM.num_tiles, SYSTEM.num_ipus
    kind = rng.integers(0, 3, NUM_STEPS)
    compute = np.where(kind != 1, rng.integers(10, 10_000, NUM_STEPS), 0)
    exchange = np.where(kind == 1, rng.integers(10, 10_000, NUM_STEPS), 0)
    cycles = compute + exchange + 64
    op = np.sort(rng.integers(0, NUM_OPS, NUM_STEPS))
    number = np.arange(NUM_STEPS)
    steps = STEPS.table(
        name=[f"layer{o // LINES}/op{o % LINES}/part{n % 10}" for n, o in enumerate(op.tolist())],
        kind=np.array(["compute", "exchange", "copy"])[kind],
        op=op,
        superstep=number,
        executions=rng.integers(1, 100, NUM_STEPS),
        cycles=cycles,
        compute_cycles=compute,
        exchange_cycles=exchange,
        sync_cycles=64,
        tile_balance=rng.random(NUM_STEPS),
        exchanged_bytes=exchange * 1000,
        num_vertices=rng.integers(1, 10_000, NUM_STEPS),
        active_tiles=rng.integers(1, 1472, NUM_STEPS),
        phase=number,
        basis="static",
    )
    ops = OPS.table(
        name=[f"op{o % LINES}" for o in range(NUM_OPS)],
        path=[f"layer{o // LINES}" for o in range(NUM_OPS)],
        kind="poplin.matmul",
        file="model.py",
        line=np.arange(NUM_OPS) % LINES + 1,
        flops=rng.integers(1, 10**9, NUM_OPS),
        **sum_by_op(steps, NUM_OPS),
    )
    always = rng.random(NUM_VARIABLES) < 0.2
    first = rng.integers(0, NUM_STEPS, NUM_VARIABLES)
    last = np.minimum(first + rng.integers(0, 1000, NUM_VARIABLES), NUM_STEPS - 1)
    brief = np.flatnonzero(~always)
    return Report(
        target=SYSTEM.figures(),
        graph={},
        steps=steps,
        ops=ops,
        memory=Memory.of(tiles, 638_976, variables=rng.integers(1, 300_000, tiles), temporaries=200_000),
        variables=VARIABLES.table(
            name=[f"layer{v // 800}/op{v % LINES}/v{v}" for v in range(NUM_VARIABLES)],
            type="f32",
            bytes=rng.integers(1, 10**6, NUM_VARIABLES),
            tiles=1472,
            always_live=always,
            first_step=np.where(always, -1, first),
            last_step=np.where(always, -1, last),
        ),
        liveness=LIVENESS.empty(),
        groups=GROUPS.table(
            name=[f"IPU {n}" for n in range(ipus)],
            tiles=tiles // ipus,
            busy_cycles=rng.integers(1, 10**9, ipus),
            end_cycle=10**9,
            compute_cycles=10**8,
        ),
        critical=CRITICAL.table(step=number, cycles=cycles * 2),
        step_groups=STEP_GROUPS.table(step=number, first_group=rng.integers(0, ipus, NUM_STEPS)),
        phase_tiles=PHASE_TILES.table(
            phase=np.repeat(number, RUNS_OF_STEP),
            first_tile=np.tile(np.arange(RUNS_OF_STEP) * 70, NUM_STEPS),
            num_tiles=70,
            compute_cycles=100,
            sent_bytes=rng.integers(0, 10_000, NUM_STEPS * RUNS_OF_STEP),
            received_bytes=rng.integers(0, 10_000, NUM_STEPS * RUNS_OF_STEP),
        ),
        program_tiles=PROGRAM_TILES.table(
            program=np.zeros(tiles, np.int32), first_tile=np.arange(tiles), compute_cycles=rng.integers(0, 10**8, tiles)
        ),
        variable_tiles=VARIABLE_TILES.table(
            variable=np.repeat(np.arange(NUM_VARIABLES), RUNS_OF_VARIABLE),
            first_tile=rng.integers(0, tiles - 100, NUM_VARIABLES * RUNS_OF_VARIABLE),
            num_tiles=50,
            bytes=100,
            padded_bytes=104,
        ),
        lifetimes=LIFETIMES.table(variable=brief, first_step=first[brief], last_step=last[brief]),
        buffer_tiles=BUFFER_TILES.table(
            superstep=np.repeat(number, 5), first_tile=np.tile(np.arange(5) * 1000, NUM_STEPS), num_tiles=900, bytes=100
        ),
        meta={"programs": ["main"], "name": "pod"},
    )


def measured(name: str, run: Callable[[], object]) -> None:
    """Print what ``run`` takes."""
    taken, worked = [], []
    for _ in range(TIMES):
        begin, began = time.perf_counter(), time.process_time()
        run()
        taken.append((time.perf_counter() - begin) * 1e3)
        worked.append((time.process_time() - began) * 1e3)
    print(f"{name:<44}{min(taken):>8.0f} ms  median {statistics.median(taken):>6.0f} ms  CPU {min(worked):>6.0f} ms")


def main() -> None:
    """Print all figures."""
    reports = [pod_report(seed) for seed in range(2)]
    measured("insights", lambda: reports[0].insights())
    measured("insights, as JSON", lambda: reports[0].insights().to_json())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pod"
        reports[0].save(path)
        measured("insights of a file, opening it included", lambda: Report.load(path).insights())
    measured("comparison of two", lambda: compare(reports))
    measured("comparison of two, as JSON", lambda: compare(reports).to_json())


if __name__ == "__main__":
    main()
