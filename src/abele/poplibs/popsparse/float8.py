"""8-bit floats in sparse products: which there are, what products of them are, and their scales.

Blocks of 8-bit floats are multiplied by the matrix units alone, on chips that have a mode for them. Sums and results
are halves. As in poplin, operands may differ in format and scale; a further scale of each is an exponent of two, known
now or when the program runs, which the machine has in the operand's metadata.

Example: 3 · 2⁻² in F143 by 5 · 2³ in F152 with ``scales=(1, None)`` is 15 · 2².
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Array
from abele.errors import TypeMismatchError
from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.machine import System
from abele.numerics import ElementType, f16, f32, to_device
from abele.numerics.types import misfit
from abele.poplibs.poplin.contraction.host_kernel import Scaling
from abele.poplibs.poplin.operations.float8 import multiplies_quarters
from abele.poplibs.popsparse.host.dense_codelets import scaled_codelet


def result_type(dtype: ElementType) -> ElementType:
    """Type of sums and results of operands of ``dtype``. Source: low_precision.md §1.3."""
    return f16 if dtype.is_quarter else dtype


def check_chip(name: str, dtype: ElementType, system: System) -> None:
    """Refuse 8-bit floats on a chip that does not multiply them.

    Raises:
        TypeMismatchError: It does not.
    """
    if dtype.is_quarter and not multiplies_quarters(system):
        raise TypeMismatchError(
            f"{name}: {system.ipu.name} does not multiply 8-bit floats",
            because="its matrix units have no mode for them; C600 has",
            remedy="system c600 · popops.cast, and a product of half",
        )


def device_values(name: str, values: Array, dtype: ElementType) -> Array:
    """Values of a matrix as the device has them; 8-bit floats as codes.

    Raises:
        TypeMismatchError: A finite value becomes infinite, or NaN.
    """
    wrong = misfit(values, dtype) if dtype.is_narrow else None
    if wrong is not None:
        raise TypeMismatchError(
            f"{name}: {dtype} cannot hold {wrong}",
            remedy="a scale of the type, as in quarter('F143', 4), or a wider type"
            if dtype.is_quarter
            else "a wider type",
        )
    return to_device(values, dtype)


def check_pair(name: str, sparse: ElementType, other: ElementType, what: str) -> None:
    """Refuse an operand of another type; 8-bit floats may differ in format and scale.

    Raises:
        TypeMismatchError: It is of another one.
    """
    if sparse != other and not (sparse.is_quarter and other.is_quarter):
        raise TypeMismatchError(
            f"{name}: the {what} is {other}, the sparse one {sparse}",
            because="8-bit floats are multiplied by 8-bit floats alone"
            if sparse.is_quarter or other.is_quarter
            else None,
            remedy=f"popops.cast the {what} to {sparse}",
        )


def scaled_for_host(graph: Graph, x: Tensor, scaling: Scaling, name: str) -> tuple[Tensor, Sequence]:
    """An operand as the host multiplies it, times the factor of the products; and the steps that make it.

    Products are rounded once, so the factor cannot be applied to them. That of the operand is exact: codes have at most
    five bits, and f32 has exponents for all scales.
    """
    if not scaling.kind:
        return x, Sequence()
    made = graph.variable(f32, x.shape, name=f"{name}/host", map="linear")
    rows = x.size // x.shape[-1]
    step = graph.compute_set(f"{name}/host_scale")
    step.vertices(
        scaled_codelet(x.dtype, scaling.kind == "number"),
        tile=np.zeros(rows, np.int32),
        cycles=np.zeros(rows, np.int64),
        x=x.reshape((rows, x.shape[-1])),
        out=made.reshape((rows, x.shape[-1])),
        **scaling.fields(rows),
    )
    return made, Sequence(Execute(step))
