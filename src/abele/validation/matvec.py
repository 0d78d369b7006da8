"""The matrix-vector product of Graphcore's tutorial 6 on a GC200: 10,000 × 1,000 in f32, its columns in 7 parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.compiler import compile_program
from abele.graph import Execute, Graph, Sequence, boxes
from abele.machine import systems
from abele.numerics import f32
from abele.validation.figures import Comparison, Figure
from abele.validation.matvec_vertices import Dot, Total

ROWS, COLUMNS, PARTS = 10_000, 1_000, 7
MODELLED, MEASURED = 3_718, 28_300
"""Compute cycles by the IPUModel, and as measured. Source: README of the tutorial; machine.md §7.1."""
_SOURCE = "Graphcore tutorials, tut6"


def compare() -> Comparison:
    """Compute cycles against the measurement and against Graphcore's own model."""
    estimated = _pieces(np.array([-(-COLUMNS // PARTS), PARTS]))
    figures = (
        Figure("compute, codelets as counted", "measured", predict(None), MEASURED, "cycles", _SOURCE),
        Figure("compute, the tutorial's estimates", "modelled", predict(estimated), MODELLED, "cycles", _SOURCE),
    )
    about = (
        "The codelets are those of the tutorial in our language: counted instruction by instruction they stand beside "
        "the machine, with the tutorial's own estimates (5 cycles and one for two elements) beside Graphcore's model. "
        "Exchange (8,743 cycles) and sync (135,850) are not compared: they contain the streaming of the matrix."
    )
    return Comparison("matvec", "matrix-vector product of tutorial 6 on a GC200", about, figures)


def _pieces(elements: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The tutorial's estimates for vertices of so many elements. Source: machine.md §8."""
    dot, total = (5 + (elements + 1) // 2).tolist()
    return dot, total


def predict(estimated: tuple[int, int] | None) -> int:
    """Modelled cycles of the vertices, of codelets as counted or as the two are estimated."""
    graph = Graph(systems.get("gc200"))
    tiles = graph.system.ipu.num_tiles
    matrix = graph.variable(f32, (ROWS, COLUMNS), name="matrix")
    x = graph.variable(f32, (COLUMNS,), name="x", map="linear")
    partials = graph.variable(f32, (ROWS, PARTS), name="partials")
    out = graph.variable(f32, (ROWS,), name="out")
    vertex = np.arange(ROWS * PARTS, dtype=np.int64)
    row, part = vertex // PARTS, vertex % PARTS
    tile = vertex * tiles // len(vertex)
    cuts = np.arange(PARTS + 1) * COLUMNS // PARTS
    first, size = cuts[part], np.diff(cuts)[part]
    pieces = boxes(matrix, np.stack([row, first], axis=1), np.stack([np.ones_like(size), size], axis=1))
    graph.map_regions(pieces, tile.astype(np.int32))
    graph.map_regions(boxes(partials, np.stack([row, part], axis=1), [1, 1]), tile.astype(np.int32))
    rows = np.arange(ROWS, dtype=np.int64)
    home = rows * tiles // ROWS
    graph.map_regions(boxes(out, rows[:, None], [1]), home.astype(np.int32))
    products, sums = graph.compute_set("products"), graph.compute_set("sums")
    products.vertices(
        Dot,
        tile=tile,
        row=pieces,
        x=(boxes(x, cuts[:-1, None], np.diff(cuts)[:, None]), part),
        out=partials.flatten(),
        cycles=None if estimated is None else np.full(len(tile), estimated[0]),
    )
    sums.vertices(
        Total, tile=home, x=partials, out=out, cycles=None if estimated is None else np.full(ROWS, estimated[1])
    )
    plan = compile_program(graph, Sequence(Execute(products), Execute(sums))).plan
    return sum(int(step.compute.by_tile.max()) for step in plan if step.compute is not None)
