"""Additions in f32 on tiles of a Bow IPU, against silicon."""

from __future__ import annotations

from abele.compiler import compile_program
from abele.graph import Graph, Sequence
from abele.numerics import f32
from abele.poplibs import popops
from abele.validation.figures import Bars, Comparison, Figure

COUNTER_CYCLES = 45
"""Cycles of reading the cycle counter, included in the measurements. Source: TessellateIPU's tests."""
ADD = {10: 330, 1024: 1860}
"""Measured cycles of f32 addition by elements per tile, on 4 to 1,024 tiles. Source: machine.md §7.1."""
SCALED_SUBTRACT = {64: 375, 128: 467, 256: 665, 512: 1043}
"""Measured cycles of f32 ``a -= s * b`` by elements, on one tile. Source: machine.md §7.1."""
_ADD_TILES = 1024


def compare() -> Comparison:
    """Figures of every measurement."""
    figures = [
        Figure(f"add, {n:,} elements per tile", "add", predict_add(n), c - COUNTER_CYCLES, "cycles", "TessellateIPU")
        for n, c in ADD.items()
    ]
    figures += [
        Figure(f"scaled subtract, {n} elements", "scaled subtract", predict_scaled(n), c - COUNTER_CYCLES, "cycles", s)
        for s in ("TessellateIPU",)
        for n, c in SCALED_SUBTRACT.items()
    ]
    about = (
        f"Element-wise library functions as whole programs. {COUNTER_CYCLES} cycles of reading the counter are taken "
        "off the measurements. One measurement of each kind gave a constant of the launch; the others test how cost "
        "grows, not where it starts."
    )
    return Comparison("elementwise", "f32 additions on a Bow", about, tuple(figures), Bars(0.03))


def predict_add(elements: int) -> float:
    """Modelled cycles of an addition of so many elements on each of 1,024 tiles."""
    graph, main = Graph("bow"), Sequence()
    a, b, out = (graph.variable(f32, (_ADD_TILES, elements), n).map_rows(range(_ADD_TILES)) for n in ("a", "b", "out"))
    popops.map_with_output(graph, popops._1 + popops._2, [a, b], out, main)
    return compile_program(graph, main).report.cycles().total


def predict_scaled(elements: int) -> float:
    """Modelled cycles of a scaled subtraction of so many elements on one tile."""
    graph, main = Graph("bow"), Sequence()
    a, b = (graph.variable(f32, (elements,), n).map(0) for n in "ab")
    popops.scaled_subtract_from(graph, a, b, 0.5, main)
    return compile_program(graph, main).report.cycles().total
