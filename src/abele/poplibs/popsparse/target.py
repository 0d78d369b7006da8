"""Machine of a call that has no graph, as PopLibs' Partitioners."""

from __future__ import annotations

from abele.graph import Graph
from abele.machine import System, systems
from abele.machine.target import Target as MachineTarget

Target = Graph | MachineTarget | System | str
"""A machine: its name, itself, Poplar's target, or a graph for it."""


def system_of(target: Target) -> System:
    """The machine that ``target`` names.

    Raises:
        MachineError: It names none.
    """
    return target.system if isinstance(target, Graph | MachineTarget) else systems.resolve(target)
