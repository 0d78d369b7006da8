"""Sums by letters of indices: two operands at a time become a product of stacks of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from abele.expr.derivative import arg
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import bool_, f16, f32

if TYPE_CHECKING:
    from abele.frontends.onnx.registry import NodeCall

_SPARE = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Letters for the dimensions of an ellipsis, last one first."""


def einsum(call: NodeCall, equation: str, values: Sequence[Value]) -> Value:
    """The result of an equation such as ``bij,bjk->bik``.

    Raises:
        ModelError: The equation does not fit the operands.
    """
    letters, result = _read(call, equation, values)
    net = call.net
    operands = [_without_repeats(net, v, own) for v, own in zip(values, letters, strict=True)]
    extents: dict[str, int] = {}
    for value, own in operands:
        for letter, extent in zip(own, value.shape, strict=True):
            if extents.setdefault(letter, extent) != extent and 1 not in (extent, extents[letter]):
                raise call.wrong(f"has the equation {equation!r}, whose {letter!r} is {extents[letter]} and {extent}")
            extents[letter] = max(extents[letter], extent)
    made, own = operands[0]
    for number, (other, theirs) in enumerate(operands[1:], 1):
        later = set(result).union(*(o for _, o in operands[number + 1 :]))
        made, own = _pair(net, (made, own), (other, theirs), later, extents)
    gone = [d for d, letter in enumerate(own) if letter not in result]
    if gone:
        made = build.reduce(net, made, gone)
        own = "".join(letter for letter in own if letter in result)
    return build.permute(net, made, [own.index(letter) for letter in result])


def _read(call: NodeCall, equation: str, values: Sequence[Value]) -> tuple[list[str], str]:
    """Letters of each operand and of the result, ellipses as letters of their own."""
    text = "".join(equation.split())
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(values):
        raise call.wrong(f"has the equation {equation!r} of {len(terms)} operands, got {len(values)}")
    letters, most = [], 0
    for term, value in zip(terms, values, strict=True):
        open_dims = value.ndim - len(term.replace("...", ""))
        if open_dims < 0 or ("..." not in term and open_dims):
            raise call.wrong(f"has the equation {equation!r}, whose term {term!r} is of {list(value.shape)}")
        most = max(most, open_dims)
        letters.append(term.replace("...", _SPARE[-open_dims:] if open_dims else "") if "..." in term else term)
    dots = _SPARE[-most:] if most else ""
    if arrow:
        result = right.replace("...", dots)
    else:
        together = "".join(letters)
        result = dots + "".join(sorted(c for c in set(together) if c not in dots and together.count(c) == 1))
    if len(set(result)) != len(result) or not set(result) <= set("".join(letters)):
        raise call.wrong(f"has the equation {equation!r}, whose result no operands make")
    return letters, result


def _without_repeats(net: BlockBuilder, value: Value, letters: str) -> tuple[Value, str]:
    """An operand with diagonals in the place of dimensions that have one letter."""
    for letter in set(letters):
        while letters.count(letter) > 1:
            first, second = letters.index(letter), letters.rindex(letter)
            extent = value.shape[first]
            mask = np.eye(extent, dtype=bool)
            shape = [extent if d in (first, second) else 1 for d in range(value.ndim)]
            on = net.constant(mask.reshape(shape), bool_)
            kept = build.map_(net, arg(0), [value]) if extent == 1 else _masked(net, value, on)
            value = build.reduce(net, kept, [second])
            letters = letters[:second] + letters[second + 1 :]
    return value, letters


def _masked(net: BlockBuilder, value: Value, on: Value) -> Value:
    from abele.expr import select

    return build.map_(net, select(arg(1), arg(0), 0.0 if value.dtype.is_float else 0), [value, on], value.dtype)


def _pair(
    net: BlockBuilder,
    first: tuple[Value, str],
    second: tuple[Value, str],
    later: set[str],
    extents: dict[str, int],
) -> tuple[Value, str]:
    """The sum of products of two operands over the letters that nothing later has."""
    (a, of_a), (b, of_b) = first, second
    a, of_a = _summed(net, a, of_a, later | set(of_b))
    b, of_b = _summed(net, b, of_b, later | set(of_a))
    both = [c for c in of_a if c in of_b]
    stacks, inner = [c for c in both if c in later], [c for c in both if c not in later]
    rows, columns = [c for c in of_a if c not in of_b], [c for c in of_b if c not in of_a]
    left = _turned(net, a, of_a, (stacks, rows, inner), extents)
    right = _turned(net, b, of_b, (stacks, inner, columns), extents)
    # Where nothing is summed, an element-wise product is cheaper than matrices with an inner side of 1.
    if not inner:
        made = build.map_(net, arg(0) * arg(1), [left, right], a.dtype)
    else:
        wide = a.dtype if a.dtype in (f16, f32) else f32
        made = build.cast(net, build.matmul(net, *(build.cast(net, v, wide) for v in (left, right))), a.dtype)
    shape = [extents[c] for c in (*stacks, *rows, *columns)]
    return build.reshape(net, made, shape), "".join((*stacks, *rows, *columns))


def _summed(net: BlockBuilder, value: Value, letters: str, needed: set[str]) -> tuple[Value, str]:
    gone = [d for d, c in enumerate(letters) if c not in needed]
    if not gone:
        return value, letters
    return build.reduce(net, value, gone), "".join(c for c in letters if c in needed)


def _turned(
    net: BlockBuilder,
    value: Value,
    letters: str,
    groups: tuple[list[str], list[str], list[str]],
    extents: dict[str, int],
) -> Value:
    """An operand as stacks of matrices: letters of stacks, rows and columns."""
    order = [letter for group in groups for letter in group]
    turned = build.permute(net, value, [letters.index(c) for c in order])
    wide = build.expand(net, turned, [extents[c] for c in order])
    sides = (math.prod(extents[c] for c in part) for part in groups)
    return build.reshape(net, wide, tuple(sides))
