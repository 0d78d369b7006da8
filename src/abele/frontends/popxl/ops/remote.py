"""Ops that move rows between streaming memory and the chip."""

from __future__ import annotations

from typing import Any

from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.graph import Graph, get_current_graph, here
from abele.frontends.popxl.operations import CodeLoad, RemoteLoad, RemoteStore
from abele.frontends.popxl.ops.common import checked
from abele.frontends.popxl.remote import RemoteBuffer
from abele.frontends.popxl.tensors import Alias, Tensor


def remote_load(remote_buffer: RemoteBuffer, offset: Any, name: str | None = None) -> Tensor:
    """A row of a buffer.

    Args:
        remote_buffer: The buffer.
        offset: Number of the row: a whole number, or a tensor of one.
        name: Name of the result.

    Raises:
        GraphArgumentError: There is no such row, as far as it is known.
    """
    where = _of_buffer("remote_load", remote_buffer).used_at("remote_load", offset)
    graph = get_current_graph()
    origin, place = here("remote_load")
    made = Tensor(
        graph, name or _name(remote_buffer), *remote_buffer.spec, ipu=place.ipu, meta_shape=remote_buffer.meta_shape
    )
    graph.add(RemoteLoad(remote_buffer, where, made, origin, place))
    return made


def remote_load_(remote_buffer: RemoteBuffer, offset: Any, t: Tensor) -> Tensor:
    """A tensor that takes a row of a buffer, in place.

    Raises:
        GraphArgumentError: It is not like a row, or there is no such row.
    """
    checked("remote_load_", t)
    _of_buffer("remote_load_", remote_buffer).check("remote_load_", t)
    t.check_writable("remote_load_")
    where = remote_buffer.used_at("remote_load_", offset)
    graph = get_current_graph()
    graph.add(RemoteLoad(remote_buffer, where, t, *here("remote_load_"), in_place=True))
    return Tensor(graph, _name(remote_buffer), t.shape, t.dtype, ipu=t.ipu, alias=Alias(t), meta_shape=t.meta_shape)


def remote_store(remote_buffer: RemoteBuffer, offset: Any, t: Tensor) -> None:
    """Let a row of a buffer be a tensor; see :func:`remote_load`."""
    checked("remote_store", t)
    _of_buffer("remote_store", remote_buffer).check("remote_store", t)
    where = remote_buffer.used_at("remote_store", offset)
    get_current_graph().add(RemoteStore(remote_buffer, where, t, *here("remote_store")))


def remote_code_load(graph: Graph, destination: str = "executable") -> None:
    """Nothing but an op without effect: all code is on the chip from the start, so that nothing of it has to be loaded.

    The report counts it among the memory that is always live. PopXL keeps the code of graphs in streaming memory until
    they are loaded.

    Raises:
        GraphArgumentError: Another destination than ``"executable"``, the main graph, or a graph of another Ir.
    """
    if not isinstance(graph, Graph):
        raise GraphTypeError(f"remote_code_load takes a Graph, not {graph!r}")
    if destination != "executable":
        raise GraphArgumentError(f"remote_code_load has the destination {destination!r}: 'executable'")
    if graph.ir != get_current_graph().ir:
        raise GraphArgumentError(f"the graph {graph.name!r} is of another Ir")
    if graph.is_main:
        raise GraphArgumentError("the main graph's code is never loaded: it is what runs")
    get_current_graph().add(CodeLoad(graph))


def _of_buffer(kind: str, buffer: RemoteBuffer) -> RemoteBuffer:
    if not isinstance(buffer, RemoteBuffer):
        raise GraphTypeError(f"{kind} takes a RemoteBuffer, not {buffer!r}")
    return buffer


def _name(buffer: RemoteBuffer) -> str:
    return f"remote_buffer_{buffer.remote_buffer_id}_row"


__all__ = ["remote_code_load", "remote_load", "remote_load_", "remote_store"]
