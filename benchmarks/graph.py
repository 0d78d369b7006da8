"""Views and vertices: what building a graph costs.

Run as ``python benchmarks/graph.py``. Chains of 10,000 view operations on a variable of 100 M elements (time, and peak
memory in a second run under ``tracemalloc``), and vertices made in groups and one by one.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from abele.codelet import Input, Output, Vector, Vertex, codelet
from abele.graph import Graph, Tensor, concat
from abele.numerics import f32

SIDE = 10_000
OPERATIONS = 10_000


@codelet
class Double(Vertex):
    """Doubles a vector."""

    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self) -> None:
        """One multiplication an element."""
        for i in range(len(self.x)):
            self.y[i] = self.x[i] * 2


def matrix() -> Tensor:
    """A variable of 100 M elements."""
    return Graph("gc200").variable(f32, (SIDE, SIDE), "x")


def slices() -> Tensor:
    """A slice of a slice of a slice."""
    t = matrix()
    for i in range(OPERATIONS - 1):
        t = t.slice(1, t.shape[0]) if i % 2 else t.slice(0, t.shape[0] - 1)
    return t


def rotations() -> Tensor:
    """Two slices joined the other way round, and transposed; the two cuts are at random."""
    t, rng = matrix(), random.Random(1)
    for _ in range(OPERATIONS // 4):
        at = rng.randrange(1, SIDE)
        t = concat([t.slice(at, SIDE), t.slice(0, at)]).transpose()
    return t


def strips() -> Tensor:
    """A row less in front, a row of another variable more at the end, transposed."""
    t = matrix()
    other = t.graph.variable(f32, (1, SIDE), "w")
    for _ in range(OPERATIONS // 3):
        t = concat([t.slice(1, t.shape[0]), other]).transpose()
    return t


def shuffled() -> Tensor:
    """Three slices put in another order, so that pieces become ever smaller, and transposed."""
    t, rng = matrix(), random.Random(2)
    for _ in range(OPERATIONS // 5):
        low, high = sorted(rng.sample(range(1, SIDE), 2))
        t = concat([t.slice(low, high), t.slice(0, low), t.slice(high, SIDE)]).transpose()
    return t


def pieces() -> Tensor:
    """Single rows in another order, joined one after the other."""
    t = matrix()
    joined = t.slice(0, 1)
    for i in range(1, OPERATIONS // 2):
        at = i * 7 % SIDE
        joined = concat([joined, t.slice(at, at + 1)])
    return joined


def mixed() -> Tensor:
    """Slices, transposes, joins, reversals, flattening and back, broadcasts, new dimensions, in random order."""
    t, rng = matrix(), random.Random(3)
    done = 0
    while done < OPERATIONS:
        kind, dim = rng.randrange(7), rng.randrange(2)
        n = t.shape[dim]
        if kind == 0:
            t, done = t.transpose(), done + 1
        elif kind == 1 and n > SIDE * 9 // 10:
            t, done = t.slice(1, n, dim), done + 1
        elif kind == 2:
            t, done = t.reverse(dim), done + 1
        elif kind == 3:
            at = rng.randrange(1, n)
            t, done = concat([t.slice(at, n, dim), t.slice(0, at, dim)], dim), done + 3
        elif kind == 4:
            t, done = t.flatten().reshape(t.shape), done + 2
        elif kind == 5:
            t, done = t.broadcast(2, 0).slice(0, t.shape[0]), done + 2
        else:
            t, done = t.expand_dims(1).squeeze(1), done + 2
    return t


def one_group() -> None:
    """A million vertices at once."""
    graph = Graph("gc200")
    x, y = (graph.variable(f32, (1_000_000, 4)) for _ in range(2))
    graph.compute_set().vertices(Double, tile=np.arange(1_000_000) % graph.num_tiles, x=x, y=y)


def many_groups() -> None:
    """A thousand groups of a thousand vertices."""
    graph = Graph("gc200")
    x, y = (graph.variable(f32, (1000, 1000, 4)) for _ in range(2))
    compute_set = graph.compute_set()
    for i in range(1000):
        compute_set.vertices(Double, tile=np.arange(1000), x=x[i], y=y[i])


def one_by_one() -> None:
    """A hundred thousand vertices, each made, wired and placed by a call of its own, and gathered into a group."""
    graph = Graph("gc200")
    x, y = (graph.variable(f32, (100_000, 4)) for _ in range(2))
    compute_set = graph.compute_set()
    for i in range(100_000):
        compute_set.vertex(Double, tile=i % 1472, x=x[i], y=y[i])
    assert compute_set.groups[0].num == 100_000


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    begin = time.perf_counter()
    result = work()
    if isinstance(result, Tensor):
        assert result.content is not None
    return time.perf_counter() - begin


def peak_bytes(work: Callable[[], object]) -> int:
    """Most memory that Python and NumPy held during one call."""
    tracemalloc.start()
    try:
        seconds(work)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main() -> None:
    """Print the table."""
    print(f"{'views, 10,000 operations':<28} {'seconds':>8} {'peak MB':>8}")
    for chain in (slices, rotations, strips, shuffled, pieces, mixed):
        print(f"{chain.__name__:<28} {seconds(chain):8.2f} {peak_bytes(chain) / 1e6:8.1f}", flush=True)
    print(f"{'vertices':<28} {'seconds':>8}")
    for made in (one_group, many_groups, one_by_one):
        print(f"{made.__name__:<28} {seconds(made):8.2f}", flush=True)


if __name__ == "__main__":
    main()
