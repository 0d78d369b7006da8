"""Streams between a program and its host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.frontends.popxl.dtypes import as_dtype, dtype
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.graph import get_ir
from abele.frontends.popxl.ir import Ir


class _Stream:
    def __init__(self, ir: Ir, name: str, shape: Sequence[int], kind: dtype) -> None:
        self.ir, self.tensor_id = ir, name
        self.shape, self.dtype = tuple(int(n) for n in shape), kind
        if min(self.shape, default=0) < 0:
            raise GraphArgumentError(f"the shape of a stream has no negative dimensions, {name!r} has {self.shape}")

    @property
    def name(self) -> str:
        """Its name, unique in the Ir."""
        return self.tensor_id

    def __hash__(self) -> int:
        return hash((self.ir.id, self.tensor_id))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Stream):
            raise GraphTypeError(f"a stream is compared with {other!r}")
        return self is other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.tensor_id} {self.dtype.name} {self.shape})"

    def check(self, kind: str, shape: tuple[int, ...], element: dtype) -> None:
        """Raise unless what is loaded or stored has its shape and type.

        Raises:
            GraphArgumentError: It has not.
        """
        if (shape, element.name) != (self.shape, self.dtype.name):
            raise GraphArgumentError(
                f"{kind}: the tensor is {element.name}{list(shape)}, the stream {self.tensor_id!r} "
                f"{self.dtype.name}{list(self.shape)}"
            )


class HostToDeviceStream(_Stream):
    """A stream from the host."""


class DeviceToHostStream(_Stream):
    """A stream to the host."""


def _name(ir: Ir, name: str | None, base: str) -> str:
    wanted = found = name or base
    number = 0
    while found in ir.h2d or found in ir.d2h:
        found, number = f"{wanted}__t{number}", number + 1
    return found


def h2d_stream(shape: Sequence[int], dtype: Any, name: str | None = None) -> HostToDeviceStream:
    """A new stream from the host."""
    ir = get_ir()
    made = HostToDeviceStream(ir, _name(ir, name, "h2d_stream"), shape, as_dtype(dtype))
    ir.h2d[made.tensor_id] = made
    return made


def d2h_stream(shape: Sequence[int], dtype: Any, name: str | None = None) -> DeviceToHostStream:
    """A new stream to the host."""
    ir = get_ir()
    made = DeviceToHostStream(ir, _name(ir, name, "d2h_stream"), shape, as_dtype(dtype))
    ir.d2h[made.tensor_id] = made
    return made


__all__ = ["DeviceToHostStream", "HostToDeviceStream", "d2h_stream", "h2d_stream"]
