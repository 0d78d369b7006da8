"""Polynomials over elements of a tensor and sums over its rows.

A *row* is what a statistic is taken of: the elements along the reduced dims. Every way of writing a norm's gradient,
such as ``r·g − r·Σg/n − w·r·Σ(g·w)/n`` or a trace's string of a dozen products and sums, has one normal form: a sum of
monomials, each a number times powers of atoms and of row sums. What does not vary within a row stands before the sum
(``Σ(r·g) = r·Σg``), and facts about atoms are put in as sums are taken: whitened values have Σw = 0, those of a softmax
Σy = 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeGuard

from abele.network.ir import Value

MOST_TERMS = 12
"""Monomials of a polynomial, beyond which it is not followed further."""


@dataclass(frozen=True)
class Atom:
    """Something that is not taken apart.

    Attributes:
        value: The value, without casts and dims of one index; a name for what the algebra introduces.
        dims: Dims of the tensor along which it varies.
        kind: ``number`` for the value itself; ``indicator`` for 1 at the index that the value is of each row, else 0;
            ``guard`` for 1 where the value holds, else NaN.
    """

    value: Value | str
    dims: frozenset[int]
    kind: Literal["number", "indicator", "guard"] = "number"


@dataclass(frozen=True)
class RowSum:
    """The sum over a row of a monomial."""

    of: Monomial


Factor = Atom | RowSum
Monomial = frozenset[tuple[Factor, int]]
Polynomial = Mapping[Monomial, float]

ONE: Monomial = frozenset()


def constant(number: float) -> Polynomial:
    """A number."""
    return {ONE: number} if number else {}


def atom(value: Value | str, dims: Iterable[int]) -> Polynomial:
    """An atom to the power of one."""
    return power_of(Atom(value, frozenset(dims)))


def monomial_of(*factors: tuple[Factor, int]) -> Monomial:
    """Powers of atoms and sums."""
    return frozenset(factors)


def power_of(factor: Factor, power: int = 1) -> Polynomial:
    """A power of an atom or sum."""
    return {monomial_of((factor, power)): 1.0}


def added(first: Polynomial, second: Polynomial, scale: float = 1.0) -> Polynomial:
    """``first + scale · second``; what cancels to rounding is nothing. What one guard makes NaN, the sum is."""
    guards = guards_of(first) ^ guards_of(second)
    if guards:
        first, second = ({times(m, guards): n for m, n in p.items()} for p in (first, second))
    total = dict(first)
    for monomial, number in second.items():
        before = total.get(monomial, 0.0)
        after = before + scale * number
        if abs(after) <= 1e-6 * abs(before):
            total.pop(monomial, None)
        else:
            total[monomial] = after
    return total


def guards_of(polynomial: Polynomial) -> Monomial:
    """Guards of a polynomial: all its monomials have them."""
    return next((frozenset((f, p) for f, p in m if is_mask(f) and f.kind == "guard") for m in polynomial), ONE)


def is_mask(factor: Factor) -> TypeGuard[Atom]:
    """True for an atom that is its own square."""
    return isinstance(factor, Atom) and factor.kind != "number"


def times(first: Monomial, second: Monomial) -> Monomial:
    """The product of two monomials."""
    powers = dict(first)
    for factor, power in second:
        total = powers.get(factor, 0) + power
        powers[factor] = min(total, 1) if is_mask(factor) else total
    return frozenset((f, p) for f, p in powers.items() if p)


def product(first: Polynomial, second: Polynomial) -> Polynomial | None:
    """The product; None where it has too many terms."""
    if len(first) * len(second) > 2 * MOST_TERMS:
        return None
    total: Polynomial = {}
    for one, number in first.items():
        total = added(total, {times(one, other): number * by for other, by in second.items()})
    return total if len(total) <= MOST_TERMS else None


def root(polynomial: Polynomial, power: float) -> Polynomial | None:
    """A monomial to a power that leaves its exponents whole; None for anything else."""
    if len(polynomial) != 1:
        return None
    ((monomial, number),) = polynomial.items()
    if any(is_mask(factor) for factor, _ in monomial):
        return None
    powers = [(factor, exponent * power) for factor, exponent in monomial]
    if any(p != round(p) for _, p in powers) or number == 0 or (number < 0 and power != round(power)):
        return None
    return {frozenset((f, round(p)) for f, p in powers): math.pow(number, power)}


def divided(monomial: Monomial, factor: Factor, power: int = 1) -> Monomial:
    """A monomial over a power of a factor."""
    return times(monomial, frozenset({(factor, -power)}))


def exponent(monomial: Monomial, factor: Factor) -> int:
    """Exponent of a factor in a monomial."""
    return dict(monomial).get(factor, 0)


def equal(first: Polynomial, second: Polynomial) -> bool:
    """True for the same monomials with the same numbers, up to the rounding of f16 constants."""
    if first.keys() != second.keys():
        return False
    return all(math.isclose(number, second[m], rel_tol=2e-3) for m, number in first.items())


def has_sums(polynomial: Polynomial) -> bool:
    """True if a monomial has a row sum."""
    return any(isinstance(f, RowSum) for m in polynomial for f, _ in m)


def atoms_of(polynomial: Polynomial) -> set[Atom]:
    """Every atom outside of row sums."""
    return {f for m in polynomial for f, _ in m if isinstance(f, Atom)}
