"""Convolutions over more field dimensions than vertices walk: one after the other, a sum over the outer kernel.

The outermost field dimension joins the batch, once for every position of the kernel along it; what is left is a
convolution with one dimension less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from abele.graph import Graph, Tensor, concat, stack
from abele.graph.program import Steps
from abele.poplibs import popops
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.poplibs.poplin.conv_params.params import ConvParams

Convolve = Callable[[Tensor, Tensor, ConvParams], Tensor]
"""A convolution, or its weight gradient, with one field dimension less, of two operands."""


def convolve_deep(
    graph: Graph, x: Tensor, weights: Tensor, params: ConvParams, prog: Steps, convolve: Convolve, name: str
) -> Tensor:
    """The convolution of ``x`` with ``weights``, by as many of one dimension less as the kernel has positions."""
    total: Tensor | None = None
    for k, shifted in _shifts(graph, x, params):
        part = convolve(shifted, weights[:, :, k], _inner(params))
        if total is None:
            total = part
        else:
            popops.add_in_place(graph, total, part, prog, name=f"{name}_sum")
    assert total is not None
    rows = total.reshape((params.batch, params.output_field[0], *total.shape[1:]))
    return rows.moveaxis(1, 2)


def weight_deltas_deep(
    graph: Graph, z_deltas: Tensor, activations: Tensor, params: ConvParams, deltas: Convolve
) -> Tensor:
    """The gradient of the weights, kernel position by kernel position along the outermost dimension."""
    rows = _into_batch(z_deltas)
    return stack([deltas(rows, x, _inner(params)) for _, x in _shifts(graph, activations, params)], 2)


def _inner(params: ConvParams) -> ConvParams:
    """The convolution without its outermost field dimension, whose outputs are samples."""
    per_dim = ("field", "kernel", "stride", "dilation", "padding_lower", "padding_upper", "input_dilation", "flip")
    rest = {name: getattr(params, name)[1:] for name in per_dim}
    return replace(params, batch=params.batch * params.output_field[0], **rest)


def _shifts(graph: Graph, x: Tensor, params: ConvParams) -> Iterator[tuple[int, Tensor]]:
    """Every position of the outermost kernel dimension, and the inputs that it meets, outputs as samples."""
    axis = params.axes[0]
    zeros: Tensor | None = None
    for k in range(axis.kernel):
        slices = []
        for o in range(axis.outputs):
            i = _met(axis, o, k)
            if i is None and zeros is None:
                zeros = graph.map_linear(graph.constant(x.dtype, x[:, :, :1].shape, 0, name="zeros"))
            slices.append(x[:, :, i : i + 1] if i is not None else zeros)
        yield k, _into_batch(concat([s for s in slices if s is not None], 2))


def _met(axis: Axis, output: int, kernel: int) -> int | None:
    """Input that an output meets at a kernel position, or None for padding and gaps between inputs."""
    position = axis.out_step * output + axis.kernel_step * kernel + axis.offset
    index, between = divmod(position, axis.in_step)
    return index if not between and 0 <= index < axis.inputs else None


def _into_batch(x: Tensor) -> Tensor:
    """[batch, channels, outer, *field] as [batch · outer, channels, *field]."""
    return x.moveaxis(2, 1).reshape((x.shape[0] * x.shape[2], x.shape[1], *x.shape[3:]))
