"""Updates of the rows of several tables side by side, by the name of what they do."""

from __future__ import annotations

from collections.abc import Sequence

from abele.graph import Graph, Tensor
from abele.graph.program import Sequence as Steps
from abele.poplibs.popops.slicing.multi_update import Scale, grouped_multi_update
from abele.poplibs.popops.slicing.plan import SlicePlan
from abele.poplibs.poputil.options import Options


def grouped_multi_update_add(
    graph: Graph,
    tensor: Tensor,
    slices: Tensor,
    offsets: Tensor,
    scale: Scale,
    dims: Sequence[int],
    sizes: Sequence[int],
    prog: Steps,
    plan: SlicePlan | None = None,
    *,
    options: Options = None,
    name: str = "grouped_multi_update_add",
) -> None:
    """:func:`multi_update_add` for every group; see :func:`grouped_multi_update`.

    Raises:
        TensorError, TypeMismatchError, InvalidOptionError: As :func:`grouped_multi_update`.
    """
    given = tensor, slices, offsets, dims, sizes, prog, plan
    grouped_multi_update(graph, *given, operation="add", scale=scale, options=options, name=name)


def grouped_multi_update_max(
    graph: Graph,
    tensor: Tensor,
    slices: Tensor,
    offsets: Tensor,
    dims: Sequence[int],
    sizes: Sequence[int],
    prog: Steps,
    plan: SlicePlan | None = None,
    *,
    options: Options = None,
    name: str = "grouped_multi_update_max",
) -> None:
    """:func:`multi_update_max` for every group; see :func:`grouped_multi_update`.

    Raises:
        TensorError, TypeMismatchError, InvalidOptionError: As :func:`grouped_multi_update`.
    """
    given = tensor, slices, offsets, dims, sizes, prog, plan
    grouped_multi_update(graph, *given, operation="max", options=options, name=name)


def grouped_multi_update_mul(
    graph: Graph,
    tensor: Tensor,
    slices: Tensor,
    offsets: Tensor,
    dims: Sequence[int],
    sizes: Sequence[int],
    prog: Steps,
    plan: SlicePlan | None = None,
    *,
    options: Options = None,
    name: str = "grouped_multi_update_mul",
) -> None:
    """:func:`multi_update_mul` for every group; see :func:`grouped_multi_update`.

    Raises:
        TensorError, TypeMismatchError, InvalidOptionError: As :func:`grouped_multi_update`.
    """
    given = tensor, slices, offsets, dims, sizes, prog, plan
    grouped_multi_update(graph, *given, operation="mul", options=options, name=name)
