"""Modelled seconds of published products with dynamic sparse matrices.

Published patterns are uniform and random; so is ours, whose fullest cell and whose spills decide.
"""

from __future__ import annotations

from abele.errors import OutOfMemoryError, SparsePatternError
from abele.machine import System
from abele.poplibs.popsparse import dynamic
from abele.poplibs.popsparse.explanation import SparseProblem


def dynamic_seconds(problem: SparseProblem, system: System) -> float:
    """Seconds of ``popsparse::dynamic``.

    Raises:
        OutOfMemoryError: It fits no tile, or no grid of tiles.
    """
    try:
        found = dynamic.sparse_figure(
            problem.m, problem.k, problem.n, problem.density, problem.block, problem.dtype, target=system
        )
    except SparsePatternError as error:
        # Offsets beyond 16 bits, or columns off the grain: no program either.
        raise OutOfMemoryError(error.message, because=error.because, remedy=error.remedy) from error
    return found.compiled / system.ipu.clock_hz
