"""Exponents of tensors by step: heat maps of counts from a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import FileFormatError, InvalidOptionError, nearest
from abele.numerics.exponents import (
    HIGHEST_OCTAVE,
    LEAST_NORMAL_F16,
    LOWEST_OCTAVE,
    NUM_OCTAVES,
    ExponentCounts,
    QuarterChoice,
    quarter_for,
)
from abele.report.schema import EXPONENT_COUNTS, EXPONENT_RECORDS
from abele.report.table import Table
from abele.report.text import percent_text
from abele.words import counted, visible

if TYPE_CHECKING:
    from collections.abc import Iterable


class ExponentRecord(NamedTuple):
    """Step and tensor of one count of exponents."""

    step: int
    tensor: str
    role: str
    type: str
    counts: ExponentCounts


@dataclass(frozen=True, eq=False)
class ExponentHeat:
    """The heat map of a tensor.

    Attributes:
        tensor: Its name.
        role: Role of the tensor.
        type: Its element type.
        steps: Steps at which it was counted, int64[n].
        counts: Elements in each octave from -127 to 127, int64[n, 255].
        rows: Rows of its records, int64[n].
    """

    tensor: str
    role: str
    type: str
    steps: Int64
    counts: Int64
    rows: Int64

    @property
    def octaves(self) -> tuple[int, int]:
        """The lowest and the highest octave that has elements; (0, 0) where all are zero."""
        (held,) = np.nonzero(self.counts.any(axis=0))
        return (int(held[0]) + LOWEST_OCTAVE, int(held[-1]) + LOWEST_OCTAVE) if len(held) else (0, 0)


class ExponentHistograms:
    """Histograms of exponents of tensors, step by step.

    Args:
        records: Columns as ``schema_values.EXPONENT_RECORDS``.
        counts: Columns as ``schema_values.EXPONENT_COUNTS``.
    """

    def __init__(self, records: Table, counts: Table) -> None:
        self.records, self.counts = records, counts

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors, in the order in which they were first counted."""
        return tuple(dict.fromkeys(self.records["tensor"].tolist()))

    def heat(self, tensor: str) -> ExponentHeat:
        """The heat map of a tensor.

        Raises:
            InvalidOptionError: Its exponents were not counted.
        """
        rows = np.flatnonzero(np.asarray(self.records["tensor"] == tensor))
        if not len(rows):
            close = nearest(tensor, self.tensors)
            raise InvalidOptionError(
                f"the report has no exponents of a tensor {tensor!r}",
                because=None if self.tensors else "none were recorded",
                remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(self.tensors[:10]),
            )
        # Rows of the counts are in order of records, so those of one record follow each other.
        place = np.full(len(self.records), -1)
        place[rows] = np.arange(len(rows))
        owner = place[self.counts["record"]]
        mine = owner >= 0
        found = np.zeros((len(rows), NUM_OCTAVES), dtype=np.int64)
        octave = self.counts["octave"][mine].astype(np.int64) - LOWEST_OCTAVE
        if (octave >= NUM_OCTAVES).any():
            raise FileFormatError(f"exponents of {tensor!r} are damaged: an octave above {HIGHEST_OCTAVE}")
        np.add.at(found, (owner[mine], octave), self.counts["count"][mine])
        head = next(iter(self.records.select(rows[:1]).rows()))
        steps = self.records["step"][rows].astype(np.int64)
        return ExponentHeat(tensor, str(head["role"]), str(head["type"]), steps, found, rows)

    def total(self, tensor: str, *, last: int | None = None) -> ExponentCounts:
        """Exponents of a tensor over its records.

        Args:
            tensor: Its name.
            last: Only that many of its last records.

        Raises:
            InvalidOptionError: Its exponents were not counted, or ``last`` is not positive.
        """
        if last is not None and last < 1:
            raise InvalidOptionError(f"last = {last}: how many records, at least 1")
        heat = self.heat(tensor)
        rows = heat.rows if last is None else heat.rows[-last:]
        zeros, infinities, nans, above = (
            int(self.records[name][rows].sum()) for name in ("zeros", "infinities", "nans", "above_half")
        )
        largest = float(self.records["largest"][rows].max())
        return ExponentCounts(heat.counts[-len(rows) :].sum(axis=0), zeros, infinities, nans, above, largest)

    def quarter(self, tensor: str, formats: Sequence[str] = ("F143", "F152")) -> QuarterChoice | None:
        """The 8-bit float that represents a tensor with the least squared error; None where it is all zeros.

        Args:
            tensor: Its name.
            formats: Those to choose from.

        Raises:
            InvalidOptionError: Its exponents were not counted.
        """
        return quarter_for(self.total(tensor), formats)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """One row for each octave of each record, column by column, as ``pandas.DataFrame`` takes them."""
        record = self.counts["record"]
        of = {name: np.asarray(self.records[name])[record] for name in ("step", "tensor", "role", "type")}
        return {**of, "octave": self.counts["octave"], "count": self.counts["count"]}

    def to_json(self) -> dict[str, Any]:
        """Records with their octaves, as plain data."""
        rows = list(self.records.rows())
        for row in rows:
            row["octaves"] = {}
        columns = (self.counts[name].tolist() for name in ("record", "octave", "count"))
        for record, octave, count in zip(*columns, strict=True):
            rows[record]["octaves"][str(octave)] = count
        return {"records": rows}

    def text(self, tensor: str | None = None, *, top: int = 40) -> str:
        """Heat maps as text: a line for each tensor, or octaves by steps of one tensor.

        Args:
            tensor: Its name; all tensors when left out.
            top: Tensors that are listed.

        Raises:
            InvalidOptionError: Its exponents were not counted.
        """
        return tensors_text(self, top) if tensor is None else heat_text(self, self.heat(tensor))

    def __str__(self) -> str:
        return self.text()


def exponent_tables(records: Iterable[ExponentRecord]) -> tuple[Table, Table]:
    """Records as the tables of a report."""
    kept = list(records)
    table = EXPONENT_RECORDS.table(
        step=[r.step for r in kept],
        tensor=[r.tensor for r in kept],
        role=[r.role for r in kept],
        type=[r.type for r in kept],
        elements=[r.counts.elements for r in kept],
        zeros=[r.counts.zeros for r in kept],
        infinities=[r.counts.infinities for r in kept],
        nans=[r.counts.nans for r in kept],
        above_half=[r.counts.above_f16 for r in kept],
        largest=[r.counts.largest for r in kept],
    )
    if not kept:
        return table, EXPONENT_COUNTS.empty()
    octaves = np.stack([r.counts.octaves for r in kept])
    record, octave = np.nonzero(octaves)
    counts = EXPONENT_COUNTS.table(record=record, octave=octave + LOWEST_OCTAVE, count=octaves[record, octave])
    return table, counts


# Exponents of tensors as heat maps of characters.

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
