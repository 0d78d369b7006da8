"""Figures that are compared: the model's value beside a measured or modelled one from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from abele.codelet import costs
from abele.machine import MachineConstant, sources, systems
from abele.poplibs.poplin.linalg import estimates
from abele.poplibs.popnn import pool_costs
from abele.validation import measure

# Calibration: the figures that constants were made to agree with, and so cannot be tested on.
#
# A constant names them in its source (``abele.machine.source.calibrated``); no figure is listed here. So one that a
# constant was calibrated on is marked, and is in no median, as soon as the constant says so.

_OF_FORMULAS = (
    estimates.calibrations,
    measure.calibrations,
    costs.calibrations,
    pool_costs.calibrations,
)
"""Functions that give calibrated numbers other than constants of machines."""


@cache
def calibrated_constants() -> tuple[MachineConstant, ...]:
    """Every calibrated constant of the presets and of formulas, each once."""
    found: dict[tuple[str, Any], MachineConstant] = {}
    for name in systems.names():
        for constant in sources(systems.get(name)):
            if constant.source.calibrated_on:
                found.setdefault((constant.path, constant.value), constant)
    for of_formulas in _OF_FORMULAS:
        for path, cited in of_formulas():
            found[path, cited.value] = MachineConstant(path, cited.value, "", cited.source)
    return tuple(found.values())


def constants_of(key: str, name: str) -> tuple[str, ...]:
    """The constants that were calibrated on the figure ``name`` of the comparison ``key``."""
    known = (c.path for c in calibrated_constants() if f"{key}: {name}" in c.source.calibrated_on)
    return tuple(dict.fromkeys(known))


@dataclass(frozen=True)
class Figure:
    """One predicted and one reference figure.

    Attributes:
        name: Name of the figure.
        kind: The group that it is plotted and summed up with.
        predicted: Value of the model.
        reference: Published value.
        unit: Unit of both.
        source: Source of the reference.
    """

    name: str
    kind: str
    predicted: float
    reference: float
    unit: str
    source: str

    @property
    def error(self) -> float | None:
        """Predicted over reference, less one; None where the reference is zero."""
        return self.predicted / self.reference - 1 if self.reference else None

    def to_json(self) -> dict[str, Any]:
        """The figures by name."""
        return {**self.__dict__, "error": self.error}


@dataclass(frozen=True)
class Bars:
    """Largest errors that figures may have.

    Attributes:
        worst: The largest error that any may have, as a share of the reference, or None.
        median: The largest that the median may have, or None.
        high: The largest that the 90th percentile may have, or None.
    """

    worst: float | None
    median: float | None = None
    high: float | None = None

    def hold(self, errors: ErrorSpread) -> bool:
        """True if errors keep to all that are given."""
        pairs = ((self.worst, errors.worst), (self.median, errors.median), (self.high, errors.high))
        return all(bar is None or error <= bar for bar, error in pairs)

    def __str__(self) -> str:
        parts = (("median", self.median), ("90 %", self.high), ("worst", self.worst))
        given = [f"{name} {bar:.0%}" for name, bar in parts if bar is not None]
        return ", ".join(given) if self.worst is None or len(given) > 1 else f"every figure within {self.worst:.0%}"


@dataclass(frozen=True)
class Comparison:
    """Figures of one kind of experiment.

    Attributes:
        key: Short name, also that of the plot.
        title: Subject of the comparison.
        about: Method of the comparison, its honesty, and the likely reason of differences: sentences.
        figures: The figures.
        bars: Largest errors that figures may have; None where nothing is asked.
        details: Further text of the page on them, as Markdown.
    """

    key: str
    title: str
    about: str
    figures: tuple[Figure, ...]
    bars: Bars | None = None
    details: str = ""

    def calibrated(self, figure: Figure) -> tuple[str, ...]:
        """Constants of the machine that were calibrated on a figure; it tests none of them."""
        return constants_of(self.key, figure.name)

    @property
    def tested(self) -> tuple[Figure, ...]:
        """The figures that no constant was calibrated on."""
        return tuple(f for f in self.figures if not self.calibrated(f))

    @property
    def spread(self) -> ErrorSpread:
        """Errors of the tested figures."""
        return spread([f.error for f in self.tested if f.error is not None])

    @property
    def holds(self) -> bool:
        """True if the errors keep to the bars."""
        return self.bars is None or self.bars.hold(self.spread)

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain data."""
        bars = None if self.bars is None else dict(self.bars.__dict__)
        return {
            "key": self.key,
            "title": self.title,
            "about": self.about,
            "figures": [{**f.to_json(), "calibrated": list(self.calibrated(f))} for f in self.figures],
            "errors": dict(self.spread.__dict__),
            "bars": bars,
            "holds": self.holds,
        }


@dataclass(frozen=True)
class ErrorSpread:
    """Sizes of relative errors, as shares of the references.

    Attributes:
        count: Figures.
        median: The median.
        high: The 90th percentile.
        worst: The largest.
    """

    count: int
    median: float
    high: float
    worst: float


def spread(errors: Sequence[float]) -> ErrorSpread:
    """Median, 90th percentile and worst of the sizes of ``errors``; zeros where there are none."""
    if not errors:
        return ErrorSpread(0, 0.0, 0.0, 0.0)
    sizes = np.abs(errors)
    return ErrorSpread(len(errors), float(np.median(sizes)), float(np.quantile(sizes, 0.9)), float(sizes.max()))


def figure_text(value: float) -> str:
    """A figure for people: four significant digits at least, thousands separated."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:,.4g}"
