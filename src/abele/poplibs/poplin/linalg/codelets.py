"""The vertices of dense factorisations and solves: scalar loops over one block of a matrix.

PopLibs' vertices are compiled C++ without hand vectorisation. Their measured costs are not public, so these have no
formula: the issue slots of the loops as written are counted (machine reference §1.2, §1.3). Confidence: derived.
"""

from __future__ import annotations

from functools import lru_cache

from abele.numerics import ElementType, f32
from abele.poplibs.popops.generated import build, type_name


@lru_cache(maxsize=16)
def cholesky_codelet(dtype: ElementType) -> type:
    """The lower factor of one block ``x`` (n·n elements) in its place, zeros above the diagonal, on one worker.

    A block that is not positive definite takes the root of a negative number: not-a-number, there and below.
    """
    fields = [f"x: InOut[Vector[{dtype.name}]]", "n: i32"]
    lines = [
        "for j in range(self.n):",
        f"    d = {_wide('self.x[j * self.n + j]', dtype)}",
        "    for k in range(j):",
        f"        e = {_wide('self.x[j * self.n + k]', dtype)}",
        "        d = d - e * e",
        "    d = sqrt(d)",
        f"    self.x[j * self.n + j] = {_narrow('d', dtype)}",
        "    for i in range(j + 1, self.n):",
        f"        s = {_wide('self.x[i * self.n + j]', dtype)}",
        "        for k in range(j):",
        f"            left = {_wide('self.x[i * self.n + k]', dtype)}",
        f"            right = {_wide('self.x[j * self.n + k]', dtype)}",
        "            s = s - left * right",
        f"        self.x[i * self.n + j] = {_narrow('s / d', dtype)}",
        f"        self.x[j * self.n + i] = {_narrow('f32(0.0)', dtype)}",
    ]
    return build("Cholesky", "Vertex", fields, lines, None, extra=dtype)


@lru_cache(maxsize=16)
def inverse_codelet(dtype: ElementType) -> type:
    """The inverse ``y`` of one triangular block ``x`` (n·n elements), its columns split over the workers.

    ``row`` and ``column`` are the steps between rows and columns of both: 1 and n turn an upper triangle into a lower
    one. Only the triangle of ``x`` is read, and not its diagonal where ``unit`` is 1.
    """
    fields = [f"x: Input[Vector[{dtype.name}]]", f"y: Output[Vector[{dtype.name}]]"]
    fields += ["n: i32", "row: i32", "column: i32", "unit: i32"]
    lines = [
        "for j in range(worker_id, self.n, 6):",
        "    for i in range(j):",
        f"        self.y[i * self.row + j * self.column] = {_narrow('f32(0.0)', dtype)}",
        "    for i in range(j, self.n):",
        "        s = f32(0.0)",
        "        if i == j:",
        "            s = f32(1.0)",
        "        for k in range(j, i):",
        f"            left = {_wide('self.x[i * self.row + k * self.column]', dtype)}",
        f"            right = {_wide('self.y[k * self.row + j * self.column]', dtype)}",
        "            s = s - left * right",
        "        if self.unit == 0:",
        f"            s = s / {_wide('self.x[i * self.row + i * self.column]', dtype)}",
        f"        self.y[i * self.row + j * self.column] = {_narrow('s', dtype)}",
    ]
    return build("TriangularInverse", "MultiVertex", fields, lines, None, extra=dtype)


def _wide(text: str, dtype: ElementType) -> str:
    return text if dtype == f32 else f"f32({text})"


def _narrow(text: str, dtype: ElementType) -> str:
    return text if dtype == f32 else f"{type_name(dtype)}({text})"
