"""The seed: a u32[2] on the device that the host sets and the program moves on."""

from __future__ import annotations

import numpy as np

from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import u32
from abele.poplibs.popops.expr import Const, _1, _2, select
from abele.poplibs.popops.map import map_with_outputs
from abele.poplibs.poprand.draw import check_seed


def create_seed(graph: Graph, value: int = 0, name: str = "seed") -> Tensor:
    """A seed variable on tile 0 that starts as the 64 bits of ``value``."""
    words = np.array([value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF], np.uint32)
    return graph.variable(u32, (2,), name=name, initial=words, map=0)


def advance_seed(graph: Graph, seed: Tensor, prog: Sequence, name: str = "advance_seed") -> None:
    """Add one to the 64-bit number that ``seed`` holds, so that the next run draws other numbers.

    Raises:
        TensorError: A seed of another shape.
        TypeMismatchError: A seed of another type.
    """
    check_seed(seed, name)
    low, high = seed[0], seed[1]
    carried = select(_2 + Const(1), _2, _1 + Const(1) == 0)
    map_with_outputs(graph, [_1 + Const(1), carried], [low, high], [low, high], prog, name)
