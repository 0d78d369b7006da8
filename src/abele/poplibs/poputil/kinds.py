"""What fits an argument of a library function, by kind: how an order of arguments is told from another."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

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
    """The name that a debug context stands for; ``{"name"}`` is read as in C++."""
    return name_of(value or "", "")


def is_debug_name(value: Any) -> bool:
    """Whether ``value`` can stand where PopLibs takes a debug context."""
    if isinstance(value, (set, frozenset, list, tuple, dict)):
        return all(isinstance(part, (str, DebugContext, DebugNameAndId)) for part in value) and not (
            isinstance(value, dict) and value
        )
    return value is None or (isinstance(value, (str, DebugContext, DebugNameAndId)) and not isinstance(value, Enum))


def _is_type(value: Any) -> bool:
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


def _is_real(value: Any) -> bool:
    return isinstance(value, (numbers.Real, np.number)) and not isinstance(value, (bool, np.bool_))


def _are_whole(value: Any) -> bool:
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
    "type": _is_type,
    "whole": lambda value: isinstance(value, numbers.Integral) and not isinstance(value, bool),
    "real": _is_real,
    "bool": lambda value: isinstance(value, (bool, np.bool_)),
    "wholes": _are_whole,
    "text": lambda value: isinstance(value, str),
    "debug": is_debug_name,
    "label": lambda value: is_debug_name(value) and not (isinstance(value, str) and value.isupper()),
    "options": lambda value: value is None or isinstance(value, Mapping),
    "callable": callable,
    "padding": lambda value: isinstance(value, (Tensor, Enum)) or _is_real(value),
    "clone": lambda value: isinstance(value, TensorCloneMethod) and "AND_ALIASES" not in value.name,
    "stream": lambda value: hasattr(value, "write"),
    "any": lambda value: True,
}
"""What fits an argument, by kind."""

_BY_ANNOTATION = {
    "Tensor": "tensor",
    "Tensor | None": "tensor or none",
    "Operand": "operand",
    "Scale": "operand",
    "Scale | None": "operand",
    "Number": "operand",
    "float | Tensor": "operand",
    "Sequence": "program",
    "Steps": "program",
    "Program": "program",
    "Into": "into",
    "ElementType": "type",
    "ElementType | None": "type",
    "ElementType | str": "type",
    "ElementType | str | None": "type",
    "Type": "type",
    "int": "whole",
    "int | None": "whole",
    "float": "real",
    "float | None": "real",
    "bool": "bool",
    "str": "text",
    "Options": "options",
    "Sequence[int]": "wholes",
    "Iterable[int]": "wholes",
    "tuple[int, ...]": "wholes",
    "Shape": "wholes",
    "Sequence[Tensor]": "tensors",
    "Sequence[Tensor] | None": "tensors",
    "Body": "any",
    "AllReduce": "callable",
}


_PLAIN_TYPES = {"int": numbers.Integral, "float": numbers.Real, "str": str, "bool": bool}


def fits_annotation(annotation: str, scope: Mapping[str, Any]) -> Fits:
    """What fits a parameter, from its annotation; anything where that says nothing."""
    if annotation in _BY_ANNOTATION:
        return KINDS[_BY_ANNOTATION[annotation]]
    if annotation.startswith(("Sequence[", "list[")):
        return KINDS["list"]
    parts = annotation.split(" | ")
    kinds = tuple(kind for part in parts if isinstance(kind := scope.get(part, _PLAIN_TYPES.get(part)), type))
    if not kinds:
        return KINDS["any"]
    takes_none = "None" in parts
    return lambda value: isinstance(value, kinds) or (takes_none and value is None)
