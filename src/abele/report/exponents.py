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
    LOWEST_OCTAVE,
    NUM_OCTAVES,
    ExponentCounts,
    QuarterChoice,
    quarter_for,
)
from abele.report.schema_values import EXPONENT_COUNTS, EXPONENT_RECORDS
from abele.report.table import Table

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
        from abele.report.exponents_text import heat_text, tensors_text

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
