"""Small products in f16 on every tile of a Bow IPU, against silicon."""

from __future__ import annotations

import csv
from pathlib import Path

from abele.compiler import compile_program
from abele.errors import FileFormatError
from abele.graph import Graph, Sequence
from abele.numerics import f16
from abele.poplibs import poplin
from abele.validation.figures import Bars, Comparison, Figure

SIDE = 16
"""Rows and columns of the weights that every tile holds: what the matrix units hold at once."""
_OPTIONS = {
    "use128BitConvUnitLoad": True,
    "partialsType": "half",
    "planConstraints": '{"0": {"transform": {"swapOperands": false}}}',
}
"""The measured vertex was placed by hand, with the right matrix as weights."""
_SOURCE = "TessellateIPU, notebook IPU Peak Flops"


def compare(path: str | Path) -> Comparison:
    """Figures of every row of a CSV file with columns ``N`` and ``cycles_measured``.

    Raises:
        FileFormatError: A column is missing, or a figure is no number.
    """
    figures = tuple(
        Figure(f"[{rows}, 16] x [16, 16] on every tile", "amp", predict(rows), measured, "cycles", _SOURCE)
        for rows, measured in read_silicon(path)
    )
    about = (
        "A grouped product, one group per tile. The library creates the operands where they are needed, so nothing is "
        "exchanged. Weights enter the units by 128-bit loads. Cycles of the whole program, launch included. One "
        "row gave a constant of the launch; the others test how cost grows, not where it starts."
    )
    return Comparison("silicon", "f16 products on every tile of a Bow", about, figures, Bars(0.02))


def read_silicon(path: str | Path) -> list[tuple[int, float]]:
    """Rows of the left matrix and measured cycles, line by line.

    Raises:
        FileFormatError: A column is missing, or a figure is no number.
    """
    name = Path(path).name
    found = []
    with Path(path).open(newline="") as file:
        for line, fields in enumerate(csv.DictReader(file), start=2):
            try:
                found.append((int(fields["N"]), float(fields["cycles_measured"])))
            except KeyError as missing:
                raise FileFormatError(f"{name} has no column {missing}", at=f"line {line}") from None
            except (TypeError, ValueError) as wrong:
                raise FileFormatError(f"{name}: {wrong}", at=f"line {line}") from None
    if not found:
        raise FileFormatError(f"{name} has no rows", remedy="a header N,cycles_measured and a line per measurement")
    return found


def predict(rows: int) -> float:
    """Modelled cycles of [rows, 16] by [16, 16] on every tile."""
    graph, main = Graph("bow"), Sequence()
    tiles = graph.system.ipu.num_tiles
    shapes = (tiles, rows, SIDE), (tiles, SIDE, SIDE)
    a = poplin.create_matmul_input_lhs(graph, f16, *shapes, options=_OPTIONS)
    b = poplin.create_matmul_input_rhs(graph, f16, *shapes, options=_OPTIONS)
    poplin.matmul_grouped(graph, a, b, main, options=_OPTIONS)
    return compile_program(graph, main, allow_out_of_memory=True).report.cycles().total
