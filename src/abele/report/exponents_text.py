"""Exponents of tensors as heat maps of characters."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.numerics.exponents import LEAST_NORMAL_F16, LOWEST_OCTAVE, ExponentCounts, quarter_for
from abele.report.exponents import ExponentHeat, ExponentHistograms
from abele.report.text import percent_text
from abele.words import counted, visible

_SHADES = " .:-=+*#%@"
_WIDTH = 64
"""Columns of a heat map: steps of one tensor, or octaves."""
_LEAST = 1e-6
"""Share of a tensor's elements that still has a shade; anything at all has the lightest."""
_HIGHEST_F16 = 15


def _shades(share: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """A shade for each share, on a logarithmic scale: each is about five times the one before."""
    scale = 1 - np.log(np.maximum(share, _LEAST)) / np.log(_LEAST)
    return np.where(share > 0, np.clip(np.ceil(scale * (len(_SHADES) - 1)), 1, len(_SHADES) - 1), 0).astype(np.intp)


def _drawn(shares: npt.NDArray[np.float64]) -> list[str]:
    """Rows of shares as rows of characters."""
    return ["".join(_SHADES[k] for k in row) for row in _shades(shares).tolist()]


def tensors_text(found: ExponentHistograms, top: int) -> str:
    """A line for each tensor: its elements over octaves at all steps together, and the 8-bit float that suits it."""
    names = found.tensors[:top]
    if not names:
        return "no exponents were recorded"
    totals = [found.total(name) for name in names]
    counts = np.stack([t.octaves for t in totals]).astype(np.float64)
    (held,) = np.nonzero(counts.any(axis=0))
    first, end = (int(held[0]), int(held[-1]) + 1) if len(held) else (0, 1)
    first = max(first, end - _WIDTH)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    low = shares[:, :first].sum(axis=1)
    maps = _drawn(shares[:, first:end])
    octaves = f"2^{first + LOWEST_OCTAVE} … 2^{end - 1 + LOWEST_OCTAVE}"
    rows = [(octaves, "", "zero", "subnormal", "largest", "8-bit float", "error", "role", "tensor")]
    for name, total, line, below in zip(names, totals, maps, low.tolist(), strict=True):
        rows.append((line, "<" if below else "", *_words(total), found.heat(name).role, visible(name)))
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, "<<>>>>><<", width, strict=True)) for row in rows]
    more = len(found.tensors) - len(names)
    steps = np.unique(found.records["step"])
    end_lines = [
        "",
        f"{counted(len(steps), 'step')} from {int(steps[0]):,} to {int(steps[-1]):,}; subnormal: below 2^-14, the "
        "least normal f16",
    ]
    return "\n".join([line.rstrip() for line in lines] + ([f"and {more} more"] if more else []) + end_lines)


def _words(total: ExponentCounts) -> tuple[str, str, str, str, str]:
    elements = max(total.elements, 1)
    choice = quarter_for(total)
    suits = "–" if choice is None else f"{choice.format} × 2^{-choice.scale}"
    error = "–" if choice is None else percent_text(choice.relative_error)
    largest = "NaN" if total.nans else "inf" if total.infinities else f"{total.largest:.3g}"
    zero, subnormal = percent_text(total.zeros / elements), percent_text(total.subnormals_f16 / elements)
    return zero, subnormal, largest, suits, error


def heat_text(found: ExponentHistograms, heat: ExponentHeat) -> str:
    """Octaves from the highest down, steps from left to right."""
    low, high = heat.octaves
    columns = min(_WIDTH, len(heat.steps))
    edges = np.linspace(0, len(heat.steps), columns + 1).astype(np.int64)[:-1]
    rows = slice(low - LOWEST_OCTAVE, high - LOWEST_OCTAVE + 1)
    summed = np.add.reduceat(heat.counts[:, rows].astype(np.float64), edges, axis=0)
    records = found.records.select(heat.rows)
    elements = np.add.reduceat(records["elements"].astype(np.float64), edges)
    lines = _drawn((summed / np.maximum(elements, 1)[:, None]).T[::-1])
    octaves = range(high, low - 1, -1)
    marks = {LEAST_NORMAL_F16: "least normal f16", _HIGHEST_F16: "largest f16"}
    shown = [
        f"2^{octave:<4} |{line}| {marks.get(octave, '')}".rstrip() for octave, line in zip(octaves, lines, strict=True)
    ]
    total = found.total(heat.tensor)
    zero, subnormal, largest, suits, error = _words(total)
    ends = f"{int(heat.steps[0]):,}", f"{int(heat.steps[-1]):,}"
    head = f"{visible(heat.tensor)}: {heat.role}, {heat.type}, {counted(int(records['elements'][-1]), 'element')}"
    facts = f"zero {zero} · below 2^-14 {subnormal} · largest {largest}"
    odd = f" · NaN {total.nans:,} · infinite {total.infinities:,}" if total.nans or total.infinities else ""
    above = f" · above 65504 {total.above_f16:,}" if total.above_f16 else ""
    axis = f"step {ends[0]:<{max(columns - len(ends[1]), len(ends[0]) + 1)}}{ends[1]}"
    return "\n".join([head, facts + odd + above, f"8-bit float {suits}, error {error}", *shown, f"  {axis}"])
