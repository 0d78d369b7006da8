"""Modes of a program that its network does not say: how floats behave, where inputs come from, what code is shared."""

from __future__ import annotations

from dataclasses import dataclass

from abele.graph import Program, SetFloatingPointBehaviour

_EXCEPTIONS = ("invalid", "divide_by_zero", "overflow")


@dataclass(frozen=True)
class RunModes:
    """Modes in which a program runs.

    Attributes:
        exceptions: True for invalid operations, divisions by zero and overflows of floats to stop the program.
        stochastic_rounding: True for f16 results to be rounded at random.
        synthetic_data: True for inputs to be made on the device once, and no outputs to be sent to the host.
        shared_functions: True for one copy on the machine of each function that is called several times.
    """

    exceptions: bool = False
    stochastic_rounding: bool = False
    synthetic_data: bool = False
    shared_functions: bool = False

    def steps(self) -> list[Program]:
        """Steps that a program begins with."""
        # An overflow that is to stop the program must not be held at the largest number before it is seen.
        fields = dict.fromkeys((*_EXCEPTIONS, "nan_on_overflow"), True) if self.exceptions else {}
        if self.stochastic_rounding:
            fields["stochastic_rounding"] = True
        return [SetFloatingPointBehaviour(**fields)] if fields else []


PLAIN = RunModes()
"""Floats go on whatever happens, and the host sends the data."""
