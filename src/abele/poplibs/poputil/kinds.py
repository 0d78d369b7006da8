"""Kinds of arguments of library functions, by which orders of arguments are told apart."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from abele.counts import is_whole
from abele.errors import AbeleError
from abele.graph import Program, Tensor
from abele.graph.clone import TensorCloneMethod
from abele.graph.compute_set import ComputeSet
from abele.graph.debug_context import DebugContext, DebugNameAndId, name_of
from abele.numerics import ElementType, as_element_type

Fits = Callable[[Any], bool]


class PlanningCache:
    """Accepted wherever PopLibs takes one: plans are kept by the library itself, for all graphs of the process."""

    def size(self) -> int:
        """Plans that this object keeps: none."""
        return 0


def debug_name(value: Any) -> str:
    """Name of a debug context; ``{"name"}`` is read as in C++."""
    return name_of(value or "", "")


def is_debug_name(value: Any) -> bool:
    """True if ``value`` can stand where PopLibs takes a debug context."""
    if isinstance(value, (set, frozenset, list, tuple, dict)):
        return all(isinstance(part, (str, DebugContext, DebugNameAndId)) for part in value) and not (
            isinstance(value, dict) and value
        )
    return value is None or (isinstance(value, (str, DebugContext, DebugNameAndId)) and not isinstance(value, Enum))


def is_type(value: Any) -> bool:
    """True if ``value`` is an element type, or a name of one."""
    if isinstance(value, ElementType):
        return True
    if not isinstance(value, (str, type, np.dtype)):
        return False
    return _is_known_type(value)


@cache
def _is_known_type(value: Any) -> bool:
    try:
        found = as_element_type(value)
    except AbeleError:
        return False
    return not isinstance(value, str) or value in (found.name, found.poplar_name)


def is_boolean(value: Any) -> bool:
    """True if ``value`` is ``True`` or ``False``, of Python or NumPy."""
    return isinstance(value, (bool, np.bool_))


def is_real(value: Any) -> bool:
    """True if ``value`` is a number, and no truth value."""
    return isinstance(value, (numbers.Real, np.number)) and not isinstance(value, (bool, np.bool_))


def are_whole(value: Any) -> bool:
    """True if ``value`` is a list of whole numbers."""
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind in "iu"
    return isinstance(value, (list, tuple, range)) and all(isinstance(n, numbers.Integral) for n in value)


def _are_tensors(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(tensor, Tensor) for tensor in value)


def _is_into(value: Any) -> bool:
    return isinstance(value, (Program, list)) and (
        isinstance(value, Program) or all(isinstance(cs, ComputeSet) for cs in value)
    )


KINDS: dict[str, Fits] = {
    "tensor": lambda value: isinstance(value, Tensor),
    "tensor or none": lambda value: value is None or isinstance(value, Tensor),
    "operand": lambda value: isinstance(value, (Tensor, numbers.Real)),
    "tensors": _are_tensors,
    "list": lambda value: isinstance(value, (list, tuple)),
    "program": lambda value: isinstance(value, Program),
    "into": _is_into,
    "type": is_type,
    "whole": is_whole,
    "real": is_real,
    "bool": is_boolean,
    "wholes": are_whole,
    "text": lambda value: isinstance(value, str),
    "debug": is_debug_name,
    "label": lambda value: is_debug_name(value) and not (isinstance(value, str) and value.isupper()),
    "options": lambda value: value is None or isinstance(value, Mapping),
    "callable": callable,
    "padding": lambda value: isinstance(value, (Tensor, Enum)) or is_real(value),
    "clone": lambda value: isinstance(value, TensorCloneMethod) and "AND_ALIASES" not in value.name,
    "stream": lambda value: hasattr(value, "write"),
    "any": lambda value: True,
}
"""Test of an argument, by kind."""
