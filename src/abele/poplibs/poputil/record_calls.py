"""Functions that take the fields of a record as their arguments.

Functions of one family (a layer's backward pass with and without updates, the ways to reduce between replicas) take
the same arguments. Written out for each of them, and again for the helper that they share, such a list is there four
times, and an argument that is added is forgotten in one. Here it is written once, as a dataclass: its fields are the
parameters, in order, with their types and defaults, and what a call was given goes through the family as one value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

_Fields = ParamSpec("_Fields")
_Record = TypeVar("_Record")
_Result = TypeVar("_Result")
_ATTRIBUTE = "__arguments_record__"


def takes_fields_of(
    record: Callable[_Fields, _Record], name: str = ""
) -> Callable[[Callable[[_Record], _Result]], Callable[_Fields, _Result]]:
    """Decorate a function of one ``record``: callers give the fields, by position or by name.

    ``inspect.signature`` and type checkers see the fields as parameters.

    Args:
        record: A dataclass with a keyword-only field ``name``.
        name: The default of that field for this function; the function's own name if it is empty.
    """

    def decorated(function: Callable[[_Record], _Result]) -> Callable[_Fields, _Result]:
        default = name or function.__name__
        make: Callable[..., _Record] = record

        def call(*args: Any, **named: Any) -> _Result:
            named.setdefault("name", default)
            return function(make(*args, **named))

        # Not ``functools.wraps``: ``__wrapped__`` would show the function of the record, and say that it is guarded.
        for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(call, attribute, getattr(function, attribute))
        setattr(call, "__signature__", _signature(record, function, default))  # noqa: B010  Not in the type of functions.
        setattr(call, _ATTRIBUTE, record)
        return cast(Callable[_Fields, _Result], call)

    return decorated


def arguments_record(function: Any) -> Any:
    """The record whose fields a function takes; None for other functions."""
    return getattr(function, _ATTRIBUTE, None)


def _signature(record: Callable[..., Any], function: Callable[..., Any], name: str) -> inspect.Signature:
    fields = inspect.signature(record).parameters
    if "name" not in fields or fields["name"].kind is not inspect.Parameter.KEYWORD_ONLY:
        raise TypeError(f"{record} has no keyword-only field called name")
    # A record adds its own fields to those of its family; options and the name stand last all the same.
    order = sorted(fields, key=("options", "name").__contains__)
    parameters = [fields[n].replace(default=name) if n == "name" else fields[n] for n in order]
    return inspect.Signature(parameters, return_annotation=inspect.signature(function).return_annotation)
