"""Poplar's names for the engine's methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing import IO

    from abele.graph import Stream, Tensor
    from abele.runtime.engine import Engine


class CppNames:
    """Mix-in of :class:`Engine`: each method is Poplar's name for one that the engine has."""

    def writeTensor(self: Engine, handle: str | Tensor, values: npt.ArrayLike) -> None:  # type: ignore[misc]
        """Poplar's name for :meth:`Engine.write`."""
        self.write(handle, values)

    def readTensor(  # type: ignore[misc]
        self: Engine, handle: str | Tensor, into: npt.NDArray[Any] | None = None
    ) -> npt.NDArray[Any]:
        """Poplar's name for :meth:`Engine.read`; fills ``into`` if given."""
        values = self.read(handle)
        if into is None:
            return values
        np.copyto(into, values.reshape(into.shape))
        return into

    def connectStream(self: Engine, stream: str | Stream, data: npt.NDArray[Any]) -> None:  # type: ignore[misc]
        """Poplar's name for :meth:`Engine.connect` with an array."""
        self.connect(stream, data)

    def connectStreamToCallback(self: Engine, stream: str | Stream, callback: Any) -> None:  # type: ignore[misc]
        """Poplar's name for :meth:`Engine.connect` with a callable."""
        self.connect(stream, callback)

    def setPrintTensorStream(self: Engine, stream: IO[str]) -> None:  # type: ignore[misc]
        """Where PrintTensor prints to."""
        self.print_stream = stream

    def getReport(self: Engine) -> Any:  # type: ignore[misc]
        """Poplar's name for :attr:`Engine.report`."""
        return self.report
