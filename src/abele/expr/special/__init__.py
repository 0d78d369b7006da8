"""Special functions: their algorithms, written once for arrays and for generated code."""

from abele.expr.special.code import emitter, num_operations
from abele.expr.special.on_arrays import on_arrays

__all__ = ["emitter", "num_operations", "on_arrays"]
