"""Factors, inverses and solves of one block of a matrix, on one worker."""

from __future__ import annotations

from abele.numerics import ElementType, f16, f32, u16
from abele.poplibs.poplin.linalg.estimates import CHOLESKY, SOLVE, formula, inverse
from abele.poplibs.public_vertices.family import Family, Instance
from abele.poplibs.public_vertices.parameters import flag, type_of
from abele.poplibs.public_vertices.text import indented, loop, state, vector, wide


def families() -> list[Family]:
    """Every vertex of this module."""
    both = (type_of(f32, f16), flag("lower"))
    return [
        Family("Cholesky", both, _cholesky, "guessed", "out = the factor of the block in, zeros beside it"),
        Family("TriangularSolve", both, _solve, "guessed", "x with a · x = b, of one half of a"),
        Family(
            "TriangularInverseWithTranspose",
            both,
            _inverse,
            "guessed",
            "out = the transposed inverse of one half of in",
        ),
    ]


def _fields(*vectors: str) -> tuple[str, ...]:
    return (*vectors, state("dim", u16))


def _at(row: str, column: str, lower: bool) -> str:
    """Index of an element of the lower half, or of its mirror image in the upper."""
    return f"{row} * n + {column}" if lower else f"{column} * n + {row}"


def _cholesky(dtype: ElementType, lower: bool) -> Instance:
    fields = _fields(vector("in_", dtype, "Input", "ONE_PTR"), vector("out", dtype, "Output", "ONE_PTR"))

    def out(row: str, column: str) -> str:
        return f"self.out[{_at(row, column, lower)}]"

    start = wide(f"self.in_[{_at('i', 'j', lower)}]", dtype, f32)
    left, right, diagonal = (wide(out(r, c), dtype, f32) for r, c in (("i", "k"), ("j", "k"), ("j", "j")))
    element = [
        f"s = {start}",
        *loop("j", [f"s = s - {left} * {right}"], "k"),
        f"s = sqrt(s) if i == j else s / ({diagonal})",
        f"{out('i', 'j')} = {wide('s', f32, dtype)}",
    ]
    return Instance("Vertex", fields, _below_diagonal(element, dtype), formula(CHOLESKY[dtype], "dim"))


def _below_diagonal(element: list[str], dtype: ElementType) -> tuple[str, ...]:
    """Statements that set elements (i, j) of the lower half of ``out``, column by column, and zeros beside it."""
    columns = loop("n", ["for i in range(j, n):", *indented(element)], "j")
    return ("n = i64(self.dim)", *loop("n * n", [f"self.out[i] = {dtype.name}(0.0)"]), *columns)


def _solve(dtype: ElementType, lower: bool) -> Instance:
    names = {"a": "Input", "b": "Input", "x": "Output"}
    fields = _fields(*(vector(name, dtype, way, "ONE_PTR") for name, way in names.items()))
    left, known = wide("self.a[i * n + j]", dtype, f32), wide("self.x[j]", dtype, f32)
    row = [
        f"i = {'q' if lower else 'n - 1 - q'}",
        f"s = {wide('self.b[i]', dtype, f32)}",
        *loop("q", [f"j = {'k' if lower else 'n - 1 - k'}", f"s = s - {left} * {known}"], "k"),
        f"s = s / {wide('self.a[i * n + i]', dtype, f32)}",
        f"self.x[i] = {wide('s', f32, dtype)}",
    ]
    return Instance("Vertex", fields, ("n = i64(self.dim)", *loop("n", row, "q")), formula(SOLVE[dtype, lower], "dim"))


def _inverse(dtype: ElementType, lower: bool) -> Instance:
    fields = _fields(vector("in_", dtype, "Input", "ONE_PTR"), vector("out", dtype, "Output", "ONE_PTR"))

    def given(row: str, column: str) -> str:
        return wide(f"self.in_[{_at(row, column, lower)}]", dtype, f32)

    def made(row: str, column: str) -> str:
        return f"self.out[{_at(column, row, lower)}]"

    element = [
        "s = f32(1.0) if i == j else f32(0.0)",
        "for k in range(j, i):",
        f"    s = s - {given('i', 'k')} * {wide(made('k', 'j'), dtype, f32)}",
        f"s = s / {given('i', 'i')}",
        f"{made('i', 'j')} = {wide('s', f32, dtype)}",
    ]
    return Instance("Vertex", fields, _below_diagonal(element, dtype), formula(inverse(dtype, lower), "dim"))
