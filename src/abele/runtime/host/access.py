"""Access of the host by name: finding the tensor, checking the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import ConstantWriteError, EngineError, TensorAccessError, TensorError, TypeMismatchError, nearest
from abele.graph import Graph, HostHandle, Stream, Tensor
from abele.numerics import ElementType, as_element_type
from abele.words import counted

Handle = str | Tensor


def readable(graph: Graph, handle: Handle) -> Tensor:
    """The view that the host wants to read.

    Raises:
        TensorAccessError: It is a host handle that may only be written.
        EngineError: See :func:`find_tensor`.
    """
    found = graph.host_handles.get(handle) if isinstance(handle, str) else None
    if found is not None and not found.readable:
        raise _closed(graph, found, "read", "written")
    return find_tensor(graph, handle)


def writable(graph: Graph, handle: Handle) -> Tensor:
    """The view that the host wants to write.

    Raises:
        TensorAccessError: It is a host handle that may only be read.
        EngineError: See :func:`find_tensor`.
    """
    found = graph.host_handles.get(handle) if isinstance(handle, str) else None
    if found is not None and not found.writable:
        raise _closed(graph, found, "write", "read")
    return find_tensor(graph, handle)


def _closed(graph: Graph, handle: HostHandle, wanted: str, allowed: str) -> TensorAccessError:
    open_ones = [h for h in graph.host_handles.values() if (h.readable if wanted == "read" else h.writable)]
    same = (h.name for h in open_ones if h.tensor.is_same_view(handle.tensor))
    close = next(same, None) or nearest(handle.name, [h.name for h in open_ones])
    return TensorAccessError(
        f"the host cannot {wanted} {handle.name!r}: the handle was made to be {allowed} only",
        at=handle.debug.location,
        because=f"it stands for {handle.tensor!r}",
        remedy=f"did you mean {close!r}?"
        if close
        else f"graph.expose(…, {'readable' if wanted == 'read' else 'writable'}=True)",
    )


def find_tensor(graph: Graph, handle: Handle) -> Tensor:
    """View of a handle: a host handle, or else the name of a variable, or a tensor.

    Raises:
        EngineError: No variable has this name, several have, or the tensor belongs to another graph.
    """
    if isinstance(handle, Tensor):
        if handle.graph is not graph:
            raise EngineError(f"{handle!r} belongs to another graph than this engine's")
        return handle
    if handle in graph.host_handles:
        return graph.host_handles[handle].tensor
    found = graph.find(handle)
    if len(found) == 1:
        return graph.whole(found[0])
    if found:
        places = "\n".join(v.debug.location for v in found if v.debug.file)
        raise EngineError(
            f"{counted(len(found), 'variable')} are called {handle!r}",
            because=f"they were made at\n{places}" if places else None,
            remedy="index the engine with the tensor itself, or give the variables different names",
        )
    raise EngineError(
        f"no variable is called {handle!r}",
        remedy=_suggestion(handle, [*graph.host_handles, *(v.name for v in graph.variables)]),
    )


def find_stream(graph: Graph, handle: str | Stream) -> Stream:
    """Stream of a handle.

    Raises:
        EngineError: The graph has no such stream.
    """
    name = handle.name if isinstance(handle, Stream) else handle
    stream = graph.streams.get(name)
    if stream is None or (isinstance(handle, Stream) and stream is not handle):
        raise EngineError(f"the graph has no stream {name!r}", remedy=_suggestion(name, list(graph.streams)))
    return stream


def _suggestion(name: str, choices: list[str]) -> str | None:
    close = nearest(name, choices)
    return f"did you mean {close!r}?" if close else None


def checked_values(tensor: Tensor, values: npt.ArrayLike, own_replicas: int | None = None) -> npt.NDArray[Any]:
    """``values`` as an array that may be written to ``tensor``, in all replicas or each of a process's own.

    Raises:
        ConstantWriteError: The tensor shows a constant, or an element more than once.
        TensorError: The shape differs and the value is not one number.
        TypeMismatchError: The values are of another kind, or do not fit the element type.
    """
    array = np.asarray(values)
    if not tensor.writable:
        why = "is constant" if tensor.contains_constant else "shows an element more than once"
        raise ConstantWriteError(f"the host cannot write {tensor!r}, which {why}")
    several, replicas = tensor.graph.replicas > 1, own_replicas or tensor.graph.replicas
    if array.shape not in ((), tensor.shape) and not (several and array.shape == (replicas, *tensor.shape)):
        each = f", or {[replicas, *tensor.shape]} for all replicas" if several else ""
        raise TensorError(f"{tensor!r} has shape {list(tensor.shape)}{each}, it was given {list(array.shape)}")
    check_kind(array, tensor.dtype, tensor)
    return array


def check_kind(array: npt.NDArray[Any], wanted: ElementType, what: object) -> None:
    """Raise unless the elements of ``array`` may become ``wanted``: numbers may widen in kind, never narrow.

    Raises:
        TypeMismatchError: Floats for integers, integers for bools, or an integer out of range.
    """
    order = {"bool": 0, "uint": 1, "int": 1, "float": 2}
    given = "float" if array.dtype == np.float64 else as_element_type(array.dtype).kind
    if order[given] > order[wanted.kind]:
        raise TypeMismatchError(
            f"{what!r} holds {wanted}, it was given {array.dtype}", remedy=f"array.astype({wanted.np.name!r})"
        )
    if wanted.kind in ("int", "uint") and array.size:
        limits = np.iinfo(wanted.np)
        low, high = int(array.min()), int(array.max())
        wrong = low if low < limits.min else high
        if low < limits.min or high > limits.max:
            raise TypeMismatchError(f"{what} holds {wanted}, from {limits.min} to {limits.max}; it was given {wrong}")
