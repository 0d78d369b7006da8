"""Guards of every library function against operands of another kind or another graph, and programs that are none.

The public names of a library are guarded where the library exports them. Calls between library functions are not: they
pass on what was looked at already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

from abele.graph import Graph
from abele.poplibs.poputil.arguments import Arguments, Forms, Order


def guarded_functions(namespace: Mapping[str, Any], names: Iterable[str], forms: Forms | None = None) -> dict[str, Any]:
    """Functions called ``names`` whose first parameter is a graph, guarded; guarded ones stay."""
    found = {name: namespace[name] for name in names if not isinstance(namespace[name], type)}
    forms = forms or {}
    return {name: guarded(found[name], forms.get(name, ()), name) for name in found if callable(found[name])}


def guarded(function: Callable[..., Any], forms: Iterable[Order] = (), called: str = "") -> Callable[..., Any]:
    """``function`` with checks of its arguments, whose errors speak of its parameters.

    Arguments that are not in our order are tried in PopLibs', ``forms`` (see :mod:`~abele.poplibs.poputil.arguments`).
    ``called`` is what errors call the function, if not by its own name.

    Raises:
        TypeMismatchError: An operand that is no tensor, a program that is no sequence, or another type than a number, a
            name or the parameters of the operation.
        TensorError: A tensor of another graph, or dimensions and sizes that are no whole numbers.
        InvalidOptionError: Options that are no mapping.
    """
    arguments = Arguments(function, tuple(forms), called)
    if arguments.names[:1] != ("graph",) or hasattr(function, "__wrapped__"):
        return function

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        if args and not isinstance(args[0], Graph):
            args = arguments.graph_first(args)
        error = arguments.refusal(args, named)
        if error is None:
            return function(*args, **named)
        target, given = arguments.in_another_order(args, named, error)
        return target(args[0], **given)

    if called:  # one function may go by several names
        call.__name__ = call.__qualname__ = called
    return call
