"""A network that is ready to be put on a device."""

from __future__ import annotations

from dataclasses import dataclass

from abele.compiler import Executable
from abele.network import Optimiser, Schedule
from abele.session.host_interface import Ends
from abele.session.input_checks import InputChecks
from abele.session.settings import Settings


@dataclass(frozen=True)
class Compiled:
    """A network that is ready to be put on a device.

    Attributes:
        executable: The compiled program with its account.
        ends: Its streams and tensors by name.
        schedule: Schedule of one run over its micro-batches.
        settings: Settings that it was compiled with.
        optimisers: The update rule of each group of parameters; None for inference.
        updated: Names of the weights that runs change.
        checks: Constraints on the inputs of every run.
        seconds: Time that compiling took.
    """

    executable: Executable
    ends: Ends
    schedule: Schedule
    settings: Settings
    optimisers: tuple[Optimiser, ...] | None
    updated: frozenset[str]
    checks: InputChecks
    seconds: float

    @property
    def training(self) -> bool:
        """True if runs train."""
        return self.optimisers is not None
