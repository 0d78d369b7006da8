"""Stages: the order of a contraction's compute sets."""

from __future__ import annotations

from enum import Enum

from abele.graph import ComputeSet, Graph


class ContractionStage(Enum):
    """Task of a compute set of a contraction, by name; contractions side by side share those of one stage."""

    REWRITE = "rewrite"
    """Operands are written anew, as the vertices read them."""
    ARRANGE = "arrange"
    """Rewritten operands are put into another order."""
    PARTIALS = "partials"
    """Partial products."""
    REDUCE_STAGE = "reduce_stage"
    """Some partials become one; more sums follow."""
    REDUCE = "reduce"
    """The last partials are summed."""
    CAST = "cast"
    """Single partials are converted."""
    ARRANGE_OUTPUT = "arrange_output"
    """The result is put into the order in which it is wanted."""

    def compute_set(self, graph: Graph) -> ComputeSet:
        """A new compute set that does it."""
        return graph.compute_set(self.value, self)
