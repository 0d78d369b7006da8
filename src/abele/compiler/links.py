"""Links: the time that traffic between IPUs takes on the busiest bundle of links."""

from __future__ import annotations

import math

from abele.compiler.traffic import LinkBytes
from abele.machine import System
from abele.machine.routes import link_seconds


def link_cycles(link_bytes: LinkBytes, system: System) -> int:
    """Tile cycles until the last byte between IPUs has arrived.

    Args:
        link_bytes: Bytes from each IPU to each other.
        system: The machine whose links are used.

    Raises:
        MachineError: The system has no links between two of the IPUs.

    Model: the routes of :mod:`abele.machine.routes`; a directed bundle of links is shared by all that is routed
    through it, and the busiest decides.
    """
    return math.ceil(link_seconds(*link_bytes, system) * system.ipu.clock_hz)
