"""Planning ahead by PopLibs' names: sets of future calls, and a cache of plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from abele.errors import TypeMismatchError
from abele.graph import Graph
from abele.machine import Target
from abele.numerics import ElementType
from abele.poplibs.poplin.conv_params.cpp_params import CppConvParams
from abele.poplibs.poplin.explain import preplan_convolutions, preplan_matmuls
from abele.poplibs.poputil.kinds import PlanningCache

Options = Mapping[str, Any] | None


@dataclass(frozen=True)
class MatMulParams:
    """A product to be planned, by PopLibs' names.

    Attributes:
        inputType: Type of the operands.
        outputType: Type of the result.
        aShape: Shape of the left operand.
        bShape: Shape of the right operand.
    """

    inputType: ElementType
    outputType: ElementType
    aShape: tuple[int, ...]
    bShape: tuple[int, ...]


MatMulPlanParams = tuple[Target, MatMulParams, Options]
ConvPlanParams = tuple[Target, CppConvParams, Options]
"""Target, convolution and options of its call, as planned."""


def preplan(
    convs: Iterable[ConvPlanParams] = (),
    matmuls: Iterable[MatMulPlanParams] = (),
    cache: PlanningCache | None = None,
) -> None:
    """Plan convolutions and products ahead, so that calls find their plans made.

    Args:
        convs: (target, parameters, options) of each convolution.
        matmuls: (target, parameters, options) of each product.
        cache: Accepted from PopLibs programs; plans are kept by the library itself.

    Raises:
        TypeMismatchError: Something else than such triples.
    """
    for target, params, options in _triples(convs, CppConvParams):
        preplan_convolutions(Graph(target.system), [(params.core, params.inputType, options)])
    for target, params, options in _triples(matmuls, MatMulParams):
        shapes = (tuple(params.aShape), tuple(params.bShape))
        preplan_matmuls(Graph(target.system), [(*shapes, params.inputType, options)])


def _triples(given: Iterable[Any], kind: type) -> list[Any]:
    found = list(given)
    for item in found:
        if not (isinstance(item, tuple) and len(item) == 3 and isinstance(item[1], kind)):
            raise TypeMismatchError(
                f"preplan: {item!r} is not (target, {kind.__name__}, options)",
                remedy="poplin.ConvParams(type, …) and poplin.MatMulParams(type, type, aShape, bShape)",
            )
        if not isinstance(item[0], Target):
            raise TypeMismatchError(f"preplan: {item[0]!r} is no target", remedy="graph.getTarget()")
    return found


def preplanMatMuls(*given: Any) -> None:
    """``(set of (target, MatMulParams, options)[, cache])``, or as :func:`preplan_matmuls` takes them."""
    if given and isinstance(given[0], Graph):
        preplan_matmuls(*given)
    else:
        preplan((), *given)


def preplanConvolutions(*given: Any) -> None:
    """``(set of (target, ConvParams, options)[, cache])``, or as :func:`preplan_convolutions` takes them."""
    if given and isinstance(given[0], Graph):
        preplan_convolutions(*given)
    else:
        preplan(given[0] if given else (), (), *given[1:])
