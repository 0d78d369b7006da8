"""Files of versions 1 and 2, with other names for some parts of a report."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.report.schema import PROGRAM_TILES, STEP_GROUPS
from abele.report.table import Table
from abele.report.tile_runs import dense_runs


def program_tiles_of(compute_cycles: npt.NDArray[np.int64]) -> Table:
    """Relation of programs and tiles of a file with the cycles of each tile in program 0, int64[tiles]."""
    first, count, values = dense_runs(compute_cycles=compute_cycles)
    return PROGRAM_TILES.table(program=np.zeros(len(first)), first_tile=first, num_tiles=count, **values)


def step_groups_of(spans: Table) -> Table:
    """The relation of steps and sync groups of a file that has the first executions of steps, group by group."""
    pairs = np.unique(np.stack([spans["step"], spans["group"]], axis=1), axis=0)
    return STEP_GROUPS.table(step=pairs[:, 0], first_group=pairs[:, 1])
