"""Embeddings, and entries of a dimension chosen by numbers that the machine computes."""

from __future__ import annotations

from collections.abc import Sequence

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import select
from abele.parallel import Value
from abele.parallel.ops import build


@aten("aten.embedding")
def embedding(
    call: OperatorCall,
    weight: Value,
    index: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    """Rows of the table; the row ``padding_idx`` gets no gradient."""
    if scale_grad_by_freq:
        raise call.refuse("with scale_grad_by_freq has no lowering", "divide by the counts of the indices yourself")
    net = call.net
    net.bound(index, weight.shape[0], "index")
    rows = build.look_up(net, weight, index)
    if padding_idx < 0:
        return rows
    # The same rows either way: only through one of them does a gradient flow.
    places = build.reshape(net, index, (*index.shape, 1))
    chosen = select(arg(2).eq(padding_idx), arg(0), arg(1))
    return build.map_(net, chosen, [build.detach(net, rows), rows, places], call.dtype)


@aten("aten.index_select")
def index_select(call: OperatorCall, value: Value, dim: int, index: Value) -> Value:
    """Entries of one dimension."""
    return entries(call, value, dim, index)


@aten("aten.index.Tensor")
def index(call: OperatorCall, value: Value, indices: Sequence[Value | None]) -> Value:
    """Indexing by a tensor of numbers along one dimension."""
    given = [(dim, number) for dim, number in enumerate(indices) if number is not None]
    if len(given) != 1:
        raise call.refuse("by several tensors has no lowering", "index along one dimension by numbers")
    return entries(call, value, *given[0])


def entries(call: OperatorCall, value: Value, dim: int, index: Value) -> Value:
    """``value`` with its dimension ``dim`` replaced by those of ``index``, its entries chosen by number."""
    net, dim = call.net, dim % value.ndim
    net.bound(index, value.shape[dim], "index")
    rest = [d for d in range(value.ndim) if d != dim]
    table = build.reshape(net, build.permute(net, value, [dim, *rest]), (value.shape[dim], -1))
    rows = build.look_up(net, table, index)
    taken = build.reshape(net, rows, (*index.shape, *(value.shape[d] for d in rest)))
    back = [*range(index.ndim, index.ndim + dim), *range(index.ndim), *range(index.ndim + dim, taken.ndim)]
    return build.permute(net, taken, back)
