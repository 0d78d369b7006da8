"""Winograd's transforms of convolutions with 3×3 kernels to patches of 2×2 outputs: data, kernels and results.

Rows of a field are the elements of patches, one after the other, each a vector over channels. Both sides of a patch are
transformed alike, so it makes no difference which of them comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from abele.numerics import ElementType, f16, f32
from abele.poplibs.public_vertices.family import Family, Instance, refuse
from abele.poplibs.public_vertices.parameters import TemplateParameter, number, type_of
from abele.poplibs.public_vertices.text import loop, rows, wide

Matrix = Sequence[Sequence[float]]

DATA: Matrix = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
KERNEL: Matrix = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
RESULT: Matrix = ((1, 1, 1, 0), (0, 1, -1, -1))
"""Source: Lavin and Gray, Fast algorithms for convolutional neural networks (2015), F(2×2, 3×3)."""


def families() -> list[Family]:
    """Every vertex of this module."""
    sizes: tuple[TemplateParameter, ...] = (
        type_of(f32, f16),
        number("patchSizeX", example=4),
        number("patchSizeY", example=4),
        number("kernelX", example=3),
        number("kernelY", example=3),
    )
    return [
        Family("WgdDataTransform", sizes, _transform(DATA, "dIn", "dTf"), "likely", "patches of 4×4 inputs"),
        Family("WgdKernelTransform", sizes, _transform(KERNEL, "wIn", "wTf"), "likely", "kernels of 3×3"),
        Family(
            "WgdInverseTransform", sizes, _transform(RESULT, "dTf", "dOut"), "likely", "patches back to 2×2 outputs"
        ),
    ]


def _transform(matrix: Matrix, source: str, target: str) -> Callable[..., Instance]:
    def make(dtype: ElementType, patch_x: int, patch_y: int, kernel_x: int, kernel_y: int) -> Instance:
        if (patch_x, patch_y, kernel_x, kernel_y) != (4, 4, 3, 3):
            raise refuse("only patches of 4×4 with kernels of 3×3 are there", "<…,4,4,3,3>")
        high, wide_ = len(matrix), len(matrix[0])
        lines = []
        for a in range(high):
            for b in range(high):
                value = _sum(matrix[a], matrix[b], f"self.{source}[n * {wide_**2} + {{}}][i]", dtype)
                lines.append(f"self.{target}[n * {high**2} + {a * high + b}][i] = {wide(value, f32, dtype)}")
        fields = (rows(source, dtype), rows(target, dtype, "Output", "ONE_PTR"))
        body = loop(f"len(self.{source}) // {wide_**2}", loop(f"len(self.{source}[n * {wide_**2}])", lines), "n")
        return Instance("Vertex", fields, tuple(body))

    return make


def _sum(left: Sequence[float], right: Sequence[float], element: str, dtype: ElementType) -> str:
    """The elements of a patch, each times its factors of both sides."""
    terms = [
        f"{wide(element.format(i * len(left) + j), dtype, f32)} * {float(x * y)!r}"
        for i, x in enumerate(left)
        for j, y in enumerate(right)
        if x * y
    ]
    return " + ".join(terms)
