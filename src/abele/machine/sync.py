"""Barriers: inside a tile, across a chip, between chips.

A barrier is a tree of requests and of acknowledgements that run the same way back. On a chip, tiles ask its sync
controller, and the acknowledgement reaches the nearest tile after ``on_chip_cycles``, the farthest after
``max_delay_cycles``: both are round trips. Between chips, controllers pass the request on to a root in the middle of
the ladder of IPUs, hop by hop; it leaves and enters chips by the ports of their links. So a barrier of several IPUs is
the round trip to the farthest tile, and twice the way from an outer controller to the root.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from abele.machine.source import calibrated, constant, derived, parameter, stated
from abele.machine.spec import Spec


@dataclass(frozen=True, kw_only=True)
class SyncCosts(Spec):
    """Costs of barriers and rendezvous.

    Attributes:
        worker_cycles: Supervisor waits for its workers.
        on_chip_cycles: All tiles of one IPU, once every tile has arrived.
        max_delay_cycles: From the request of the tile that is farthest from the sync controller to its acknowledgement.
        edge_seconds: Between the sync controllers and the links' far ends, once each way: ports and serialisers.
        hop_seconds: One hop of the sync network between IPUs.
        host_seconds: Rendezvous with the host before a stream copy.
    """

    worker_cycles: int = constant(stated(6, "PL lib/poplin/PerformanceEstimation.hpp"), minimum=0)
    on_chip_cycles: int = parameter(minimum=0)
    max_delay_cycles: int = constant(stated(126, "Target::getMaxIPUSyncDelay, OSM cost.rs"), minimum=0)
    edge_seconds: float = constant(
        calibrated(
            49e-9,
            "what a step of the float blur waits longer on 16 GC2 than on one: 640 - 117 = 523 cycles (LBM), less "
            "126 on the chips and 2 x 5 hops of 24; half of 157 cycles at 1.6 GHz",
            on=("blur: float, 16 IPUs: sync",),
        ),
        minimum=0,
    )
    hop_seconds: float = constant(stated(15e-9, "IPUModel: PL lib/poplibs_test/Util.cpp:430-437"), minimum=0)
    host_seconds: float = constant(
        derived(
            46e-6,
            "tutorial 6 on an M2000: 135,850 cycles of sync where Graphcore's model has 1,135, over two meetings "
            "with the host, for the inputs and for the result: 50.6 us each, less the latency of the link. If the "
            "two inputs meet it one by one, it is 29 us",
        ),
        minimum=0,
    )

    def global_cycles(self, num_ipus: int, clock_hz: float) -> int:
        """Cycles of a sync over ``num_ipus`` IPUs; with one IPU, the on-chip sync, and never less than that.

        Source: the hops are the IPUModel's, 1 + (IPUs / 2) / 2: across a rung, then along half the ladder.
        """
        if num_ipus == 1:
            return self.on_chip_cycles
        hops = 1 + num_ipus // 2 // 2
        way = (self.edge_seconds + self.hop_seconds * hops) * clock_hz
        # Rounded before it is rounded up: products of clocks and nanoseconds are whole but for floating point.
        return max(self.on_chip_cycles, self.max_delay_cycles + math.ceil(round(2 * way, 6)))
