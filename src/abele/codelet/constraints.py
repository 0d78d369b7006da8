"""Constraints on where the fields of a vertex lie, as Poplar writes them: ``elem(*a) != elem(*b)``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from abele.codelet.fields import FieldDef
from abele.errors import MemoryElementError, nearest

_FORM = re.compile(r"\s*(elem|region)\s*\(\s*\*\s*(\w+)\s*\)\s*!=\s*(elem|region)\s*\(\s*\*\s*(\w+)\s*\)\s*")


@dataclass(frozen=True, slots=True)
class Constraint:
    """Two fields whose data must not share a memory element (``elem``) or region (``region``).

    Attributes:
        kind: ``elem`` or ``region``.
        one: Name of a field.
        other: Name of the other.
    """

    kind: str
    one: str
    other: str

    def __str__(self) -> str:
        return f"{self.kind}(*{self.one}) != {self.kind}(*{self.other})"


def read_constraints(
    given: str | Sequence[str], codelet: str, fields: Sequence[FieldDef], place: str
) -> tuple[Constraint, ...]:
    """The constraints of a codelet from their texts.

    Raises:
        MemoryElementError: A text that is none, or names something that is no edge of the codelet.
    """
    texts = [given] if isinstance(given, str) else list(given)
    return tuple(_read(text, codelet, fields, place) for text in texts)


def _read(text: str, codelet: str, fields: Sequence[FieldDef], place: str) -> Constraint:
    match = _FORM.fullmatch(text)
    if match is None or match[1] != match[3]:
        raise MemoryElementError(
            f"{text!r} is no constraint of {codelet}",
            at=place,
            remedy='"elem(*a) != elem(*b)" or "region(*a) != region(*b)"',
        )
    edges = [f.name for f in fields if f.is_edge]
    for name in (match[2], match[4]):
        if name not in edges:
            close = nearest(name, edges)
            raise MemoryElementError(
                f"constraint {text!r} of {codelet} names {name!r}, which is no edge of it",
                at=place,
                remedy=f"did you mean {close!r}?" if close else "its edges are " + ", ".join(edges),
            )
    if match[2] == match[4]:
        raise MemoryElementError(f"constraint {text!r} of {codelet} cannot be met by one field", at=place)
    return Constraint(match[1], match[2], match[4])
