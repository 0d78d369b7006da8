"""Passes of a layer in a benchmark, and the options shared by all products of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from abele.validation.parameters import Parameters


@dataclass(frozen=True)
class Passes:
    """The passes that are counted.

    Attributes:
        forward: The result.
        backward: Gradients of the input.
        update: Gradients of the weights, added to them.
    """

    forward: bool = True
    backward: bool = True
    update: bool = True

    @staticmethod
    def of(given: Parameters) -> Passes:
        """All of them; those that ``--single-phase`` names; with ``--inference-only`` the first alone."""
        if given.flag("inference-only"):
            return Passes(backward=False, update=False)
        phase = given.choice("single-phase", "all", "all", "fwd", "bwd", "wu")
        return Passes(phase in ("all", "fwd"), phase in ("all", "bwd"), phase in ("all", "wu"))

    @property
    def is_training(self) -> bool:
        """True if there is more than the forward pass."""
        return self.backward or self.update


def planner_options(given: Parameters, name: str, constraints: str = "") -> dict[str, Any]:
    """Options of a product for the library: the JSON object ``--name``, and options with names of their own."""
    options = {"partialsType": given.text("partials-type", "float")} | given.mapping(name)
    if "available-memory-proportion" in given.values:
        options["availableMemoryProportion"] = given.number("available-memory-proportion")
    if constraints in given.values:
        options["planConstraints"] = given.text(constraints)
    return options
