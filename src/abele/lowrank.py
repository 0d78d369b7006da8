"""Tile low-rank products by themselves: compress a matrix, and multiply vectors with it on a machine.

>>> import numpy as np
>>> from abele import lowrank
>>> points = np.linspace(0.0, 1.0, 96)
>>> matrix = lowrank.compress(1 / (1 + 9 * abs(points[:, None] - points)), 32, tolerance=1e-4)
>>> with lowrank.LowRankProduct(matrix, system="bow") as product:
...     y = product(np.ones(96, np.float32))
>>> y.shape, bool(np.allclose(y, matrix.to_dense().sum(1), rtol=1e-5))
((96,), True)

Graphs of your own take :func:`create_low_rank_operator` and :func:`low_rank_multiply`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.compiler import compile_program
from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Sequence
from abele.machine import System
from abele.numerics import ElementType
from abele.poplibs.lowrank import (
    LowRankOperator,
    TileLowRank,
    compress,
    create_low_rank_input,
    create_low_rank_operator,
    low_rank_multiply,
    morton_order,
)
from abele.report import Report
from abele.runtime import Engine

__all__ = [
    "LowRankOperator",
    "LowRankProduct",
    "TileLowRank",
    "compress",
    "create_low_rank_input",
    "create_low_rank_operator",
    "low_rank_multiply",
    "morton_order",
]


class LowRankProduct:
    """A compiled product with one matrix, whose factors stay on the machine; vectors go in and out.

    Attributes:
        operator: The factors and how they lie.
        system: The machine.
    """

    def __init__(
        self,
        matrix: TileLowRank,
        *,
        system: System | str = "bow",
        dtype: ElementType | str = "float",
        batch: int | None = None,
        mode: str = "native",
        options: dict[str, Any] | None = None,
    ) -> None:
        """Lay out and compile.

        Args:
            matrix: A matrix from :func:`compress`.
            system: The machine, or its name.
            dtype: f32 or f16, of factors and vectors.
            batch: Vectors of each call; None for one, without a dimension of its own.
            mode: ``native``, or ``tiles`` for the placed vertices.
            options: Those of :func:`create_low_rank_operator`.

        Raises:
            As :func:`create_low_rank_operator` and the engine.
        """
        graph, prog = Graph(system), Sequence()
        self.operator = create_low_rank_operator(graph, matrix, dtype, batch=batch or 1, options=options)
        self._x = create_low_rank_input(graph, self.operator, batch)
        self._y = low_rank_multiply(graph, self.operator, self._x, prog)
        self.system = graph.system
        keep = [self._x, self._y, self.operator.v, self.operator.u]
        self._engine = Engine(compile_program(graph, prog), mode=mode, keep=keep)

    def __call__(self, x: npt.ArrayLike) -> npt.NDArray[np.floating[Any]]:
        """A · x of a vector [N], or of [batch, N], as the machine computes it, in its type.

        Raises:
            TensorError: x of another shape.
        """
        vectors = np.asarray(x)
        if vectors.dtype.kind not in "fiub":
            raise TypeMismatchError(f"x of a product is of real numbers, got {vectors.dtype}")
        if vectors.shape != self._x.shape:
            raise TensorError(
                f"the product was compiled for x of shape {list(self._x.shape)}, got {list(vectors.shape)}"
            )
        self._engine[self._x] = vectors.astype(self._x.dtype.np)
        self._engine.run()
        return np.array(self._engine[self._y])

    def update(self, matrix: TileLowRank) -> None:
        """Put another matrix with the same ranks into the machine's memory.

        Raises:
            PatternMismatchError: Another shape, other tiles or other ranks.
        """
        self._engine[self.operator.v], self._engine[self.operator.u] = self.operator.values(matrix)

    @property
    def report(self) -> Report:
        """The report of all runs so far; one before the first."""
        return self._engine.report

    @property
    def cycles(self) -> int:
        """Modelled tile cycles of one product: the same for all vectors."""
        return int(self.report.cycles().total)

    @property
    def latency_seconds(self) -> float:
        """Modelled time of one product."""
        return self.cycles / self.system.ipu.clock_hz

    def close(self) -> None:
        """End the engine's threads."""
        self._engine.close()

    def __enter__(self) -> LowRankProduct:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
