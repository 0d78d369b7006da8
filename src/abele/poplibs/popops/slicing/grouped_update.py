"""Updates of the rows of several tables side by side, by the name of the operation."""

from __future__ import annotations

from collections.abc import Sequence

from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.poplibs.popops.slicing.multi_update import GroupsUpdate, Scale
from abele.poplibs.popops.slicing.plan import SlicePlan
from abele.poplibs.poputil.options import Options
from abele.poplibs.poputil.record_calls import takes_fields_of


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
    call = GroupsUpdate(
        graph, tensor, slices, offsets, dims=dims, sizes=sizes, prog=prog, plan=plan, options=options, name=name
    )
    call.grouped("add", scale)


@takes_fields_of(GroupsUpdate)
def grouped_multi_update_max(call: GroupsUpdate) -> None:
    """:func:`multi_update_max` for every group; see :func:`grouped_multi_update`.

    Raises:
        TensorError, TypeMismatchError, InvalidOptionError: As :func:`grouped_multi_update`.
    """
    call.grouped("max")


@takes_fields_of(GroupsUpdate)
def grouped_multi_update_mul(call: GroupsUpdate) -> None:
    """:func:`multi_update_mul` for every group; see :func:`grouped_multi_update`.

    Raises:
        TensorError, TypeMismatchError, InvalidOptionError: As :func:`grouped_multi_update`.
    """
    call.grouped("mul")
