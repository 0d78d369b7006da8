"""Account of tiles: what each of them does in a run of each program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.graph.intervals import Int64
from abele.report import PROGRAM_TILES, Table
from abele.report.tile_runs import dense_runs


def program_tiles(compute: Sequence[Int64]) -> Table:
    """The relation of programs and tiles.

    Args:
        compute: Cycles that each tile computes in one run of each program, int64[tiles].
    """
    runs = [dense_runs(compute_cycles=cycles) for cycles in compute]
    return PROGRAM_TILES.table(
        program=np.repeat(np.arange(len(runs)), [len(first) for first, _, _ in runs]),
        first_tile=np.concatenate([np.zeros(0, np.int32), *(first for first, _, _ in runs)]),
        num_tiles=np.concatenate([np.zeros(0, np.int32), *(count for _, count, _ in runs)]),
        compute_cycles=np.concatenate([np.zeros(0, np.int64), *(values["compute_cycles"] for _, _, values in runs)]),
    )
