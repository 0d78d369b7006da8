"""One element of every row, by an index per row: read, or reduced by one, as losses over classes do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import TensorError, TypeMismatchError
from abele.graph import Execute, Graph, Tensor, TileMapping
from abele.graph.program import Sequence
from abele.numerics import i32, u32
from abele.poplibs.popops.slicing.host_kernel import decrement_kernel, select_kernel
from abele.poplibs.popops.slicing.one_hot import MASKED_LABEL_CODE
from abele.poplibs.popops.slicing.row_vertices import join_codelet, select_codelet, update_codelet
from abele.poplibs.poputil.mapping import set_mapping
from abele.poplibs.poputil.regions import count_up, flat_regions

WORKERS = 6


def select_scalar_from_rows(
    graph: Graph, params: Tensor, indices: Tensor, prog: Sequence, *, name: str = "select_scalar_from_rows"
) -> Tensor:
    """``params[i, indices[i]]`` of every row i, as a new tensor [rows].

    A row whose index is MASKED_LABEL_CODE gives 0; one whose index is no column gives NaN, or 0 of types without NaN.

    Args:
        graph: Graph in which vertices are made.
        params: [rows, columns]. Each tile looks at the rows, or parts of rows, that it holds.
        indices: u32 or i32 of shape [rows]; −1 is MASKED_LABEL_CODE.
        prog: Sequence that the steps are appended to.
        name: Name of the steps.

    Raises:
        TensorError: The shapes do not go together.
        TypeMismatchError: Indices that are no 32-bit integers.
    """
    _check(params, indices, name)
    out = graph.variable(params.dtype, (params.shape[0],), name=f"{name}/out")
    if not params.shape[0]:
        return out
    parts = _Parts.of(graph, params)
    set_mapping(graph, out, _joined_mapping(parts, params.shape[0]))
    library = "popops.select_scalar_from_rows"
    kernel = select_kernel(params, indices, out, MASKED_LABEL_CODE)
    call = graph.library_call(prog, library, inputs=(params, indices), outputs=(out,), kernel=kernel, debug_name=name)
    with call as body:
        if len(parts.row) == params.shape[0]:
            _emit_select(graph, body, parts, params=params, indices=indices, out=out, name=name)
        else:
            partials = graph.variable(params.dtype, (len(parts.row),), name="partials")
            by_row = np.argsort(parts.begin, kind="stable")
            set_mapping(
                graph, partials, TileMapping(len(by_row), np.arange(len(by_row), dtype=np.int64), parts.tile[by_row])
            )
            place = np.empty_like(by_row)
            place[by_row] = np.arange(len(by_row), dtype=np.int64)
            _emit_select(graph, body, parts, params=params, indices=indices, out=partials, name=name, place=place)
            _emit_join(graph, body, parts.row[by_row], partials, out)
    return out


def update_scalar_in_rows(
    graph: Graph, params: Tensor, indices: Tensor, prog: Sequence, *, name: str = "update_scalar_in_rows"
) -> None:
    """``params[i, indices[i]]`` −= 1 of every row i, in place: the gradient of a loss over classes.

    A row whose index is MASKED_LABEL_CODE stays as it is; one whose index is no column becomes NaN.

    Args:
        graph: Graph in which vertices are made.
        params: Floats [rows, columns].
        indices: u32 or i32 of shape [rows]; −1 is MASKED_LABEL_CODE.
        prog: Sequence that the step is appended to.
        name: Name of the step.

    Raises:
        TensorError: The shapes do not go together.
        TypeMismatchError: Indices that are no 32-bit integers, or elements that are no floats.
    """
    _check(params, indices, name)
    if not params.dtype.is_float:
        raise TypeMismatchError(f"{name}: {params!r} is {params.dtype}, its elements must be floats")
    if not params.size:
        return
    parts = _Parts.of(graph, params)
    library = "popops.update_scalar_in_rows"
    call = graph.library_call(
        prog,
        library,
        inputs=(params, indices),
        outputs=(params,),
        kernel=decrement_kernel(params, indices, MASKED_LABEL_CODE),
        flops=params.shape[0],
        debug_name=name,
    )
    with call as body:
        step = graph.compute_set(name)
        step.vertices(
            update_codelet(params.dtype, indices.dtype),
            tile=parts.vertex_tile,
            params=parts.of_params(params),
            **parts.fields(params, indices),
        )
        body.add(Execute(step))


def _check(params: Tensor, indices: Tensor, name: str) -> None:
    if indices.dtype not in (u32, i32):
        raise TypeMismatchError(f"{name}: the indices {indices!r} are {indices.dtype}, they must be u32 or i32")
    if params.ndim != 2 or indices.shape != params.shape[:1] or (params.shape[0] and not params.shape[1]):
        raise TensorError(
            f"{name}: indices {indices!r} of shape {list(indices.shape)} do not go with {params!r} of shape "
            f"{list(params.shape)}",
            remedy="indices [rows], params [rows, columns]",
        )


@dataclass(frozen=True)
class _Parts:
    """Parts of rows that lie on one tile, in the order of vertices; a vertex has those of one worker.

    Attributes:
        row: Row of each, int64[n].
        begin: First element of each in the flattened tensor, int64[n].
        size: Elements, int64[n].
        tile: Tile, int32[n].
        vertex: Vertex, int64[n], ascending.
    """

    row: Int64
    begin: Int64
    size: Int64
    tile: npt.NDArray[np.int32]
    vertex: Int64

    @staticmethod
    def of(graph: Graph, params: Tensor) -> _Parts:
        """The parts of ``params`` [rows, columns]."""
        columns = params.shape[1]
        mapping = graph.mapping_of(params)
        begin, end = mapping.begin, mapping.end
        run, number = count_up((end - 1) // columns - begin // columns + 1)
        row = (begin // columns)[run] + number
        low, high = np.maximum(begin[run], row * columns), np.minimum(end[run], (row + 1) * columns)
        order = np.argsort(mapping.tile[run], kind="stable")
        tile = mapping.tile[run][order]
        _, first, of_tile, num = np.unique(tile, return_index=True, return_inverse=True, return_counts=True)
        worker = (np.arange(len(tile)) - first[of_tile]) * WORKERS // num[of_tile]
        # Numbers of (tile, worker) pairs without gaps.
        vertex = np.unique(of_tile * WORKERS + worker, return_inverse=True)[1].astype(np.int64)
        return _Parts(row[order], low[order], (high - low)[order], tile, vertex)

    @property
    def vertex_tile(self) -> npt.NDArray[np.int32]:
        """Tile of each vertex."""
        return self.tile[self._firsts]

    @property
    def _firsts(self) -> Int64:
        return np.searchsorted(self.vertex, np.arange(self.vertex[-1] + 1)).astype(np.int64)

    def of_params(self, params: Tensor) -> Any:
        """Regions of ``params`` for each vertex."""
        return flat_regions(params.flatten(), self.begin, self.size, self.vertex, int(self.vertex[-1]) + 1)

    def one_each(self, tensor: Tensor, at: Int64) -> Any:
        """For each vertex the elements ``at`` of a tensor, one per part."""
        return flat_regions(tensor, at, np.ones_like(at), self.vertex, int(self.vertex[-1]) + 1)

    def fields(self, params: Tensor, indices: Tensor) -> dict[str, Any]:
        """The fields that both vertices have."""
        columns, cuts = params.shape[1], self._firsts[1:]
        # Column at which each part of a row begins.
        first = (self.begin - self.row * columns).astype(np.uint32)
        return {
            "indices": self.one_each(indices, self.row),
            "first": np.split(first, cuts),
            "width": np.split(self.size.astype(np.uint32), cuts),
            "columns": columns,
        }


def _joined_mapping(parts: _Parts, rows: int) -> TileMapping:
    """Each row on the tile of its first part."""
    by_begin = np.argsort(parts.begin, kind="stable")
    first = np.unique(parts.row[by_begin], return_index=True)[1]
    return TileMapping(rows, np.arange(rows, dtype=np.int64), parts.tile[by_begin][first])


def _emit_select(
    graph: Graph,
    body: Sequence,
    parts: _Parts,
    params: Tensor,
    indices: Tensor,
    out: Tensor,
    name: str,
    place: Int64 | None = None,
) -> None:
    step = graph.compute_set(name)
    step.vertices(
        select_codelet(params.dtype, indices.dtype),
        tile=parts.vertex_tile,
        params=parts.of_params(params),
        out=parts.one_each(out, parts.row if place is None else place),
        **parts.fields(params, indices),
    )
    body.add(Execute(step))


def _emit_join(graph: Graph, body: Sequence, row: Int64, partials: Tensor, out: Tensor) -> None:
    """Each row from its parts, which follow each other."""
    mapping = graph.mapping_of(out)
    counts = np.bincount(row, minlength=out.size).astype(np.int64)
    before = np.cumsum(counts) - counts
    low, high = mapping.begin, mapping.end
    step = graph.compute_set("join")
    ends = np.append(before, len(row))
    step.vertices(
        join_codelet(out.dtype),
        tile=mapping.tile,
        parts=flat_regions(partials, before[low], ends[high] - before[low]),
        out=flat_regions(out, low, high - low),
        counts=np.split(counts.astype(np.uint32), low[1:]),
    )
    body.add(Execute(step))
