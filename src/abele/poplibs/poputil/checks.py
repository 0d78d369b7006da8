"""How one argument of a library function is looked at, by the name and annotation of its parameter."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import ComputeSet, Graph, Sequence, Tensor
from abele.graph.expect import described
from abele.numerics import as_element_type

Check = Callable[[str, str, Any, Graph], None]


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
    """Whether ``value`` is a number of Python's or NumPy's."""
    return isinstance(value, (int, float, np.number, np.bool_))


def check_of(name: str, annotation: str, scope: Mapping[str, Any]) -> Check | None:
    """How the argument of a parameter is looked at, from its name and annotation."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if name == "prog":
        return _check_list if annotation == "Into" else check_program
    if annotation in ("Sequence[int]", "Iterable[int]"):
        return _check_numbers
    if annotation in ("Sequence[Tensor]", "Iterable[Tensor]"):
        return _check_operands
    if annotation == "Tensor":
        return check_operand
    if annotation in ("Scale", "Scale | None", "Number"):
        return _check_scale
    if (
        annotation.startswith("Sequence[")
        and isinstance(kind := scope.get(annotation[9:-1]), type)
        and is_dataclass(kind)
    ):
        return _each(_instance_check((kind,), optional=False))
    if annotation in ("Tensor | None", "Offsets", "Numbers"):
        return _check_optional
    kinds = tuple(scope.get(part) for part in annotation.removesuffix(" | None").split(" | "))
    if not all(isinstance(kind, type) and is_dataclass(kind) for kind in kinds):
        return None
    return _instance_check(tuple(k for k in kinds if isinstance(k, type)), optional=annotation.endswith("None"))


def _each(check: Check) -> Check:
    """That every element of a list passes ``check``."""

    def check_all(what: str, role: str, value: Any, graph: Graph) -> None:
        for n, element in enumerate(value):
            check(what, f"{role}[{n}]", element, graph)

    return check_all


def _instance_check(kinds: tuple[type, ...], *, optional: bool) -> Check:
    """That an argument is one of the dataclasses, and that the tensors in it are of the graph."""
    wanted = " or ".join(kind.__name__ for kind in kinds)

    def check(what: str, role: str, value: Any, graph: Graph) -> None:
        if value is None and optional:
            return
        if not isinstance(value, kinds):
            raise TypeMismatchError(f"{what}: {role} must be {wanted}, got {described(value)}")
        for part in vars(value) if hasattr(value, "__dict__") else ():
            _check_optional(what, f"{role}.{part}", getattr(value, part), graph)

    return check


def _check_whole(what: str, role: str, value: Any, graph: Graph) -> None:
    if not isinstance(value, numbers.Integral):
        raise TypeMismatchError(f"{what}: {role} must be a whole number, got {described(value)}")


def _check_real(what: str, role: str, value: Any, graph: Graph) -> None:
    is_array = getattr(value, "ndim", 0) != 0
    if isinstance(value, str) or not hasattr(value, "__float__") or is_array:
        raise TypeMismatchError(f"{what}: {role} must be a number, got {described(value)}")


def _check_text(what: str, role: str, value: Any, graph: Graph) -> None:
    if not isinstance(value, str):
        raise TypeMismatchError(f"{what}: {role} must be text, got {described(value)}")


def _check_options(what: str, role: str, value: Any, graph: Graph) -> None:
    if value is not None and not (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        raise InvalidOptionError(f"{what}: {role} must be a mapping from names to values, got {described(value)}")


def _check_type(what: str, role: str, value: Any, graph: Graph) -> None:
    if value is not None:
        as_element_type(value)


def _check_expression(what: str, role: str, value: Any, graph: Graph) -> None:
    if isinstance(value, (list, tuple, str)):
        raise InvalidOptionError(f"{what}: {role} must be one expression, got {described(value)}")


def _check_compute_set(what: str, role: str, value: Any, graph: Graph) -> None:
    if not isinstance(value, ComputeSet):
        raise TypeMismatchError(f"{what}: {role} must be a compute set, got {described(value)}")


def _check_body(what: str, role: str, value: Any, graph: Graph) -> None:
    if not callable(value):
        raise TypeMismatchError(f"{what}: {role} must be a function of the counter, got {described(value)}")


_PLAIN: dict[str, Check] = {
    "Body": _check_body,
    "ExprOrCallable": _check_expression,
    "ComputeSet": _check_compute_set,
    "ElementType": _check_type,
    "ElementType | None": _check_type,
    "ElementType | str": _check_type,
    "int": _check_whole,
    "float": _check_real,
    "str": _check_text,
    "Options": _check_options,
}
"""How arguments of the plainest types are looked at."""


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


def _check_list(what: str, role: str, value: Any, graph: Graph) -> None:
    if not isinstance(value, list):
        check_program(what, role, value, graph)


def _check_numbers(what: str, role: str, value: Any, graph: Graph) -> None:
    try:
        if isinstance(value, Iterator) or (not isinstance(value, str) and all(operator.index(n) == n for n in value)):
            return
    except TypeError:
        pass
    raise TensorError(f"{what}: {role} must be whole numbers, as in (0, 1), got {described(value)}")


def _check_operands(what: str, role: str, value: Any, graph: Graph) -> None:
    if isinstance(value, Tensor) or not isinstance(value, Iterable):
        raise TypeMismatchError(f"{what}: {role} must be a list of tensors, got {described(value)}")
    for n, tensor in enumerate(value):
        check_operand(what, f"{role}[{n}]", tensor, graph)


def _check_scale(what: str, role: str, value: Any, graph: Graph) -> None:
    if isinstance(value, Tensor):
        check_operand(what, role, value, graph)
    elif value is not None and not isinstance(value, numbers.Real):
        raise TypeMismatchError(f"{what}: {role} must be a number or a tensor, got {described(value)}")


def _check_optional(what: str, role: str, value: Any, graph: Graph) -> None:
    if isinstance(value, Tensor):
        check_operand(what, role, value, graph)
