"""Affine functions of named dims: where in its operand an expression loads, and loop indices as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Affine:
    """Σ coefficient · dim + const. Terms are kept merged, without zeros, in order of dim name."""

    terms: tuple[tuple[str, int], ...]
    const: int = 0

    def __post_init__(self) -> None:
        if not self.terms:
            return
        # Most are of one term, which needs no merging.
        if len(self.terms) == 1 and type(self.terms[0][1]) is int and self.terms[0][1]:
            return
        total: dict[str, int] = {}
        for name, coefficient in self.terms:
            total[name] = total.get(name, 0) + int(coefficient)
        object.__setattr__(self, "terms", tuple(sorted((d, c) for d, c in total.items() if c)))

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return _merged(self.terms, self.const + other) if other else self
        if not self.terms or not other.terms:
            return _merged(self.terms or other.terms, self.const + other.const)
        return Affine(self.terms + other.terms, self.const + other.const)

    def __mul__(self, factor: int) -> Affine:
        if not factor:
            return Affine(())
        times = int(factor)
        return _merged(tuple([(d, c * times) for d, c in self.terms]), self.const * factor)

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Affine | int) -> Affine:
        return self + -other

    def __rsub__(self, other: int) -> Affine:
        return -self + other

    __radd__, __rmul__ = __add__, __mul__

    @property
    def names(self) -> tuple[str, ...]:
        """The dims that it mentions."""
        return tuple([name for name, _ in self.terms])

    def coefficient(self, name: str) -> int:
        """The factor of dim ``name``; 0 where it is not mentioned."""
        for dim, factor in self.terms:
            if dim == name:
                return factor
        return 0

    def bounds(self, extents: Mapping[str, int]) -> tuple[int, int]:
        """Smallest and largest value over the box of ``extents``."""
        low = high = self.const
        for dim, coefficient in self.terms:
            step = coefficient * (extents[dim] - 1)
            if step < 0:
                low += step
            else:
                high += step
        return low, high

    def substitute(self, values: Mapping[str, Affine]) -> Affine:
        """Itself with the dims of ``values`` replaced."""
        terms: list[tuple[str, int]] = []
        const, changed = self.const, False
        for name, coefficient in self.terms:
            value = values.get(name)
            if value is None:
                terms.append((name, coefficient))
            else:
                terms += ((dim, factor * coefficient) for dim, factor in value.terms)
                const, changed = const + value.const * coefficient, True
        return Affine(tuple(terms), const) if changed else self

    def __str__(self) -> str:
        parts = [f"{'-' if c < 0 else '+'} {d if abs(c) == 1 else f'{abs(c)}*{d}'}" for d, c in self.terms]
        if self.const or not parts:
            parts.append(f"{'-' if self.const < 0 else '+'} {abs(self.const)}")
        text = " ".join(parts)
        return text[2:] if text.startswith("+ ") else "-" + text[2:]


def _merged(terms: tuple[tuple[str, int], ...], const: int) -> Affine:
    """An Affine of terms that are merged already; planners make tens of thousands, and merging is most of the cost."""
    made = object.__new__(Affine)
    object.__setattr__(made, "terms", terms)
    object.__setattr__(made, "const", const)
    return made


AffineLike = Affine | str | int
"""Arguments that builders take for an index: an :class:`Affine`, the name of a dim, or a number."""


def affine(*terms: AffineLike | tuple[str, int], const: int = 0) -> Affine:
    """The sum of ``terms``, each a dim's name, a ``(dim, coefficient)`` pair, an Affine or a number, and ``const``."""
    result = Affine((), const)
    for term in terms:
        if isinstance(term, str):
            result = result + Affine(((term, 1),))
        elif isinstance(term, tuple):
            result = result + Affine((term,))
        else:
            result = result + term
    return result


def dims(names: str) -> tuple[Affine, ...]:
    """One Affine for each dim named in ``names``, which are separated by blanks."""
    return tuple(affine(name) for name in names.split())
