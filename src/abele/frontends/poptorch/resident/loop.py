"""Steps in a loop on the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from abele.frontends.poptorch.errors import ArgumentError, Error


@dataclass(frozen=True)
class Loop:
    """A module whose ``forward`` runs again and again on the device; buffers that it changes go from trip to trip.

    Every trip gets the arguments of the call, and the call gives what the last trip returned, zeros without any. Random
    functions draw afresh in each trip.

    Args:
        step: The module; one trip.
        most: Most trips of a call: a number, or the name of a keyword argument that says it call by call.
        while_: Name of a bool buffer of the module: there is another trip only while one of its elements is true.
            Without one there are as many trips as ``most`` says.

    Raises:
        ArgumentError: The step is no module, or ``most`` neither a number nor a name.
        Error: A negative number of trips, or a name that is none.
    """

    step: torch.nn.Module
    most: int | str = "most"
    while_: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.most, bool) or not isinstance(self.most, (int, str)):
            raise ArgumentError(
                f"Loop takes a number of trips or the name of an argument, not {type(self.most).__name__}",
                remedy="most=32, or most='count' and run(…, count=32)",
            )
        if isinstance(self.most, int) and not 0 <= self.most < 1 << 31:
            raise Error(f"a loop has no {self.most} trips", remedy="most=32, a number from 0 to 2³¹ − 1")
        if isinstance(self.most, str) and not self.most.isidentifier():
            raise Error(f"{self.most!r} cannot be an argument's name", remedy="most='count' and run(…, count=32)")
