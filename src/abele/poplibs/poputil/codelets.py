"""What programs written for PopLibs call before anything else."""

from __future__ import annotations

from abele.graph import Graph


def add_codelets(graph: Graph) -> None:
    """Does nothing: library functions bring their codelets along. Programs that call it need no change."""
