"""Ops that meet the host, and tensors made of nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.frontends.popxl.dtypes import as_dtype
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.graph import HostLoad, HostStore, get_current_graph
from abele.frontends.popxl.ops.common import checked, emit
from abele.frontends.popxl.streams import DeviceToHostStream, HostToDeviceStream
from abele.frontends.popxl.tensors import Tensor
from abele.network.ops import build


def host_load(h2d_stream: HostToDeviceStream, name: str | None = None) -> Tensor:
    """The next entry of a stream from the host."""
    if not isinstance(h2d_stream, HostToDeviceStream):
        raise GraphTypeError(f"host_load takes a stream from the host, not {h2d_stream!r}")
    graph = get_current_graph()
    if h2d_stream.ir != graph.ir:
        raise GraphArgumentError(f"{h2d_stream!r} is of another Ir")
    made = Tensor(graph, name or h2d_stream.tensor_id, h2d_stream.shape, h2d_stream.dtype)
    graph.add(HostLoad(h2d_stream, made))
    return made


def host_store(d2h_stream: DeviceToHostStream, t: Tensor) -> None:
    """Write the next entry of a stream to the host.

    Raises:
        GraphArgumentError: The tensor has another shape or type than the stream.
    """
    if not isinstance(d2h_stream, DeviceToHostStream):
        raise GraphTypeError(f"host_store takes a stream to the host, not {d2h_stream!r}")
    checked("host_store", t)
    graph = get_current_graph()
    if d2h_stream.ir != graph.ir:
        raise GraphArgumentError(f"{d2h_stream!r} is of another Ir")
    d2h_stream.check("host_store", t.shape, t.dtype)
    graph.add(HostStore(d2h_stream, t))


def init(shape: Sequence[int], dtype: Any, name: str | None = None, init_type: str = "zero") -> Tensor:
    """A tensor of zeros; ``undef`` is that as well."""
    if init_type not in ("zero", "undef"):
        raise GraphArgumentError(f"init has init_type {init_type!r}: zero or undef")
    kind = as_dtype(dtype).element
    return get_current_graph().emit("init", lambda net: build.full(net, 0, tuple(shape), kind), [], name=name)[0]


def print_tensor(
    t: Tensor,
    title: str | None = None,
    print_self: bool = True,
    print_gradient: bool = False,
    **_: Any,
) -> Tensor:
    """It, whose elements each run prints."""
    text = title or t.id
    return (
        emit("print_tensor", lambda net, v: build.print_value(net, v, text, gradient=print_gradient), t)
        if print_self
        else t
    )


__all__ = ["host_load", "host_store", "init", "print_tensor"]
