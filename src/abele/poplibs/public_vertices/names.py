"""Names of template instances, taken apart: ``popops::Fill<unsigned int>`` is ``popops::Fill`` of one argument."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VertexName:
    """The name of a vertex.

    Attributes:
        base: Name of the class or template, with its namespace.
        arguments: Template arguments as text, without spaces that mean nothing.
    """

    base: str
    arguments: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        """The outermost namespace."""
        return self.base.partition("::")[0]

    @property
    def short(self) -> str:
        """The base without the outermost namespace."""
        return self.base.partition("::")[2]


def taken_apart(name: str) -> VertexName:
    """Base and arguments of a vertex name whose needless spaces are gone.

    >>> taken_apart("popops::Reduce<popops::ReduceAdd,float,false>").arguments
    ('popops::ReduceAdd', 'float', 'false')
    """
    base, bracket, inside = name.partition("<")
    if not bracket or not inside.endswith(">"):
        return VertexName(name)
    return VertexName(base, tuple(_between_commas(inside[:-1])))


def _between_commas(text: str) -> list[str]:
    """Pieces of ``text`` between the commas that stand in no brackets of their own."""
    pieces, depth, begin = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            pieces.append(text[begin:at])
            begin = at + 1
    return [*pieces, text[begin:]] if text else []
