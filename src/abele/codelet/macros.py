"""Macros: functions whose code is put in place of the call.

A plain function that a codelet calls is code of its own, which is called when the vertex runs. A macro is not: its
statements come before the one that calls it, and what it returns stands where it is called. Code that several codelets
share then costs, and is vectorised, as if each had written it out. Arguments are put where the parameters stand, as
often as they stand there; variables of a macro are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__abele_macro__"


def macro(function: F) -> F:
    """Make a macro of a function: its code takes the place of each call in a ``compute``.

    Its parameters may be values, fields, ``self``, element types and settings. A ``return`` comes last, or last of what
    is left where conditions are known when the code is made.
    """
    setattr(function, _MARK, True)
    return function


def is_macro(function: FunctionType) -> bool:
    """True if :func:`macro` made it one."""
    return hasattr(function, _MARK)
