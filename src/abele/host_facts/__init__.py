"""What is measured once on a host and kept for later processes: its rates, and costs that choices rest on.

``measured(name, version, kind, measure)`` gives a fact: from memory, else from the file of this host beside the cache
of compiled code, else from ``measure()``. :func:`machine_rates` is one: how fast this machine computes and moves bytes.
"""

from abele.host_facts.rates import MachineRates, machine_rates
from abele.host_facts.store import forget, host_name, measured

__all__ = ["MachineRates", "forget", "host_name", "machine_rates", "measured"]
