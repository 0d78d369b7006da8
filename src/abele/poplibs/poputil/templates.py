"""Names of vertex templates, as PopLibs spells them."""

from __future__ import annotations

from enum import Enum

from abele.errors import TypeMismatchError
from abele.numerics import ElementType


def template_vertex(name: str, *parameters: ElementType | Enum | bool | int | str) -> str:
    """The name of a vertex template's instance.

    Args:
        name: Name of the template.
        *parameters: Element types, enumerators, numbers, truth values, or text as it stands.

    >>> from abele.numerics import f16
    >>> template_vertex("popops::ScaledAdd", f16, "float", True, 2)
    'popops::ScaledAdd<half,float,true,2>'

    Enumerations of the libraries are named in full: ``popops::expr::UnaryOpType::EXPONENT``.

    Raises:
        TypeMismatchError: A parameter that is none of these.
    """
    return f"{name}<{','.join(map(_text, parameters))}>" if parameters else name


def _text(parameter: ElementType | Enum | bool | int | str) -> str:
    if isinstance(parameter, ElementType):
        return parameter.poplar_name
    if isinstance(parameter, Enum):
        scope = getattr(type(parameter), "__poplar_name__", type(parameter).__name__)
        return f"{scope}::{parameter.name}"
    if not isinstance(parameter, (int, str)):
        raise TypeMismatchError(
            f"{parameter!r} cannot be a parameter of a vertex template", remedy="an element type, enumerator or number"
        )
    return str(parameter).lower() if isinstance(parameter, bool) else str(parameter)
