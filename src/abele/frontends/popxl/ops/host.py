"""Ops that meet the host, and tensors made of nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from enum import Enum
from typing import Any

from abele.frontends.popxl.dtypes import as_dtype
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.graph import get_current_graph
from abele.frontends.popxl.operations import HostLoad, HostStore
from abele.frontends.popxl.ops.common import checked, emit
from abele.frontends.popxl.streams import DeviceToHostStream, HostToDeviceStream
from abele.frontends.popxl.tensors import Tensor
from abele.graph import PrintTensorFmt
from abele.network import BlockBuilder, Value
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


class InitType(Enum):
    """First contents of what :func:`init` makes."""

    ZERO = "zero"
    UNDEF = "undef"


def init(shape: Sequence[int], dtype: Any, name: str | None = None, init_type: InitType | str = "zero") -> Tensor:
    """A tensor of zeros; ``undef`` is that as well."""
    word = init_type.value if isinstance(init_type, InitType) else str(init_type).lower()
    if word not in ("zero", "undef"):
        raise GraphArgumentError(f"init has init_type {init_type!r}: zero or undef")
    kind = as_dtype(dtype).element
    return get_current_graph().emit("init", lambda net: build.full(net, 0, tuple(shape), kind), [], name=name)[0]


def print_tensor(
    t: Tensor,
    title: str | None = None,
    print_self: bool = True,
    print_gradient: bool = False,
    **layout: Any,
) -> Tensor:
    """It, whose elements each run prints, whether the result is used or not.

    Args:
        t: The tensor.
        title: Printed before the elements, by default its id.
        print_self: Print its elements.
        print_gradient: Print those of its gradient, in a gradient graph.
        **layout: Format of numbers: ``summarise_threshold=1000, edge_items=3, max_line_width=75, digits=8,
            float_format="auto", separator=" ", open_bracket="[", close_bracket="]"``.

    Raises:
        GraphTypeError: A word of the format that there is not.
        GraphArgumentError: A ``float_format`` that there is not.
    """
    checked("print_tensor", t)
    unknown = [name for name in layout if name not in _LAYOUT]
    if unknown:
        raise GraphTypeError(f"print_tensor() got an unexpected keyword argument {unknown[0]!r}", remedy=str(_LAYOUT))
    if layout.get("float_format", "auto") not in _FLOAT_FORMATS:
        raise GraphArgumentError(
            f"print_tensor has float_format {layout['float_format']!r}", remedy=str(_FLOAT_FORMATS)
        )
    text, form = title or t.id, PrintTensorFmt(**layout)

    def meaning(net: BlockBuilder, v: Value) -> Value:
        return build.print_value(net, v, text, gradient=print_gradient, layout=form)

    if print_self:
        return emit("print_tensor", meaning, t)
    if not print_gradient:
        return t
    made = get_current_graph().emit("print_tensor", lambda net, v: v, [t], backward=_printed_gradient(text, form))
    return made[0]


_LAYOUT = tuple(f.name for f in fields(PrintTensorFmt))
_FLOAT_FORMATS = ("auto", "fixed", "scientific", "none")


def _printed_gradient(title: str, form: PrintTensorFmt) -> Callable[[BlockBuilder, Value], Value]:
    return lambda net, v: build.print_value(net, v, f"Gradient___{title}", gradient=False, layout=form)


__all__ = ["host_load", "host_store", "init", "print_tensor"]
