"""Streams with their arrays, and sets of streams by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from abele.arrays import Array
from abele.frontends import popxl
from abele.frontends.popxl import DeviceToHostStream, HostToDeviceStream, Tensor, ops
from abele.frontends.popxl.dtypes import as_dtype
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl_addons.errors import TreeNameError

St = TypeVar("St", HostToDeviceStream, DeviceToHostStream)


def host_load(data: Any, dtype: Any, name: str | None = None) -> tuple[Array, HostToDeviceStream, Tensor]:
    """An array as what a stream carries, the stream, and what the current graph loads of it.

    Args:
        data: Array, or number, of one entry of the stream.
        dtype: Type of the stream.
        name: Name of the stream.

    Returns:
        Array in the type; stream; tensor.
    """
    array = data.detach().cpu().numpy() if hasattr(data, "detach") else np.asarray(data)
    kind = as_dtype(dtype)
    stream = popxl.h2d_stream(array.shape, kind, name=name)
    return array.astype(kind.as_numpy()), stream, ops.host_load(stream, name or "host_load")


def host_store(t: Tensor, name: str | None = None) -> DeviceToHostStream:
    """A new stream to the host, which a tensor of the current graph is stored to."""
    stream = popxl.d2h_stream(t.shape, t.dtype, name=name or f"{t.name}_stream")
    ops.host_store(stream, t)
    return stream


class _Streams(Generic[St]):
    _make: ClassVar[Any]

    def __init__(self, **streams: tuple[Any, Any]) -> None:
        self._by_name: dict[str, St] = {}
        for name, spec in streams.items():
            if not isinstance(spec, tuple | list) or len(spec) != 2:
                raise GraphTypeError(f"the stream {name!r} is given as (shape, dtype), not {spec!r}")
            self._by_name[name] = type(self)._make(spec[0], spec[1], name=name)

    def __getattr__(self, name: str) -> St:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, key: str | int) -> St:
        if isinstance(key, str):
            if key not in self._by_name:
                raise TreeNameError(f"there is no stream {key!r}", because=f"there are {', '.join(self._by_name)}")
            return self._by_name[key]
        return list(self._by_name.values())[key]

    def items(self) -> list[tuple[str, St]]:
        """Names and streams."""
        return list(self._by_name.items())

    def keys(self) -> list[str]:
        """Names."""
        return list(self._by_name)

    def values(self) -> list[St]:
        """Streams."""
        return list(self._by_name.values())

    def __iter__(self) -> Iterator[St]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, key: object) -> bool:
        return key in self._by_name if isinstance(key, str) else any(key is s for s in self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self))})"


class InputStreams(_Streams[HostToDeviceStream]):
    """Streams from the host by name: ``InputStreams(words=((4, 8), popxl.int32))``; ``inputs.words`` is one."""

    _make = staticmethod(popxl.h2d_stream)

    @classmethod
    def from_streams(cls, streams: Any) -> InputStreams:
        """Streams that are there, by their names."""
        made = cls()
        made._by_name = {s.name: s for s in streams}
        return made


class OutputStreams(_Streams[DeviceToHostStream]):
    """Streams to the host by name, as :class:`InputStreams`."""

    _make = staticmethod(popxl.d2h_stream)

    @classmethod
    def from_streams(cls, streams: Any) -> OutputStreams:
        """Streams that are there, by their names."""
        made = cls()
        made._by_name = {s.name: s for s in streams}
        return made


def check_steps(kind: str, steps: int) -> int:
    """A number of steps, at least one.

    Raises:
        GraphArgumentError: It is no such number.
    """
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise GraphArgumentError(f"{kind} takes a whole number of steps from 1 on, not {steps!r}")
    return int(steps)


__all__ = ["InputStreams", "OutputStreams", "host_load", "host_store"]
