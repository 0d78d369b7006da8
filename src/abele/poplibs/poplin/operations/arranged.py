"""Matrices and weights written anew as products and convolutions want them, and products into given tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.errors import TensorError
from abele.graph import Copy, Graph, Tensor
from abele.graph.program import Steps
from abele.poplibs.poplin.operations.create import create_matmul_input_rhs
from abele.poplibs.poplin.operations.matmul import matmul, matmul_grouped
from abele.poplibs.poputil.options import Options
from abele.poplibs.poputil.order import storage_order
from abele.words import counted


def matmul_with_output(
    graph: Graph, a: Tensor, b: Tensor, out: Tensor, prog: Steps, *, name: str = "matmul", **options: Any
) -> None:
    """Write the product ``a @ b`` to ``out``, [m, n]; see :func:`~abele.poplibs.poplin.operations.matmul.matmul`.

    Raises:
        TensorError: ``out`` does not have the shape of the product; see also ``matmul``.
    """
    _product_into(matmul, graph, a, b=b, out=out, prog=prog, name=name, options=options)


def matmul_grouped_with_output(
    graph: Graph, a: Tensor, b: Tensor, out: Tensor, prog: Steps, *, name: str = "matmul_grouped", **options: Any
) -> None:
    """Write the products ``a[i] @ b[i]`` of [g, m, k] and [g, k, n] to ``out``, [g, m, n].

    Raises:
        TensorError: ``out`` does not have the shape of the products; see also
            :func:`~abele.poplibs.poplin.operations.matmul.matmul_grouped`.
    """
    _product_into(matmul_grouped, graph, a, b=b, out=out, prog=prog, name=name, options=options)


def _product_into(
    multiply: Any, graph: Graph, a: Tensor, b: Tensor, out: Tensor, prog: Steps, name: str, options: dict[str, Any]
) -> None:
    wanted = (*a.shape[:-1], *b.shape[-1:])
    if out.shape != wanted:
        raise TensorError(f"{name}: the output {out!r} has shape {list(out.shape)}, the product has {list(wanted)}")
    made = multiply(graph, a, b, prog, output_type=out.dtype, like=out, name=name, **options)
    order = storage_order(out)
    prog.add(Copy(order.apply(made), order.apply(out)))


def pre_arrange_matmul_input_rhs(
    graph: Graph, a_shape: Sequence[int], b: Tensor, prog: Steps, *, name: str = "rhs", **options: Any
) -> Tensor:
    """The right operand ``b`` of a matmul, copied into the order and to the tiles that the matmul reads.

    Worth it where one operand serves several products, as the weights of a loop do. ``options`` are those of
    :func:`~abele.poplibs.poplin.operations.create.create_matmul_input_rhs`.

    Raises:
        TensorError: The shapes are not those of two matrices that can be multiplied.
    """
    arranged = create_matmul_input_rhs(graph, b.dtype, a_shape, b.shape, name, **options)
    prog.add(Copy(b, arranged))
    return arranged


def transpose_grouped_matrix(matrices: Tensor) -> Tensor:
    """[g, m, n] as [g, n, m]; a view.

    Raises:
        TensorError: It does not have three dimensions.
    """
    if matrices.ndim != 3:
        raise TensorError(f"transpose_grouped_matrix: {matrices!r} is not a stack of matrices [g, m, n]")
    return matrices.moveaxis(2, 1)


def fully_connected_weight_transpose(
    graph: Graph,
    weights: Tensor,
    z_shape: Sequence[int],
    prog: Steps,
    *,
    options: Options = None,
    name: str = "weights_transposed",
) -> Tensor:
    """Weights [g, in, out] or [in, out] transposed for the backward pass, and copied to where that reads them.

    Args:
        graph: The graph.
        weights: The weights of the forward pass.
        z_shape: Shape of the gradients that are to be multiplied by them, [batch, out] or [g, batch, out].
        prog: Program that the copy is appended to.
        options: PopLibs' options of the product, by name.
        name: Name of the result.

    Raises:
        TensorError: The shapes are not those of two matrices that can be multiplied.
        InvalidOptionError: A misspelt option, or a value that it does not take.
    """
    turned = weights.moveaxis(-1, -2)
    return pre_arrange_matmul_input_rhs(graph, z_shape, turned, prog, name=name, options=options)


def weights_transpose_chans_flip_xy(
    graph: Graph, weights_in: Tensor, weights_out: Tensor, prog: Steps, *, groups: int = 1
) -> None:
    """Copy weights with the channels of every group exchanged and the kernel flipped in every dimension.

    With such weights, a convolution with ``params.gradient_params()`` without its flip is the gradient of the input.

    Args:
        graph: The graph.
        weights_in: [out_channels, in_channels / groups, *kernel]; or, in PopLibs' shape, [groups, out_channels,
            in_channels, *kernel] with the channels of one group.
        weights_out: [in_channels, out_channels / groups, *kernel], or [groups, in_channels, out_channels, *kernel];
            overwritten.
        prog: Program that the copy is appended to.
        groups: Groups of channels.

    Raises:
        TensorError: The shapes do not fit each other.
    """
    grouped, exchanged = weights_in.shape, weights_out.shape
    if len(grouped) > 3 and exchanged == (grouped[0], grouped[2], grouped[1], *grouped[3:]) != _wanted(grouped, groups):
        groups = grouped[0]
        weights_in = weights_in.reshape((groups * grouped[1], *grouped[2:]))
        weights_out = weights_out.reshape((groups * grouped[2], grouped[1], *grouped[3:]))
    outs, ins, *kernel = weights_in.shape
    wanted = _wanted(weights_in.shape, groups)
    if outs % groups or weights_out.shape != wanted:
        raise TensorError(
            f"weights_transpose_chans_flip_xy: {weights_out!r} has shape {list(weights_out.shape)}, "
            f"{weights_in!r} transposed has {list(wanted)}",
            because=f"there are {counted(groups, 'group')}",
        )
    turned = weights_in.reshape((groups, outs // groups, ins, *kernel)).moveaxis(2, 1).reshape(wanted)
    for d in range(2, turned.ndim):
        turned = turned.reverse(d)
    prog.add(Copy(turned, weights_out))


def _wanted(shape: Sequence[int], groups: int) -> tuple[int, ...]:
    """The shape of weights whose channels are exchanged in every group."""
    outs, ins, *kernel = shape
    return (groups * ins, outs // groups, *kernel)
