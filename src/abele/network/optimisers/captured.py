"""An update that a front end captured: a block in place of a rule.

Front ends that trace optimisers have an update of all parameters at once, with state, schedules and clipping in it. Its
state is the network's: buffers, which the host reads and writes by name as it does others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from abele.network.ir.op import NetworkFunction
from abele.network.optimisers.base import Optimiser
from abele.words import counted


@dataclass(frozen=True)
class CapturedUpdate(Optimiser):
    """An update as a block of ops.

    Attributes:
        function: Its body has as parameters the parameters of the group, a gradient for each, and the buffers; its
            results are the new parameters and the new buffers. It sees gradients summed over micro-batches (or their
            running mean) and over replicas, and divides them itself where it wants means.
        buffers: Names of the buffers.
    """

    variable: frozenset[str] = field(default=frozenset(), kw_only=True)
    function: NetworkFunction
    buffers: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"CapturedUpdate({counted(len(self.function.body.ops), 'op')}, {counted(len(self.buffers), 'buffer')})"
