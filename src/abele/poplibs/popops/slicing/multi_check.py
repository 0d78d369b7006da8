"""Checks of slices and updates by indices: arguments when the program is built, indices when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

import numpy as np

from abele.errors import TensorError, TypeMismatchError, UnsupportedOpError
from abele.graph import Execute, Graph, Tensor, boxes
from abele.graph.control import Abort
from abele.graph.program import Sequence
from abele.kernels.nest import ir
from abele.numerics import ElementType, bool_, f16, f32, i32, u32
from abele.poplibs.popops.elementwise.map import map as map_
from abele.poplibs.popops.expr import Const, Expr, _1, select
from abele.poplibs.popops.expressions.host_kernel import nest_over, point
from abele.poplibs.popops.reductions.codelets import Finish
from abele.poplibs.popops.reductions.ops import find_reduce_op
from abele.poplibs.popops.reductions.reduction import Reduction
from abele.poplibs.popops.slicing.embedding import PLAN_OPTIONS
from abele.poplibs.popops.slicing.multi_codelets import Operation, check_codelet
from abele.poplibs.popops.slicing.plan import SlicePlan, part_range
from abele.poplibs.poputil.options import Options, flag, read_options

# Checks of offsets and indices that are data, when the program runs: call by call, or for a whole graph.

VALIDATE_INDICES = flag(None)
"""``validateIndices`` of a call; by default the graph's setting counts."""

_checked: WeakSet[Graph] = WeakSet()


def validate_indices_by_default(graph: Graph, validate: bool = True) -> None:
    """Set if slices, updates and gathers that are built from now on stop the program at an index out of range.

    Without it such an index gives zeros, or changes nothing, unless a call says ``validateIndices``. The checks are
    steps of the program, and cost what they cost; the message of the error names the call and its indices.

    Args:
        graph: Graph of the calls; a virtual graph stands for the whole one.
        validate: False for calls that check nothing again.
    """
    if validate:
        _checked.add(graph.top_level)
    else:
        _checked.discard(graph.top_level)


def validates(graph: Graph, chosen: Mapping[str, Any]) -> bool:
    """True if a call with these options checks its indices."""
    given = chosen["validateIndices"]
    return graph.top_level in _checked if given is None else bool(given)


INDEX_TYPES = (u32, i32)
ARITHMETIC_TYPES = (f16, f32, i32, u32)
MULTI_OPTIONS = PLAN_OPTIONS | {
    "remapOutOfBoundIndices": flag(False),
    "paddingIndexUsed": flag(False),
    "validateIndices": VALIDATE_INDICES,
}
"""Options of slices and updates by indices: those of plans (only ``validateIndices`` matters here) and
``remapOutOfBoundIndices``. The latter makes index 0 of those out of range; with ``paddingIndexUsed`` one past the last
entry stays as it is. A slice by an index out of range is zero, an update leaves the table as it was.
"""


def read_multi_options(name: str, given: Options) -> dict[str, Any]:
    """The values of :data:`MULTI_OPTIONS`."""
    return read_options(name, given, MULTI_OPTIONS)


def check_single(dims: tuple[int, ...], sizes: tuple[int, ...], name: str) -> None:
    """Refuse slices of more than one entry, or along several dimensions.

    Raises:
        UnsupportedOpError: They are.
    """
    if len(dims) != 1 or sizes != (1,):
        raise UnsupportedOpError(
            f"{name}: dims {list(dims)}, sizes {list(sizes)}: many slices at once are of one entry along one dimension",
            remedy="dims (d,), sizes (1,), or dynamic slices one by one",
        )


def checked_offsets(offsets: Tensor, groups: int | None, name: str) -> Tensor:
    """``offsets`` as [groups, indices].

    Raises:
        TypeMismatchError: They are no 32-bit integers.
        TensorError: They are not [indices, 1] or [indices], after a dimension of groups if there are groups.
    """
    if offsets.dtype not in INDEX_TYPES:
        raise TypeMismatchError(f"{name}: the offsets {offsets!r} are {offsets.dtype}, they must be u32 or i32")
    shape = offsets.shape if groups is None else offsets.shape[1:]
    agrees = groups is None or (offsets.ndim > 0 and offsets.shape[0] == groups)
    if not agrees or len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] != 1):
        wanted = "[n, 1]" if groups is None else f"[{groups}, n, 1]"
        raise TensorError(f"{name}: the offsets {offsets!r} have shape {list(offsets.shape)}, not {wanted}")
    return offsets.reshape((groups or 1, shape[0]))


def check_update(table: Tensor, slices: Tensor, wanted: tuple[int, ...], operation: Operation, name: str) -> None:
    """Refuse slices that cannot update a table.

    Raises:
        TensorError: They have another shape.
        TypeMismatchError: Their elements do not go with those of the table, or nothing can be computed with them.
    """
    if slices.shape != wanted:
        raise TensorError(f"{name}: the slices {slices!r} have shape {list(slices.shape)}, not {list(wanted)}")
    if operation == "none":
        if slices.dtype != table.dtype:
            raise TypeMismatchError(f"{name}: {slices!r} is {slices.dtype}, the table {table!r} is {table.dtype}")
        return
    fits = slices.dtype == table.dtype or (slices.dtype.is_float and table.dtype.is_float)
    if not fits or table.dtype not in ARITHMETIC_TYPES or slices.dtype not in ARITHMETIC_TYPES:
        raise TypeMismatchError(
            f"{name}: {slices!r} of {slices.dtype} cannot be joined with {table!r} of {table.dtype}",
            remedy="half or float on both sides, or the same 32-bit integers",
        )


def prepared_offsets(
    graph: Graph,
    offsets: Tensor,
    entries: int,
    plan: SlicePlan | None,
    chosen: dict[str, Any],
    prog: Sequence,
    name: str,
) -> Tensor:
    """Offsets for vertices, after the options: checked, or moved into range."""
    if not offsets.size:
        return offsets
    if validates(graph, chosen) or (plan is not None and plan.validates):
        validate_indices(graph, offsets, entries, prog, name)
    if not chosen["remapOutOfBoundIndices"]:
        return offsets
    last = entries if chosen["paddingIndexUsed"] else entries - 1
    return map_(graph, _remapped(offsets.dtype, last), [offsets], prog, f"{name}/remapped")


def _remapped(dtype: ElementType, last: int) -> Expr:
    zero = Const(0, dtype)
    inside = select(_1, zero, _1 <= Const(last, dtype))
    return inside if dtype == u32 else select(inside, zero, _1 >= zero)


def validate_indices(graph: Graph, offsets: Tensor, entries: int, prog: Sequence, name: str) -> None:
    """Stop the program when any of ``offsets`` is no entry of a table of ``entries`` rows.

    Each tile tests a share of the indices, and the program stops before the rows are touched.

    Args:
        graph: Graph in which vertices are made.
        offsets: u32 or i32, any shape.
        entries: Rows of the table.
        prog: Sequence that the test is appended to.
        name: Name of the call that the indices belong to; the message names it.
    """
    found = graph.map(graph.variable(bool_, (), name=f"{name}/out_of_range"), 0)
    flat = offsets.flatten()
    call = graph.library_call(
        prog,
        "popops.validate_indices",
        inputs=(flat,),
        outputs=(found,),
        kernel=_check_kernel(flat, entries),
        flops=flat.size,
        debug_name=f"{name}/validate",
    )
    with call as body:
        tiles = min(graph.system.num_tiles, -(-flat.size // graph.system.ipu.num_workers))
        first, num = part_range(flat.size, tiles, np.arange(tiles, dtype=np.int64))
        used = np.flatnonzero(num)
        flags = graph.map_rows(graph.variable(bool_, (len(used),), name=f"{name}/flags"), used.tolist())
        step = graph.compute_set("check")
        own = boxes(flat, first[used][:, None], num[used][:, None])
        step.vertices(check_codelet(flat.dtype), tile=used.astype(np.int32), offsets=own, found=flags, entries=entries)
        body.add(Execute(step))
        Reduction(
            graph, tensor=flags, kept=(), op=find_reduce_op("LOGICAL_OR"), finish=Finish(bool_), scale=None, name="any"
        ).emit(body, found)
    prog.add(Abort(f"{name}: index out of range: {offsets!r} names rows of a table of {entries} entries", found))


def _check_kernel(flat: Tensor, entries: int) -> ir.HostKernel:
    index: ir.Expr = ir.Load(0, point(1))
    bad = index >= entries
    if flat.dtype == i32:
        bad = ir.apply("or", bad, index < 0)
    nests = (
        nest_over(flat.shape, ir.Store(2, (), ir.Cast(i32, bad), "max")),
        nest_over((), ir.Store(1, (), ir.Load(2, ()).ne(0))),
    )
    return ir.HostKernel((flat.shape, (), ()), (flat.dtype, bool_, i32), 1, 1, nests)
