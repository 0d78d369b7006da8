"""What every library function refuses: operands that are no tensors or of another graph, programs that are none.

The public names of a library are guarded where the library exports them. Calls between library functions are not: they
pass on what was looked at already.
"""

from __future__ import annotations

import inspect
import numbers
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Sequence, Tensor

Check = Callable[[str, str, Any, Graph], None]


def guarded_functions(namespace: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The functions called ``names`` whose first parameter is a graph, guarded; what is guarded already stays."""
    found = {name: namespace[name] for name in names if inspect.isfunction(namespace[name])}
    return {name: guarded(function) for name, function in found.items()}


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` after a look at its arguments, which says in its words what does not fit.

    Raises:
        TypeMismatchError: An operand that is no tensor, or a program that is no sequence.
        TensorError: A tensor of another graph, or dimensions and sizes that are no whole numbers.
    """
    parameters = inspect.signature(function).parameters
    names = tuple(parameters)
    if not names or names[0] != "graph" or hasattr(function, "__wrapped__"):
        return function
    checks = {n: c for n, p in parameters.items() if (c := _check_of(n, str(p.annotation))) is not None}

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        graph = args[0] if args else named.get("graph")
        what = str(named.get("name") or function.__name__)
        if not isinstance(graph, Graph):
            raise TypeMismatchError(f"{what}: the first argument is the graph, got {described(graph)}")
        for parameter, value in (*zip(names, args, strict=False), *named.items()):
            check = checks.get(parameter)
            if check is not None:
                check(what, parameter, value, graph)
        return function(*args, **named)

    return call


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


def described(value: Any) -> str:
    """A few words on what was given in place of something else."""
    shape = getattr(value, "shape", None)
    kind = type(value).__name__
    if shape is not None and not isinstance(value, Tensor):
        return f"{kind} of shape {list(shape)}"
    shown = repr(value)
    return shown if kind in ("Tensor", "NoneType") else f"{kind} {shown if len(shown) <= 40 else shown[:37] + '...'}"


def _check_of(name: str, annotation: str) -> Check | None:
    """How the argument of a parameter is looked at, from its name and annotation."""
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
    return _check_optional if annotation in ("Tensor | None", "Offsets", "Numbers") else None


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
