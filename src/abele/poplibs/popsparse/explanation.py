"""Explanation of a plan of a sparse product: what every mode's planner tells, in one form.

The command ``abele plan sparse-matmul`` prints it, and validation reads it. Example: static 4,096 x 4,096 by 4,096 x
1,024 in halves, blocks of 16 at density 1/16, is cut over 8 bands and 7 parts of the columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from abele.numerics import ElementType


@dataclass(frozen=True)
class SparseProblem:
    """A product [m, k] by [k, n] whose left operand is sparse.

    Attributes:
        m: Rows of the sparse matrix, in elements.
        k: Columns of the sparse matrix.
        n: Columns of the dense matrix.
        density: Share of the elements that is held.
        block: Rows and columns of a block, in elements.
        dtype: Type of both operands.
    """

    m: int
    k: int
    n: int
    density: float
    block: int
    dtype: ElementType

    @property
    def flops(self) -> float:
        """Multiplications and additions of what is held."""
        return 2.0 * self.m * self.k * self.n * self.density


@dataclass(frozen=True)
class SparseExplanation:
    """A plan, in numbers.

    Attributes:
        problem: The product.
        split: Parts by name, such as bands, and sizes of the largest part.
        terms: Expected cycles by name, in the order of execution.
        memory: Temporary bytes on the fullest tile by name.
        available_bytes: Bytes that these may take together.
        notes: Lines of text.
    """

    problem: SparseProblem
    split: tuple[tuple[str, int], ...]
    terms: tuple[tuple[str, int], ...]
    memory: tuple[tuple[str, int], ...]
    available_bytes: int
    notes: tuple[str, ...] = ()

    @property
    def cycles(self) -> int:
        """Expected cycles."""
        return sum(cycles for _, cycles in self.terms)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data."""
        problem = {**self.problem.__dict__, "dtype": self.problem.dtype.name}
        return {
            "problem": problem,
            "split": dict(self.split),
            "terms": dict(self.terms),
            "cycles": self.cycles,
            "memory": dict(self.memory),
            "available_bytes": self.available_bytes,
            "notes": list(self.notes),
        }
