"""Dense products in f16 on a Bow IPU, against silicon."""

from __future__ import annotations

from collections.abc import Iterator

from abele.compiler import compile_program
from abele.graph import Graph, Sequence
from abele.numerics import f16
from abele.poplibs import poplin
from abele.validation.figures import Bars, Comparison, Figure

MEASURED: dict[int, dict[int, float]] = {
    1024: {
        4: 6.0,
        16: 20.3,
        64: 45.5,
        256: 89.3,
        1024: 120,
        2048: 153,
        4096: 180,
        8192: 206,
        16384: 223,
        32768: 223,
        65536: 235,
    },
    4096: {4: 18.2, 16: 61.2, 64: 130, 256: 175, 1024: 206, 2048: 223, 4096: 228, 8192: 231},
    8192: {4: 21},
}
"""TFLOP/s by m = k, then by n. Read from a figure of PopSparse (arXiv 2303.16999), within 3 %; one Bow IPU at 1.85 GHz,
Poplar SDK 3.1; cycles of the product with its exchange, without the host. Source: machine.md §7.2."""
_OPTIONS = {"partialsType": "half"}
"""All that the measured program sets."""


def compare() -> Comparison:
    """Figures of every product."""
    about = (
        "An m x k matrix times a k x n matrix, with the default options of the library but for partial sums, which are "
        "halves. Operands are created by the library, and the product is the whole program. The measured values are "
        "read off a figure within 3 %."
    )
    return Comparison("gemm", "dense f16 products on a Bow", about, tuple(_figures()), Bars(0.20, 0.08))


def _figures() -> Iterator[Figure]:
    for side, row in MEASURED.items():
        for columns, measured in row.items():
            name = f"m = k = {side:,}, n = {columns:,}"
            yield Figure(name, f"m = k = {side:,}", predict(side, columns), measured, "TFLOP/s", "arXiv 2303.16999")


def predict(side: int, columns: int) -> float:
    """Modelled TFLOP/s of a product of [side, side] by [side, columns]."""
    graph, main = Graph("bow"), Sequence()
    shapes = (side, side), (side, columns)
    left = poplin.create_matmul_input_lhs(graph, f16, *shapes, options=_OPTIONS)
    right = poplin.create_matmul_input_rhs(graph, f16, *shapes, options=_OPTIONS)
    poplin.matmul(graph, left, right, main, options=_OPTIONS)
    report = compile_program(graph, main, allow_out_of_memory=True).report
    return 2 * side * side * columns / report.seconds(report.cycles().total) / 1e12
