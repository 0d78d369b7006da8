"""Tensors printed by a running program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.graph import PrintTensorFmt, Tensor
from abele.numerics import to_host
from abele.runtime.memory.arena import Arena

_PLAIN = PrintTensorFmt(float_format="fixed", max_line_width=0)
"""Format of a tensor that is printed without one."""
_LARGE, _SMALL, _SPREAD = 1e8, 1e-4, 1e3
"""Beyond these, ``auto`` writes an exponent. Source: NumPy's rule for printed arrays."""
_GAP = "..."


def print_lines(title: str, arena: Arena, tensor: Tensor, fmt: PrintTensorFmt | None) -> Iterator[str]:
    """Text of a printed tensor, one per replica."""
    for replica in range(arena.replicas):
        name = title if arena.alone else f"{title} (replica {arena.first_replica + replica})"
        yield tensor_text(name, to_host(arena.read(tensor, replica), tensor.dtype), fmt)


def tensor_text(title: str, values: npt.NDArray[Any], fmt: PrintTensorFmt | None = None) -> str:
    """``title: [1.0000000 2.5000000]``; a tensor of more dimensions has a line for each innermost row.

    Args:
        title: Text before the colon.
        values: The tensor.
        fmt: Format; without one, floats have 8 digits and lines any length. With one, elements are as wide as the
            widest, unless ``digits`` is 0.
    """
    array = to_host(values)
    layout = fmt or _PLAIN
    edge = layout.edge_items if 0 < layout.summarise_threshold < array.size else 0
    shown = _edges(array, edge) if edge else array
    write = _writer(shown, layout)
    words = np.array([write(x) for x in shown.reshape(-1)], dtype=object).reshape(shown.shape)
    if fmt is not None and fmt.digits:
        width = max((len(w) for w in words.reshape(-1)), default=0)
        words = np.array([w.rjust(width) for w in words.reshape(-1)], dtype=object).reshape(words.shape)
    gaps = [edge if edge and n > 2 * edge else 0 for n in array.shape]
    return f"{title}: " + _nested(words, gaps, layout, 1)


def _edges(array: npt.NDArray[Any], edge: int) -> npt.NDArray[Any]:
    """The first and last items of every dimension that has more than those."""
    for axis, n in enumerate(array.shape):
        if n > 2 * edge:
            array = np.take(array, [*range(edge), *range(n - edge, n)], axis)
    return array


def _writer(array: npt.NDArray[Any], fmt: PrintTensorFmt) -> Callable[[Any], str]:
    if array.dtype.kind != "f":
        return lambda x: str(int(x))
    kind = _chosen(array) if fmt.float_format == "auto" else fmt.float_format
    if kind == "none" or not fmt.digits:
        return str
    letter = "e" if kind == "scientific" else "f"
    decimals = max(fmt.digits - (1 if letter == "e" else _whole_digits(array)), 1)
    return lambda x: f"{x:.{decimals}{letter}}"


def _whole_digits(array: npt.NDArray[Any]) -> int:
    """Digits before the point of the largest element."""
    size = np.abs(array[np.isfinite(array)].astype(np.float64))
    return len(str(int(size.max(initial=0.0))))


def _chosen(array: npt.NDArray[Any]) -> str:
    """``scientific`` where fixed digits would hide the small numbers or draw out the large ones."""
    size = np.abs(array[np.isfinite(array) & (array != 0)].astype(np.float64))
    if not len(size):
        return "fixed"
    low, high = float(size.min()), float(size.max())
    return "scientific" if high >= _LARGE or low < _SMALL or high / low > _SPREAD else "fixed"


def _nested(words: npt.NDArray[Any], gaps: list[int], fmt: PrintTensorFmt, depth: int) -> str:
    if words.ndim == 0:
        return str(words.item())
    edge = gaps[0]
    if words.ndim == 1:
        items = list(words)
        return fmt.open_bracket + _wrapped([*items[:edge], _GAP, *items[edge:]] if edge else items, fmt, depth)
    rows = [_nested(row, gaps[1:], fmt, depth + 1) for row in words]
    if edge:
        rows = [*rows[:edge], _GAP, *rows[edge:]]
    between = fmt.separator.rstrip() + "\n" + " " * (depth * len(fmt.open_bracket))
    return fmt.open_bracket + between.join(rows) + fmt.close_bracket


def _wrapped(items: list[str], fmt: PrintTensorFmt, depth: int) -> str:
    """Row with its closing bracket, in lines of the format's width."""
    indent = " " * (depth * len(fmt.open_bracket))
    lines, line = [], ""
    for item in items:
        longer = line + fmt.separator + item if line else item
        if line and fmt.max_line_width and len(indent) + len(longer) > fmt.max_line_width:
            lines.append(line + fmt.separator.rstrip())
            longer = item
        line = longer
    return ("\n" + indent).join([*lines, line]) + fmt.close_bracket
