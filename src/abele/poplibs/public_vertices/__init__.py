"""PopLibs' own vertices by name: names, fields, meaning and cost of its libraries' vertices.

A program that places library vertices itself calls ``popops.addCodelets(graph)`` and adds them by name:
``graph.addVertex(cs, "popops::BinaryOp1D<popops::expr::BinaryOpType::ADD,float>")``.
"""

from abele.poplibs.public_vertices.library import LibraryVertices, library

__all__ = ["LibraryVertices", "library"]
