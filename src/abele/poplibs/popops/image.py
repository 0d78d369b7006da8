"""Normalising images of three channels, and adding the fourth that convolutions want."""

from __future__ import annotations

from collections.abc import Iterable

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, as_element_type, f16, f32, u8
from abele.poplibs.popops.elementwise.fill import zero
from abele.poplibs.popops.elementwise.map import map_with_output
from abele.poplibs.popops.expr import Cast, Expr, _1, _2, _3
from abele.poplibs.poputil.mapping import linear_mapping, set_mapping
from abele.words import counted

CHANNELS_IN, CHANNELS_OUT = 3, 4


def create_normalise_image_input(
    graph: Graph, dtype: ElementType | str, shape: Iterable[int], name: str = "image"
) -> Tensor:
    """A new tensor [..., 3] for :func:`normalise_image`, whole pixels on a tile.

    Raises:
        TensorError: The last dimension is not 3.
    """
    made = graph.variable(as_element_type(dtype), tuple(shape), name=name)
    _check_channels(made, name)
    return set_mapping(graph, made, linear_mapping(graph, made.size, made.dtype, grain=4 * CHANNELS_IN))


def normalise_image(
    graph: Graph,
    image: Tensor,
    scale: float,
    offsets: Tensor,
    scales: Tensor,
    prog: Sequence,
    name: str = "normalise_image",
) -> Tensor:
    """(``image`` · ``scale`` − ``offsets``) · ``scales`` by channel, with a fourth channel of zeros.

    Args:
        graph: Graph in which vertices and the result are made.
        image: [..., 3], u8, f16 or f32.
        scale: Multiplies everything.
        offsets: [3], f16 or f32.
        scales: [3], of the offsets' type.
        prog: Sequence that the steps are appended to.
        name: Name of the step.

    Returns:
        [..., 4] of the image's type; f16 for u8.

    Raises:
        TensorError: Not three channels.
        TypeMismatchError: Types other than those.
    """
    if image.dtype not in (u8, f16, f32):
        raise TypeMismatchError(f"{name}: {image!r} is {image.dtype}, it must be u8, f16 or f32")
    for tensor in (image, offsets, scales):
        _check_channels(tensor, name)
    if offsets.dtype != scales.dtype or not offsets.dtype.is_float:
        raise TypeMismatchError(
            f"{name}: offsets are {offsets.dtype} and scales {scales.dtype}, both must be one float"
        )
    dtype = f16 if image.dtype == u8 else image.dtype
    out = graph.variable(dtype, (*image.shape[:-1], CHANNELS_OUT), name=f"{name}/out")
    set_mapping(graph, out, linear_mapping(graph, out.size, dtype, grain=CHANNELS_OUT))
    pixel: Expr = Cast(_1, f32) if image.dtype == u8 else _1
    value = Cast((pixel * float(scale) - _2) * _3, dtype)
    colours = out.slice(0, CHANNELS_IN, out.ndim - 1)
    map_with_output(graph, value, [image, offsets, scales], colours, prog, name)
    zero(graph, out.slice(CHANNELS_IN, CHANNELS_OUT, out.ndim - 1), prog, f"{name}/fourth")
    return out


def _check_channels(tensor: Tensor, name: str) -> None:
    if tensor.ndim == 0 or tensor.shape[-1] != CHANNELS_IN:
        raise TensorError(
            f"{name}: {tensor!r} of shape {list(tensor.shape)} does not have {counted(CHANNELS_IN, 'channel')} last"
        )
