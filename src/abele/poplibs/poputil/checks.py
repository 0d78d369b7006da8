"""Checks of operands and programs: errors in words where they are something else."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Sequence, Tensor
from abele.graph.expect import described


def check_operand(what: str, role: str, value: Any, graph: Graph) -> None:
    """``value`` is a tensor of ``graph``.

    Raises:
        TypeMismatchError: It is no tensor.
        TensorError: It is one of another graph.
    """
    if not isinstance(value, Tensor):
        raise TypeMismatchError(
            f"{what}: {role} must be a tensor, got {described(value)}",
            remedy="graph.constant(type, shape, values) makes a tensor of numbers",
        )
    if value.graph is not graph.top_level:
        raise TensorError(
            f"{what}: {role} {value!r} belongs to another graph",
            remedy="make it in the graph that the function is given, or clone it there",
        )


def is_number(value: Any) -> bool:
    """True if ``value`` is a number of Python's or NumPy's."""
    return isinstance(value, (int, float, np.number, np.bool_))


def check_program(what: str, role: str, value: Any, graph: Graph) -> None:
    """``value`` is a sequence.

    Raises:
        TypeMismatchError: It is none.
    """
    if not isinstance(value, Sequence):
        raise TypeMismatchError(
            f"{what}: {role} must be the Sequence that steps are appended to, got {described(value)}",
            remedy="look at the order of the arguments",
        )
