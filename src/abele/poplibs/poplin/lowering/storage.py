"""In which order a contraction's operands are stored, and new variables in that order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType

from abele.graph import Graph, Tensor
from abele.numerics import ElementType
from abele.poplibs.poplin.contraction.operand import Operand, allocate, blocked
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.vertices.cost import weights_per_unit
from abele.poplibs.poputil.layout import channels_per_group

_IN_GROUPS = (16, 8)
_OUT_GRAIN = 16
HALF_BLOCK = _OUT_GRAIN // 2
"""Out-channels in half a block: one pass of 8 conv units. Source: machine.md §5.4."""


@dataclass(frozen=True)
class Layouts:
    """Storage order of a contraction's operands.

    Attributes:
        blocks: Size of the blocks of ``ci``, ``co`` and ``b``, for those that are stored in blocks.
        arrange_input: True if the input must be written anew in another order.
        arrange_weights: True if the weights must be.
        halves_out: True if nothing given says how out-channels are stored, so that their blocks may be halved.
    """

    blocks: tuple[tuple[str, int], ...]
    arrange_input: bool
    arrange_weights: bool
    halves_out: bool = False

    def block(self, dim: str) -> int | None:
        """Block size of a dimension, or None where it is not stored in blocks."""
        return dict(self.blocks).get(dim)

    def halved(self) -> Layouts:
        """The same with out-channels in blocks of half the size."""
        return replace(self, blocks=tuple((dim, n // 2 if dim == "co" else n) for dim, n in self.blocks))


def layouts(
    problem: Contraction, x: Operand, w: Operand, out_blocks: Mapping[str, int], *, follows: bool = False
) -> Layouts:
    """Blocks of the operands' storage, and the operands to rewrite.

    Args:
        problem: The contraction.
        x: The input as it is; zeros are added to channels that it lacks.
        w: The weights as they are; zeros likewise.
        out_blocks: Blocks of ``co`` and ``b`` that the output is to be stored in, where that is given.
        follows: True if the weights stand for some that will be stored as the plan wants them.
    """
    channels = problem.in_channels
    x_fits = has_all(x, channels) and _sums_innermost(x, channels) and _agrees(x, "b", out_blocks)
    w_fits = has_all(w, channels) and _sums_innermost(w, channels) and _agrees(w, "co", out_blocks)
    blocks = dict(out_blocks)
    given = [b for op, fits in ((w, w_fits), (x, x_fits)) if fits and (b := op.block("ci")) is not None]
    if given:
        blocks["ci"] = given[0]
    elif not (x_fits and w_fits):
        group = next((size for size in _IN_GROUPS if channels % size == 0 and channels > size), None)
        blocks |= {} if group is None else {"ci": group}
    x_fits, w_fits = x_fits and _agrees(x, "ci", blocks), w_fits and _agrees(w, "ci", blocks)
    given_out = blocks.get("co") or (w.block("co") if w_fits and not follows else None)
    if "co" not in blocks:
        out_group = (w.block("co") if w_fits else None) or channels_per_group(problem.out_channels)
        blocks |= {"co": out_group} if out_group < problem.out_channels else {}
    if "b" not in blocks and x_fits and (samples := x.block("b")) is not None:
        blocks["b"] = samples
    halves_out = given_out is None and blocks.get("co") == _OUT_GRAIN
    return Layouts(tuple(sorted(blocks.items())), not x_fits, not w_fits, halves_out)


def has_all(operand: Operand, channels: int) -> bool:
    """True if an operand has all channels that are summed; False if zeros are to be added to them."""
    return operand.extents.get("ci", 1) == channels


def _sums_innermost(operand: Operand, channels: int) -> bool:
    """True if the channels that are summed follow each other in memory."""
    return operand.is_regular and (channels == 1 or (operand.innermost == "ci" and operand.innermost_stride == 1))


def is_in_vectors(operand: Operand, grain: int) -> bool:
    """True if channels that are summed follow each other in memory, in blocks of whole vectors of ``grain``."""
    block = operand.block("ci")
    return block is not None and block % grain == 0 and _sums_innermost(operand, operand.extents["ci"])


def _agrees(operand: Operand, dim: str, blocks: Mapping[str, int]) -> bool:
    """True if an operand stores a dimension whole or in just these blocks."""
    block = operand.block(dim)
    return block is None or block == blocks.get(dim, block)


def grains(problem: Contraction, chosen: Layouts) -> tuple[int, ...]:
    """Factor that parts of each split dimension are multiples of."""
    table = {
        "ci": chosen.block("ci") or min(weights_per_unit(problem.dtype), problem.in_channels),
        "co": chosen.block("co") or min(_OUT_GRAIN, problem.out_channels),
        "b": chosen.block("b") or 1,
    }
    return tuple(table.get(dim, 1) for dim in problem.split_dims)


def input_order(problem: Contraction, chosen: Layouts, extents: Mapping[str, int]) -> list[tuple[str, int]]:
    """Storage order of an input that is written anew: in-channels innermost, their blocks outermost."""
    order = ["g", "ci1", "b1", "b0", *problem.in_dims[3:], "ci0"]
    return blocked(_known(order, extents), dict(chosen.blocks), extents)


def weights_order(problem: Contraction, chosen: Layouts, extents: Mapping[str, int]) -> list[tuple[str, int]]:
    """Storage order of rewritten weights: elements that one vertex reads follow each other."""
    order = ["g", "co1", "ci1", *problem.weight_dims[3:], "co0", "ci0"]
    return blocked(_known(order, extents), dict(chosen.blocks), extents)


def new_output(graph: Graph, problem: Contraction, chosen: Layouts, roles: Sequence[str]) -> Tensor:
    """An unmapped output: out-channels grouped innermost, groups and their blocks outermost.

    Args:
        graph: Graph in which the output is made. problem: The contraction. chosen: Its blocks. roles: The roles of the
        output's dimensions, as in a :class:`~abele.poplibs.poplin.contraction.host_kernel.Binding`.
    """
    extents = {dim: problem.extents[dim] for role in roles for dim in role.split("*")}
    order = ["g", "co1", "b1", "b0", *problem.out_dims[3:], "co0"]
    storage = blocked(_known(order, extents), dict(chosen.blocks), extents)
    shape = [prod(problem.extents[dim] for dim in role.split("*")) for role in roles]
    return allocate(graph, problem.output, extents, storage, "out").tensor.reshape(shape)


def new_weights(
    graph: Graph,
    dtype: ElementType,
    extents: Mapping[str, int],
    name: str,
    blocks: Mapping[str, int] = MappingProxyType({}),
) -> Tensor:
    """Unmapped weights in the order that vertices read, as a view of dimensions ``extents``.

    Args:
        graph: Graph in which the weights are made.
        dtype: Element type.
        extents: Extent of every dimension by role, in the order of the view.
        name: Name of the variable.
        blocks: Sizes of the blocks of ``ci`` and ``co``, where the usual ones do not fit.
    """
    chosen = {dim: blocks.get(dim, channels_per_group(extents[dim])) for dim in ("ci", "co")}
    order = ["g", "co1", "ci1", *(d for d in extents if d[0] == "k"), "co0", "ci0"]
    return allocate(graph, dtype, extents, blocked(_known(order, extents), chosen, extents), name).tensor


def _known(order: list[str], extents: Mapping[str, int]) -> list[str]:
    """The entries of ``order`` whose dimension is among those of ``extents``."""
    return [name for name in order if name in extents or name[:-1] in extents]
