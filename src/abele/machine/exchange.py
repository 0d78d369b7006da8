"""The on-chip exchange: statically scheduled, stateless, no contention."""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import MachineError
from abele.machine.source import constant, derived, parameter, stated
from abele.machine.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Exchange(Spec):
    """Costs of sending and receiving on one IPU.

    Attributes:
        bytes_per_cycle: One tile sends, and at the same time receives, at most this.
        pair_bytes_per_cycle: Rate at which a pair of tiles receives when both want the same data.
        tiles_per_bus: Tiles that share an exchange bus.
        granule_bytes: Smallest thing exchanged, and its alignment; smaller pieces need a rearrangement first.
        route_min_cycles: Send to readable word, nearest pair of tiles.
        route_mean_cycles: The same, mean over all pairs.
        route_max_cycles: The same, farthest pair.
        phase_overhead_cycles: Delay before the first word of a phase leaves.
        fragment_cycles: Control events of a receiver for each separate fragment.
        instruction_bytes: One exchange instruction.
        message_code_bytes: Exchange code of a tile that sends or receives one piece in a phase, return included.
        fragment_code_bytes: Exchange code of each further piece.
        max_words_per_send: Longest single send, in 4-byte words.
    """

    bytes_per_cycle: int = constant(
        stated(4, "Target::getExchangeBytesPerCycle, OSM cost.rs:330; 1472 x 4 x 1.85 GHz = 10.9 TB/s, sold as 11")
    )
    pair_bytes_per_cycle: int = constant(stated(8, "PL lib/poplin/ExchangeEstimator.hpp:41-56, bus sharing"))
    tiles_per_bus: int = constant(stated(2, "Target::getTilesPerSharedExchangeBus, OSM cost.rs"))
    granule_bytes: int = constant(stated(4, "OSM EXCHANGE_INSTRUCTION_REFERENCE.md; PL lib/popops/DynamicSlice.cpp"))
    route_min_cycles: int = constant(derived(18, "IPU21 route function of OSM topology.rs over all tile pairs"))
    route_mean_cycles: int = constant(derived(64, "IPU21 route function of OSM topology.rs, mean over all pairs"))
    route_max_cycles: int = constant(derived(164, "IPU21 route function of OSM topology.rs, maximum"))
    phase_overhead_cycles: int = constant(
        derived(112, "pre-delay of a point-to-point phase as the SDK lays it out (OSM point_to_point)"), minimum=0
    )
    fragment_cycles: int = constant(stated(3, "OSM PLANNER_SUGGESTIONS.md, validated within 3 % on a C600"), minimum=0)
    instruction_bytes: int = constant(stated(4, "PL lib/popops/DynamicSlice.cpp:4331-4500"))
    message_code_bytes: int = constant(
        derived(14, "POPLINER, BERT: one word sent to each of 1,472 tiles has 20,596 to 20,608 B; at most 36 (OSM)"),
        minimum=0,
    )
    fragment_code_bytes: int = constant(
        stated(4, "one instruction for each piece, as PopLibs' planners charge (PL lib/popops/DynamicSlice.cpp)"),
        minimum=0,
    )
    max_words_per_send: int = parameter()

    def check(self) -> None:
        """Route times are ordered and a pair is no slower than one tile."""
        if not self.route_min_cycles <= self.route_mean_cycles <= self.route_max_cycles:
            raise MachineError(
                f"Exchange.route_mean_cycles = {self.route_mean_cycles}: must lie between route_min_cycles = "
                f"{self.route_min_cycles} and route_max_cycles = {self.route_max_cycles}"
            )
        if self.pair_bytes_per_cycle < self.bytes_per_cycle:
            raise MachineError(
                f"Exchange.pair_bytes_per_cycle = {self.pair_bytes_per_cycle}: must be at least bytes_per_cycle = "
                f"{self.bytes_per_cycle}"
            )
