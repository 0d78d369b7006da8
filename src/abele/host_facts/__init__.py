"""Facts measured once per host and kept for later processes: its rates, and costs that choices rest on.

``measured(name, version, kind, measure)`` gives a fact: from memory, else from the file of this host beside the cache
of compiled code, else from ``measure()``. :func:`machine_rates` is one: the speed of this machine in arithmetic and
memory traffic. :func:`share_of_arithmetic` measures other rates beside it.
"""

from abele.host_facts.calm import UnsettledError, share_of_arithmetic
from abele.host_facts.rates import MachineRates, forget, host_name, machine_rates, measured

__all__ = [
    "MachineRates",
    "UnsettledError",
    "forget",
    "host_name",
    "machine_rates",
    "measured",
    "share_of_arithmetic",
]
