"""Convolutions without a kernel as plain products: samples and field as one dimension, in fewer and longer pieces.

Without a kernel no output position mixes with another, so [batch, field] is one dimension of rows. The planner can then
cut it anywhere instead of per sample and per field dimension: parts are more even, and a slice is one piece of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from abele.graph import ComputeSet, Graph, Tensor
from abele.poplibs.poplin.contraction.host_kernel import Binding
from abele.poplibs.poplin.contraction.operand import Operand, operand
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.poplibs.poplin.lowering.call import ContractionCall, Meaning, Rewriting, Unfolding
from abele.poplibs.poplin.planner.target import PlanningTarget


def flat_rows(call: ContractionCall) -> ContractionCall:
    """A convolution or its input gradient without a kernel, with samples and field together as the batch.

    Args:
        call: One whose input is [batch, channels, *field], and whose axes are all pointwise.
    """
    batch, _, *field = call.x.tensor.shape
    problem = replace(call.problem, batch=batch * prod(field), axes=())
    x = Binding(flattened(call.x.tensor), (call.x.roles[1], "b"), call.x.groups)
    w = Binding(call.w.tensor.reshape(call.w.tensor.shape[:2]), call.w.roles[:2], call.w.groups)

    def restore(out: Tensor) -> Tensor:
        return out.reshape((out.shape[0], batch, *field)).moveaxis(0, 1)

    seen = call.meaning or Meaning(call.problem, call.x, call.w, call.out_roles, restore)
    meaning = replace(seen, restore=restore)
    return replace(call, problem=problem, x=x, w=w, out_roles=(call.out_roles[1], "b"), meaning=meaning)


def flat_sum(call: ContractionCall) -> ContractionCall:
    """A weight gradient without a kernel, summed over samples and field together.

    Args:
        call: One whose operands are both [batch, channels, *field], and whose axes are all pointwise.
    """
    batch, _, *field = call.x.tensor.shape
    problem = replace(call.problem, in_channels=batch * prod(field), axes=())
    x, w = (Binding(flattened(b.tensor), (b.roles[1], "ci"), b.groups) for b in (call.x, call.w))
    like = None if call.like is None else call.like.reshape(call.like.shape[:2])

    def restore(out: Tensor) -> Tensor:
        return out.reshape((*out.shape, *(1 for _ in field)))

    meaning = Meaning(call.problem, call.x, call.w, call.out_roles, restore)
    return replace(call, problem=problem, x=x, w=w, out_roles=call.out_roles[:2], like=like, meaning=meaning)


def flat_windows(call: ContractionCall, expansion: Rewriting, *, field_first: bool) -> ContractionCall:
    """A convolution whose windows are written out, or the gradient of one, with samples and field as the batch.

    PopLibs flattens whatever has no kernel left (its transform ``flattenDims``): a weight gradient's rows are then cut
    anywhere in in-channels and kernel positions together.

    Args:
        call: One whose operands are [g, b, ci, *field] and [g, co, ci, *kernel], and whose axes are all pointwise.
        expansion: Way in which its windows are written out.
        field_first: True if the field is outside of samples there.
    """
    problem, roles = call.problem, call.out_roles
    field = [axis.outputs for axis in problem.axes]
    flat = replace(problem, batch=problem.batch * prod(field), axes=())
    x = Binding(windows_as_rows(call.x.tensor, field_first=field_first), flat.in_dims, 1)
    w = Binding(call.w.tensor.reshape(call.w.tensor.shape[:3]), flat.weight_dims, 1)
    rows = {"b": problem.batch} | {f"o{d}": extent for d, extent in enumerate(field)}
    order = [*list(rows)[1:], "b"] if field_first else list(rows)

    def restore(out: Tensor) -> Tensor:
        """[g · co, b] as the output with its field."""
        apart = out.reshape((problem.groups, problem.out_channels, *(rows[dim] for dim in order)))
        at = {"g": 0, "co": 1} | {dim: 2 + place for place, dim in enumerate(order)}
        turned = apart.transpose([at[dim] for role in roles for dim in role.split("*")])
        return turned.reshape([prod(problem.extents[dim] for dim in role.split("*")) for role in roles])

    return replace(
        call,
        problem=flat,
        x=x,
        w=w,
        out_roles=("g*co", "b"),
        expansion=FlatRewriting(
            expansion, lambda made: windows_as_rows(made, field_first=field_first), ("g", "b", "ci")
        ),
        widening=None if call.widening is None else FlatRewriting(call.widening, _as_matrix, ("g", "co", "ci")),
        unfold=Unfolding(roles, restore),
    )


def flat_samples(call: ContractionCall, expansion: Rewriting, *, field_first: bool) -> ContractionCall:
    """A convolution of which one dimension has a kernel and another has none left, with samples joined to that one.

    Vertices go along the innermost dimension, a start-up for each row. The weight gradient of a 7 x 1 kernel over 17 x
    17 outputs, its windows written out along the rows of one result each, is one of 192 samples of 7 x 1 positions: 7
    rows of one position for each sample, or 7 rows of 192 in all. PopLibs flattens so, from the innermost dimension
    out (its transform ``flattenDims``).

    Args:
        call: One whose operands are [g, b, ci, *field] and [g, co, ci, *kernel].
        expansion: Way in which its windows are written out.
        field_first: True if the field is outside of samples there.
    """
    problem, roles = call.problem, call.out_roles
    axes, field = problem.axes, [axis.outputs for axis in problem.axes]
    flat = tuple(d for d, axis in enumerate(axes) if axis.is_pointwise)
    rows = problem.batch * prod(field[d] for d in flat)
    joined = [Axis(rows, rows, 1) if d == flat[-1] else Axis(1, 1, 1) if d in flat else a for d, a in enumerate(axes)]
    inner = replace(problem, batch=1, axes=tuple(joined))

    def restore(out: Tensor) -> Tensor:
        """[g · co, 1, *field] as the output with its samples."""
        kept = [d for d in range(len(field)) if d not in flat]
        samples, positions = ["b"], [f"o{d}" for d in flat]
        inside = positions + samples if field_first else samples + positions
        names = ["g", "co"]
        for d in sorted((*kept, flat[-1])):
            names += inside if d == flat[-1] else [f"o{d}"]
        apart = out.reshape([problem.extents[name] for name in names])
        turned = apart.transpose([names.index(dim) for role in roles for dim in role.split("*")])
        return turned.reshape([prod(problem.extents[dim] for dim in role.split("*")) for role in roles])

    return replace(
        call,
        problem=inner,
        x=Binding(samples_in_field(call.x.tensor, flat, field_first=field_first), inner.in_dims, 1),
        out_roles=("g*co", "b", *(f"o{d}" for d in range(len(field)))),
        expansion=FlatRewriting(
            expansion, lambda made: samples_in_field(made, flat, field_first=field_first), inner.in_dims
        ),
        unfold=Unfolding(roles, restore),
    )


def samples_in_field(tensor: Tensor, flat: tuple[int, ...], *, field_first: bool) -> Tensor:
    """[g, b, ci, *field] as [g, 1, ci, *field], samples and the dimensions ``flat`` together as the last of these."""
    groups, batch, channels, *field = tensor.shape
    kept = [d for d in range(len(field)) if d not in flat]
    positions = [3 + d for d in flat]
    inside = [*positions, 1] if field_first else [1, *positions]
    turned = tensor.transpose([0, 2, *(3 + d for d in kept), *inside])
    last = batch * prod(field[d] for d in flat)
    joined = turned.reshape((groups, channels, *(field[d] for d in kept), last))
    placed = joined.moveaxis(joined.ndim - 1, 2 + sum(d < flat[-1] for d in kept))
    shape = [last if d == flat[-1] else 1 if d in flat else n for d, n in enumerate(field)]
    return placed.reshape((groups, 1, channels, *shape))


@dataclass(frozen=True)
class FlatRewriting:
    """An operand that is written anew, and read with fewer dimensions.

    Attributes:
        written: The operand.
        seen: View of it.
        dims: Names of the view's dimensions.
    """

    written: Rewriting
    seen: Callable[[Tensor], Tensor]
    dims: tuple[str, ...]

    def estimate(self, machine: PlanningTarget) -> int:
        """Cycles that writing it is expected to take."""
        return self.written.estimate(machine)

    def emit(self, graph: Graph, compute_set: ComputeSet) -> Operand:
        """Add the vertices that write it; the view of it."""
        return operand(self.seen(self.written.emit(graph, compute_set).tensor), self.dims)


def _as_matrix(weights: Tensor) -> Tensor:
    """[g, co, ci, *kernel] of one position as [g, co, ci]."""
    return weights.reshape(weights.shape[:3])


def windows_as_rows(windows: Tensor, *, field_first: bool) -> Tensor:
    """[g, b, ci, *field] as [g, b · field, ci], or [g, field · b, ci]."""
    groups, batch, channels, *field = windows.shape
    last = windows.ndim - 1
    turned = windows.moveaxis(2, last)
    turned = turned.moveaxis(1, last - 1) if field_first else turned
    return turned.reshape((groups, batch * prod(field), channels))


def flattened(tensor: Tensor) -> Tensor:
    """[batch, channels, *field] as [channels, batch · field]."""
    return tensor.moveaxis(1, 0).flatten(1)
