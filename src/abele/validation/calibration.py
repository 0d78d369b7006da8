"""Calibration: the figures that constants were made to agree with, and so cannot be tested on.

A constant names them in its source (``abele.machine.source.calibrated``); no figure is listed here. So one that a
constant was calibrated on is marked, and is in no median, as soon as the constant says so.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from abele.codelet import straight_code
from abele.machine import MachineConstant, sources, systems
from abele.poplibs.poplin.linalg import estimates
from abele.poplibs.popnn import pool_costs
from abele.validation import compiled

_OF_FORMULAS = (
    estimates.calibrations,
    compiled.calibrations,
    straight_code.calibrations,
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
