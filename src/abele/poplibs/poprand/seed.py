"""Seeds: a u32[2] on the device that the host sets and the program moves on, and the seeds of the workers."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from abele.arrays import Int64
from abele.graph import Copy, Graph, SetHwSeeds, Tensor
from abele.graph.program import Sequence
from abele.machine import Ipu
from abele.numerics import u32
from abele.poplibs.popops.elementwise.map import map_with_outputs
from abele.poplibs.popops.expr import Const, _1, _2, random_bits, select
from abele.poplibs.poprand.draw import check_seed, generate

WORDS = 4
"""32-bit words of a worker's generator. Source: machine reference §1.4 (xoroshiro128)."""
SET_SEED_CYCLES = 14 + 27 * 6
"""Tile cycles of a SetSeed vertex. Source: machine reference §1.4."""

_OWN_SEEDS: WeakKeyDictionary[Graph, int] = WeakKeyDictionary()
"""Number of the variable that holds a graph's own seed."""


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


def set_seed(graph: Graph, master_seed: Tensor, seed_modifier: int, prog: Sequence, name: str = "set_seed") -> None:
    """Seed the generator of every worker, and the seed of random operations without one.

    Every worker of every tile gets four words of its own, hashed from the master seed, the modifier and its place.

    Args:
        graph: The graph whose tiles are seeded.
        master_seed: u32[2].
        seed_modifier: Chooses among independent streams of one seed.
        prog: Sequence that the steps are appended to.
        name: Name of the step.

    Raises:
        TensorError: A seed of another shape.
        TypeMismatchError: A seed of another type.
    """
    check_seed(master_seed, name)
    graph = graph.top_level
    tiles, workers = graph.system.num_tiles, graph.system.ipu.num_workers
    seeds = graph.variable(u32, (tiles, workers, WORDS), name=f"{name}/seeds").map_rows(range(tiles))

    def cycles(size: Int64, ipu: Ipu) -> Int64:
        return np.full(len(size), SET_SEED_CYCLES, np.int64)

    generate(graph, random_bits(1, seed_modifier), [master_seed], out=seeds, prog=prog, name=name, cycles=cycles)
    prog.add(SetHwSeeds(seeds))
    own = own_seed(graph)
    generate(
        graph,
        random_bits(1, ~seed_modifier & 0x7FFFFFFF),
        [master_seed],
        out=own,
        prog=prog,
        name=f"{name}_own",
        cycles=cycles,
    )


def get_seed(graph: Graph, prog: Sequence, name: str = "get_seed") -> Tensor:
    """A u32[2] with the seed of random operations without one at this point of the program."""
    seed = graph.variable(u32, (2,), name=name, map=0)
    prog.add(Copy(own_seed(graph), seed))
    return seed


def own_seed(graph: Graph) -> Tensor:
    """Seed of ``graph`` for random operations without one of their own; made when first asked for."""
    top = graph.top_level
    if top not in _OWN_SEEDS:
        _OWN_SEEDS[top] = len(top.variables)
        create_seed(top, 0, "poprand/seed")
    return top.whole(top.variables[_OWN_SEEDS[top]])


def seed_or_own(graph: Graph, seed: Tensor | None, prog: Sequence, name: str) -> Tensor:
    """``seed``, checked; where it is None a copy of the graph's own seed, which then moves on.

    Raises:
        TensorError: A seed of another shape.
        TypeMismatchError: A seed of another type.
    """
    if seed is not None:
        check_seed(seed, name)
        return seed
    drawn = get_seed(graph, prog, f"{name}/seed")
    advance_seed(graph, own_seed(graph), prog, f"{name}/advance_seed")
    return drawn
