"""The k largest or smallest elements of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from numbers import Integral

import numpy as np

from abele.errors import InvalidOptionError
from abele.graph import Copy, Graph, Tensor
from abele.graph.program import Steps
from abele.numerics import u32
from abele.poplibs.popops.sorting.codelets import Record
from abele.poplibs.popops.sorting.host import host_top_k
from abele.poplibs.popops.sorting.sort import MIN_BLOCK, RecordBlocks, SortingNetwork, check_keys, power_of_two
from abele.poplibs.poputil.host_body import note_host
from abele.words import counted

LONGEST_KEPT = 4096
"""Records above which one tile should not merge two blocks of them: then rows are sorted whole. Guessed."""


class SortOrder(Enum):
    """Order of the elements that are found."""

    NONE = "none"
    ASCENDING = "ascending"
    DESCENDING = "descending"


@dataclass(frozen=True)
class TopKParams:
    """Parameters of a top-k.

    Attributes:
        k: Elements per row.
        largest: True for the largest, False for the smallest.
        sort_order: Their order; NONE for any.
        stable: True if of equal elements those that come first are taken, and stay in their order.

    Raises:
        InvalidOptionError: No such order, or a ``k`` that is no number of elements.
    """

    k: int
    largest: bool = True
    sort_order: SortOrder = SortOrder.NONE
    stable: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.k, Integral) or self.k < 0:
            raise InvalidOptionError(f"top_k: k is {self.k!r}, it must be a whole number from 0 on")
        order = self.sort_order
        if not isinstance(order, SortOrder):
            known = {o.name: o for o in SortOrder}
            if str(order).upper() not in known:
                raise InvalidOptionError(f"top_k: no sort order {order!r}", remedy="NONE, ASCENDING or DESCENDING")
            object.__setattr__(self, "sort_order", known[str(order).upper()])

    @property
    def is_reversed(self) -> bool:
        """True if the best element is to come last."""
        worst_first = SortOrder.ASCENDING if self.largest else SortOrder.DESCENDING
        return self.sort_order is worst_first


def top_k(graph: Graph, prog: Steps, tensor: Tensor, params: TopKParams, name: str = "top_k") -> Tensor:
    """The k largest or smallest elements along the innermost dimension, [..., k].

    Raises:
        TensorError: The tensor is a scalar.
        InvalidOptionError: A row does not have so many elements.
        TypeMismatchError: The elements are truth values.
    """
    return _found(graph, prog, tensor, values=[], params=params, name=name, library="popops.top_k", by_index=False)[0]


def top_k_key_value(
    graph: Graph, prog: Steps, keys: Tensor, values: Tensor, params: TopKParams, name: str = "top_k"
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest ``keys`` along the innermost dimension, and the ``values`` that go with them.

    Raises:
        TensorError: The shapes differ; see also :func:`top_k`.
    """
    by_index = params.stable
    found = _found(
        graph,
        prog,
        keys,
        values=[values],
        params=params,
        name=name,
        library="popops.top_k_key_value",
        by_index=by_index,
    )
    return found[0], found[-1]


def top_k_with_permutation(
    graph: Graph, prog: Steps, tensor: Tensor, params: TopKParams, name: str = "top_k"
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest elements along the innermost dimension, and their positions in it, u32.

    Equal elements are told apart by position, whether ``params`` asks for it or not.

    Raises:
        TensorError: The tensor is a scalar; see also :func:`top_k`.
    """
    found = _found(
        graph, prog, tensor, values=[], params=params, name=name, library="popops.top_k_with_permutation", by_index=True
    )
    return found[0], found[1]


def _found(
    graph: Graph,
    prog: Steps,
    keys: Tensor,
    values: Sequence[Tensor],
    params: TopKParams,
    name: str,
    library: str,
    *,
    by_index: bool,
) -> list[Tensor]:
    """Keys, then positions if these are wanted, then values, each [..., k]."""
    check_keys(keys, values, name)
    length, k = keys.shape[-1], params.k
    if not 0 <= k <= length:
        raise InvalidOptionError(f"{name}: k is {k}, rows of {keys!r} have {counted(length, 'element')}")
    types = [keys.dtype, *([u32] if by_index else []), *(v.dtype for v in values)]
    shape = (*keys.shape[:-1], k)
    outs = [graph.variable(t, shape, name=f"{name}/out", map="linear") for t in types]
    if outs[0].size == 0:
        return outs
    inputs = (keys, *values)
    call = graph.library_call(prog, library, inputs=inputs, outputs=tuple(outs), kernel=None, flops=0, debug_name=name)
    with call as body:
        record = Record(keys.dtype, tuple(types[1:]), params.largest, by_index)
        columns = _search(graph, body, inputs, record, k, name)
        if params.is_reversed and by_index:
            columns = _worst_first(graph, body, columns, record, name)
        elif params.is_reversed:
            columns = [c.reverse(1) for c in columns]
        for column, out in zip(columns, outs, strict=True):
            body.add(Copy(column.reshape(shape), out))
    places = outs[1] if by_index else graph.variable(u32, shape, name=f"{name}/places", map="linear")
    found = [outs[0], places, *outs[2 if by_index else 1 :]]
    host = host_top_k(
        graph, keys, list(values), found, largest=params.largest, is_reversed=params.is_reversed, name=name
    )
    note_host(prog, host)
    return outs


def _search(graph: Graph, body: Steps, inputs: Sequence[Tensor], record: Record, k: int, name: str) -> list[Tensor]:
    """The best k records of each row, best first, [rows, k] per column."""
    length = inputs[0].shape[-1]
    rows, kept = inputs[0].size // length, power_of_two(k)
    is_tree = kept <= LONGEST_KEPT
    blocks = RecordBlocks.plan(graph, rows, length, max(MIN_BLOCK, kept) if is_tree else MIN_BLOCK)
    columns = [blocks.variable(graph, t, f"{name}/{n}") for n, t in record.columns.items()]
    filled = [columns[0], *columns[len(columns) - len(inputs) + 1 :]]
    for given, column in zip(inputs, filled, strict=True):
        body.add(Copy(given.reshape(column.shape), column))
    # Positions as second keys: of equal keys the first wins, whatever way records take through the network.
    if record.by_second:
        numbers = graph.constant(u32, (length,), np.arange(length, dtype=np.uint32), name=f"{name}/numbers")
        body.add(Copy(graph.map_linear(numbers).broadcast_to((rows, length)), columns[1]))
    network = SortingNetwork(graph, body, blocks, record, columns, name)
    if is_tree:
        network.keep_best(k)
    else:
        network.sort()
    return [c[:, :k] for c in columns]


def _worst_first(graph: Graph, body: Steps, columns: Sequence[Tensor], record: Record, name: str) -> list[Tensor]:
    """Records that are sorted, the other way round, equal keys in their order."""
    rows, k = columns[0].shape
    blocks = RecordBlocks.plan(graph, rows, k)
    turned = [blocks.variable(graph, c.dtype, f"{name}/turned") for c in columns]
    for source, target in zip(columns, turned, strict=True):
        body.add(Copy(source.reverse(1), target))
    SortingNetwork(graph, body, blocks, replace(record, largest_first=not record.largest_first), turned, name).sort()
    return turned
