"""Creating operands in the layouts that matmuls and convolutions read.

Correctness never depends on them: any view will do. An operand made here needs no rearrangement before use, and weights
made here share their order and their tiles with the gradients that are made ``like`` them.
"""

from __future__ import annotations

from collections.abc import Sequence

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.numerics import ElementType, as_element_type
from abele.poplibs.poplin.layouts import new_weights
from abele.poplibs.poplin.params import ConvParams
from abele.poplibs.poputil.layout import channels_per_group, create_activations


def create_input(graph: Graph, params: ConvParams, dtype: ElementType | str, name: str = "activations") -> Tensor:
    """The input of a convolution, [batch, in_channels, *field], channels grouped innermost, spread over the tiles."""
    group = channels_per_group(params.in_channels // params.groups)
    return create_activations(graph, dtype, params.input_shape, name, group=group)


def create_weights(graph: Graph, params: ConvParams, dtype: ElementType | str, name: str = "weights") -> Tensor:
    """The weights of a convolution, [out_channels, in_channels / groups, *kernel], in the order that vertices read."""
    extents = {"g": params.groups, "co": params.out_channels // params.groups, "ci": params.weights_shape[1]}
    extents |= {f"k{d}": n for d, n in enumerate(params.kernel)}
    return new_weights(graph, as_element_type(dtype), extents, name).reshape(params.weights_shape)


def create_biases(graph: Graph, params: ConvParams, dtype: ElementType | str, name: str = "biases") -> Tensor:
    """The biases of a convolution, [out_channels], spread over the tiles."""
    return graph.variable(dtype, params.out_channels, name=name, map="linear")


def create_matmul_input_lhs(
    graph: Graph, dtype: ElementType | str, a_shape: Sequence[int], b_shape: Sequence[int], name: str = "lhs"
) -> Tensor:
    """The left operand of a matmul, [m, k], or [g, m, k] for a grouped one: columns grouped innermost.

    Raises:
        TensorError: The shapes are not those of two matrices that can be multiplied.
    """
    _check_shapes(a_shape, b_shape)
    *groups, rows, inner = a_shape
    group = channels_per_group(inner)
    variable = graph.variable(dtype, (*groups, inner // group, rows, group), name=name)
    graph.map_linear(variable, min_elements=group, grain=group)
    return variable.moveaxis(-2, -3).reshape(tuple(a_shape))


def create_matmul_input_rhs(
    graph: Graph, dtype: ElementType | str, a_shape: Sequence[int], b_shape: Sequence[int], name: str = "rhs"
) -> Tensor:
    """The right operand of a matmul, [k, n], or [g, k, n] for a grouped one, in the order that vertices read.

    Raises:
        TensorError: The shapes are not those of two matrices that can be multiplied.
    """
    _check_shapes(a_shape, b_shape)
    *groups, inner, columns = b_shape
    extents = ({"g": groups[0]} if groups else {}) | {"co": columns, "ci": inner}
    made = new_weights(graph, as_element_type(dtype), extents, name)
    return made.moveaxis(-1, -2)


def _check_shapes(a_shape: Sequence[int], b_shape: Sequence[int]) -> None:
    fits = len(a_shape) == len(b_shape) in (2, 3)
    if not fits or a_shape[-1] != b_shape[-2] or tuple(a_shape[:-2]) != tuple(b_shape[:-2]):
        raise TensorError(
            f"matmul: shapes {list(a_shape)} and {list(b_shape)} are not those of matrices to be multiplied",
            remedy="[m, k] by [k, n], or [g, m, k] by [g, k, n]",
        )
