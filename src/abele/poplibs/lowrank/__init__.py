"""Tile low-rank operators: a matrix compressed in tiles, and its product with vectors from the tiles' memory.

>>> import numpy as np
>>> points = np.linspace(0.0, 1.0, 64)
>>> matrix = compress(1 / (1 + abs(points[:, None] - points)), 16, tolerance=1e-3)
>>> matrix.grid, matrix.relative_error <= 1e-3
((4, 4), True)
"""

from abele.poplibs.lowrank.compressed import TileLowRank
from abele.poplibs.lowrank.compression import compress
from abele.poplibs.lowrank.operator import LowRankOperator, create_low_rank_input, create_low_rank_operator
from abele.poplibs.lowrank.order import morton_order
from abele.poplibs.lowrank.product import low_rank_multiply
from abele.poplibs.poputil.guard import guarded_functions

__all__ = [
    "LowRankOperator",
    "TileLowRank",
    "compress",
    "create_low_rank_input",
    "create_low_rank_operator",
    "low_rank_multiply",
    "morton_order",
]

globals().update(guarded_functions(globals(), __all__))
