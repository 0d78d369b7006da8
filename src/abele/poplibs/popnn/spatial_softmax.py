"""Spatial softmax: where in a field the activations are."""

from __future__ import annotations

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import f32
from abele.poplibs.popnn.softmax import softmax
from abele.poplibs.popops.elementwise.map import map
from abele.poplibs.popops.expr import _1, _2
from abele.poplibs.popops.reductions.reduce import reduce


def spatial_softmax2d(
    graph: Graph,
    prog: Sequence,
    fields: Tensor,
    temperature: float,
    disable_softmax: bool = False,
    name: str = "spatial_softmax2d",
) -> tuple[Tensor, Tensor]:
    """The mean position in each field, its elements' softmax being the weights.

    Args:
        graph: Graph in which vertices and results are made.
        prog: Sequence that the steps are appended to.
        fields: [fields, height, width], floating point.
        temperature: Divides the elements before the softmax.
        disable_softmax: Take the elements themselves as the weights.
        name: Name of the steps.

    Returns:
        Positions, [fields, 2], row and column, from -1 at the first to 1 at the last; and the temperature, one
        element of the type of ``fields``.

    Raises:
        TensorError: ``fields`` does not have three dimensions, or the temperature is 0.
        TypeMismatchError: Its elements are no floats.
    """
    if fields.ndim != 3:
        raise TensorError(f"{name}: {fields!r} is not [fields, height, width]")
    if not fields.dtype.is_float:
        raise TypeMismatchError(f"{name}: {fields!r} holds no floating-point elements")
    if temperature == 0:
        raise TensorError(f"{name}: the temperature is 0")
    count, height, width = fields.shape
    heat = graph.constant(fields.dtype, (), temperature, name=f"{name}/temperature")
    weights = fields.reshape((count, height * width))
    if not disable_softmax:
        weights = softmax(graph, map(graph, _1 / _2, [weights, heat], prog, f"{name}/heat"), prog, f"{name}/softmax")
    rows, columns = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    places = np.stack([rows.reshape(-1), columns.reshape(-1)])[None]
    numbers = graph.constant(f32, places.shape, places, name=f"{name}/places")
    moments = map(graph, _1 * _2, [weights.expand_dims(1), numbers], prog, f"{name}/moments")
    return reduce(graph, moments, [2], "ADD", prog, out_type=fields.dtype, name=f"{name}/mean"), heat
