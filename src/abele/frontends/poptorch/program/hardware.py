"""Probes for hardware: there is none, the machine is modelled."""

from __future__ import annotations

from abele.frontends.poptorch.errors import CheckError


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """False: programs run on a model of the machine."""
    return False


def ipuHardwareVersion() -> int:
    """Never returns a version.

    Raises:
        CheckError: Always: there is no hardware.
    """
    raise CheckError("No IPU hardware available on this system")
