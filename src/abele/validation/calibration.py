"""Calibration: the figures that constants of the machine were made to agree with, and so cannot be tested on.

A constant names them in its source (``abele.machine.source.calibrated``); nothing is listed here. So a figure that a
constant was calibrated on is marked, and is in no median, as soon as the constant says so.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from abele.machine import MachineConstant, sources, systems


@cache
def calibrated_constants() -> tuple[MachineConstant, ...]:
    """Every calibrated constant of the presets, each once."""
    found: dict[tuple[str, Any], MachineConstant] = {}
    for name in systems.names():
        for constant in sources(systems.get(name)):
            if constant.source.calibrated_on:
                found.setdefault((constant.path, constant.value), constant)
    return tuple(found.values())


def constants_of(key: str, name: str) -> tuple[str, ...]:
    """The constants that were calibrated on the figure ``name`` of the comparison ``key``."""
    known = (c.path for c in calibrated_constants() if f"{key}: {name}" in c.source.calibrated_on)
    return tuple(dict.fromkeys(known))
