"""Barriers: inside a tile, across a chip, between chips."""

from __future__ import annotations

import math
from dataclasses import dataclass

from abele.machine.source import constant, guessed, parameter, stated
from abele.machine.spec import Spec


@dataclass(frozen=True, kw_only=True)
class SyncCosts(Spec):
    """What waiting for each other costs.

    Attributes:
        worker_cycles: Supervisor waits for its workers.
        on_chip_cycles: All tiles of one IPU, once every tile has arrived.
        max_delay_cycles: Longest that the sync signal of a tile is under way on its IPU.
        hop_seconds: One hop of the sync network between IPUs.
        host_seconds: Rendezvous with the host before a stream copy.
    """

    worker_cycles: int = constant(stated(6, "PL lib/poplin/PerformanceEstimation.hpp"), minimum=0)
    on_chip_cycles: int = parameter(minimum=0)
    max_delay_cycles: int = constant(stated(126, "Target::getMaxIPUSyncDelay, OSM cost.rs"), minimum=0)
    hop_seconds: float = constant(stated(15e-9, "IPUModel: PL lib/poplibs_test/Util.cpp:430-437"), minimum=0)
    host_seconds: float = constant(guessed(2e-6, "one PCIe round trip; no source found"), minimum=0)

    def global_cycles(self, num_ipus: int, clock_hz: float) -> int:
        """Cycles of a sync over ``num_ipus`` IPUs; with one IPU, the on-chip sync, and never less than that.

        Source: the IPUModel's formula, ceil(hop x clock x hops x 2) with hops = 1 + (IPUs / 2) / 2.
        """
        if num_ipus == 1:
            return self.on_chip_cycles
        hops = 1 + num_ipus // 2 // 2
        return max(self.on_chip_cycles, math.ceil(round(self.hop_seconds * clock_hz * hops * 2, 6)))
