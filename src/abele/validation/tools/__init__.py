"""The programs that operator benchmarks count, one module a kind of operator.

Each module has ``build(graph, given)``, which makes the operator that its parameters describe in ``graph`` and returns
everything that is counted as one sequence.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Protocol, cast

from abele.errors import UnsupportedOpError, nearest
from abele.graph import Graph, Sequence
from abele.validation.parameters import Parameters


class Tool(Protocol):
    """A module of this package."""

    def build(self, graph: Graph, given: Parameters) -> Sequence:
        """Make the operator in ``graph``; returns the program that counts."""


def names() -> list[str]:
    """Kinds of operators, by name."""
    return sorted(module.name for module in iter_modules(__path__))


def tool(name: str) -> Tool:
    """The kind of operator called ``name``.

    Raises:
        UnsupportedOpError: There is none.
    """
    if find_spec(f"{__name__}.{name}") is None:
        close = nearest(name, names())
        raise UnsupportedOpError(
            f"no operator benchmark {name!r}" + (f"; did you mean {close!r}?" if close else ""),
            remedy="one of " + ", ".join(names()),
        )
    return cast(Tool, import_module(f"{__name__}.{name}"))
