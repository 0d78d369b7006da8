"""Exponents of tensors: octaves by steps, and octaves by tensors."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import MaxNLocator

from abele.numerics.exponents import LEAST_NORMAL_F16, LOWEST_OCTAVE
from abele.report.exponents import ExponentHeat
from abele.report.plot.figure import LIMIT, label, titled, without
from abele.report.plot.kinds import PlotOptions
from abele.report.report import Report

_LEAST = 1e-6
"""Share of a tensor's elements from which on a cell is coloured by it."""
_LARGEST_F16 = 16
"""The edge above which there is no f16."""
_MOST_STEPS = 512
_NAME = 44


def draw_tensors(axes: Axes, report: Report, options: PlotOptions) -> None:
    """A row for each tensor: which octaves its elements were in, all steps together."""
    found = report.exponents
    names = found.tensors[: options.top]
    if not names:
        without(axes, "no exponents were recorded")
        return
    counts = np.stack([found.total(name).octaves for name in names]).astype(np.float64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    low, high = _held(shares.any(axis=0))
    part = shares[:, low - LOWEST_OCTAVE : high - LOWEST_OCTAVE + 1]
    mesh = axes.pcolormesh(np.arange(low, high + 2), np.arange(len(names) + 1), _seen(part), norm=LogNorm(_LEAST, 1))
    axes.set_yticks(np.arange(len(names)) + 0.5, [label(name, _NAME) for name in names], fontsize=7.5)
    axes.invert_yaxis()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("octave: magnitudes from 2^e to below 2^(e+1)")
    for edge in (LEAST_NORMAL_F16, _LARGEST_F16):
        if low <= edge <= high + 1:
            axes.axvline(edge, color=LIMIT, lw=0.9, ls="--")
    steps = np.unique(found.records["step"])
    more = len(found.tensors) - len(names)
    left = f"; {more} more tensors" if more else ""
    titled(axes, f"exponents by tensor, steps {int(steps[0]):,} to {int(steps[-1]):,}{left}")
    _bar(axes, mesh)


def draw_steps(axes: Axes, report: Report, options: PlotOptions) -> None:
    """Octaves by steps of the tensor whose elements spread furthest over octaves."""
    found = report.exponents
    heats = [found.heat(name) for name in found.tensors[: options.top]]
    if not heats:
        without(axes, "no exponents were recorded")
        return
    heat = max(heats, key=lambda h: h.octaves[1] - h.octaves[0])
    _draw(axes, heat)


def _draw(axes: Axes, heat: ExponentHeat) -> None:
    low, high = heat.octaves
    rows = np.unique(np.linspace(0, len(heat.steps) - 1, min(len(heat.steps), _MOST_STEPS)).astype(np.int64))
    counts = heat.counts[rows].astype(np.float64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    steps = heat.steps[rows].astype(np.float64)
    # Each record fills the steps since the one before it.
    edges = np.concatenate([[steps[0] - (steps[1] - steps[0] if len(steps) > 1 else 1)], steps])
    part = shares[:, low - LOWEST_OCTAVE : high - LOWEST_OCTAVE + 1]
    axes.pcolormesh(edges, np.arange(low, high + 2), _seen(part).T, norm=LogNorm(_LEAST, 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("step")
    axes.set_ylabel("octave")
    for edge, name in ((LEAST_NORMAL_F16, "least normal f16"), (_LARGEST_F16, "largest f16")):
        if low <= edge <= high + 1:
            axes.axhline(edge, color=LIMIT, lw=0.9, ls="--")
            axes.text(edges[-1], edge, f" {name}", color=LIMIT, fontsize=7.5, va="center", clip_on=False)
    titled(axes, label(f"exponents of {heat.tensor} ({heat.role}, {heat.type})", 100))


def _held(any_: np.ndarray) -> tuple[int, int]:
    (held,) = np.nonzero(any_)
    return (int(held[0]) + LOWEST_OCTAVE, int(held[-1]) + LOWEST_OCTAVE) if len(held) else (0, 0)


def _seen(shares: np.ndarray) -> np.ma.MaskedArray:
    """Shares with a colour; cells without elements have none."""
    return np.ma.masked_where(shares <= 0, np.maximum(shares, _LEAST))


def _bar(axes: Axes, mesh: object) -> None:
    place = axes.inset_axes((1.02, 0.0, 0.02, 1.0))
    axes.figure.colorbar(mesh, cax=place, label="share of the elements that are not zero")  # type: ignore[arg-type]
