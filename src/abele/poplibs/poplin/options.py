"""Options of matmuls and convolutions, by PopLibs' names in snake case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from abele.errors import TypeMismatchError
from abele.numerics import ElementType, as_element_type, f16, f32

_SUPPORTED = (f16, f32)


@dataclass(frozen=True)
class Types:
    """Element types of a contraction: inputs, partials, output."""

    dtype: ElementType
    partials: ElementType
    output: ElementType


def resolve_types(name: str, dtypes: dict[str, ElementType], output_type: Any, partials_type: Any) -> Types:
    """The types of a contraction, from its operands' types and what the user asked for.

    Args:
        name: The operation, for errors.
        dtypes: Type of each operand by its name.
        output_type: Type of the result; by default that of the operands.
        partials_type: Type of partial sums; by default f32.

    Raises:
        TypeMismatchError: Operands of different types, or a type that the matrix units do not take.
    """
    kinds = list(dict.fromkeys(dtypes.values()))
    listed = ", ".join(f"{n} is {t}" for n, t in dtypes.items())
    if len(kinds) > 1:
        raise TypeMismatchError(f"{name}: operands differ in type: {listed}", remedy="cast one of them")
    chosen = Types(
        kinds[0],
        f32 if partials_type is None else as_element_type(partials_type),
        kinds[0] if output_type is None else as_element_type(output_type),
    )
    for role, kind in (("operands", chosen.dtype), ("partials", chosen.partials), ("output", chosen.output)):
        if kind not in _SUPPORTED:
            raise TypeMismatchError(f"{name}: {role} of type {kind}; f16 and f32 are supported", because=listed)
    if chosen.dtype == f32 and chosen.partials == f16:
        raise TypeMismatchError(
            f"{name}: f32 operands cannot be summed in f16 partials", remedy="partials_type=f32, or f16 operands"
        )
    return chosen
