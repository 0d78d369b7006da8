"""Calls that programs written for PopLibs make before anything else."""

from __future__ import annotations

from collections.abc import Callable

from abele.graph import Graph


def codelets_adder(namespace: str) -> Callable[[Graph], None]:
    """The ``add_codelets`` of a library."""

    def add_codelets(graph: Graph) -> None:
        """Make the library's own vertices known by name; see the page on library vertices.

        Library functions bring their codelets along and need no such call.
        """
        from abele.poplibs.public_vertices import library  # Here, since its vertices are made of the libraries' own.

        graph.codelets.add_source(library(namespace))

    return add_codelets


def add_codelets(graph: Graph) -> None:
    """Does nothing: the library has no vertices by name. Programs that call it need no change."""
