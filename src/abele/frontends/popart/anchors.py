"""Names of tensors that a training makes beside the model's own, and what of the program each of them is.

``Gradient___w`` is a weight's gradient, ``Accum___w`` its sum over the micro-batches of an update so far,
``UpdatedVar___w`` the weight after an update, and ``Accl1___w`` or ``Step___w`` state of the optimiser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from abele.network import Group, Value
from abele.network.schedule import GRADIENT, UPDATED

GRADIENT_PREFIX, ACCUMULATOR_PREFIX, UPDATED_PREFIX = "Gradient___", "Accum___", "UpdatedVar___"
ACCL_PREFIX, ACCL1_PREFIX, ACCL2_PREFIX, ACCL3_PREFIX = "Accl___", "Accl1___", "Accl2___", "Accl3___"
STEP_PREFIX, LOSS_SCALING_PREFIX = "Step___", "lossScaling_"

STATE_PREFIXES = (ACCL_PREFIX, ACCL1_PREFIX, ACCL2_PREFIX, ACCL3_PREFIX, STEP_PREFIX)
"""Prefixes of state of the optimiser, which has a value after each update."""
OF_UPDATES = (UPDATED_PREFIX, *STATE_PREFIXES)
"""Prefixes of what has a value after each update, in place of one in each micro-batch."""
PREFIXES = (GRADIENT_PREFIX, ACCUMULATOR_PREFIX, *OF_UPDATES)


@dataclass(frozen=True)
class TrainingAnchor:
    """A tensor of a training that comes back.

    Attributes:
        name: Name by which it is asked for.
        prefix: The first part of the name.
        weight: The parameter of the network that it belongs to.
    """

    name: str
    prefix: str
    weight: str

    @property
    def is_of_updates(self) -> bool:
        """True if it has one value after each update."""
        return self.prefix in OF_UPDATES

    def tensor(self, slots: Mapping[str, str]) -> str:
        """Name of it in the program.

        Args:
            slots: Prefix of each state of the weight's optimiser, and its name in the program.
        """
        if self.prefix in STATE_PREFIXES:
            return f"{UPDATED}{slots[self.prefix]}"
        return f"{UPDATED if self.prefix == UPDATED_PREFIX else GRADIENT}{self.weight}"


def split_name(name: str) -> tuple[str, str]:
    """Prefix of an anchor's name, and the rest; without a prefix the first is empty."""
    prefix = next((p for p in PREFIXES if name.startswith(p)), "")
    return prefix, name.removeprefix(prefix)


def slots_of(groups: list[Group], weight: Value) -> dict[str, str]:
    """State that the optimiser of a weight keeps: each name's prefix, and the name in the program."""
    for number, group in enumerate(groups):
        if weight in group.parameters:
            rule = group.optimiser
            found = {
                prefix: f"{weight.name}/{slot}" for prefix, slot in _SLOTS[type(rule).__name__] if slot in rule.slots()
            }
            return found | ({STEP_PREFIX: f"optimiser{number}/step"} if "step" in rule.scalars() else {})
    return {}


_MOMENTS = ((ACCL1_PREFIX, "moment1"), (ACCL2_PREFIX, "moment2"))
_SLOTS: dict[str, tuple[tuple[str, str], ...]] = {
    "Sgd": ((ACCL_PREFIX, "momentum"),),
    "Adam": _MOMENTS,
    "Adamax": _MOMENTS,
    "Lamb": _MOMENTS,
    "RmsProp": ((ACCL1_PREFIX, "mean_square"), (ACCL2_PREFIX, "mean"), (ACCL3_PREFIX, "momentum")),
    "Adagrad": ((ACCL1_PREFIX, "sum"),),
    "Adadelta": ((ACCL1_PREFIX, "mean_square"), (ACCL2_PREFIX, "mean_step")),
}
"""Prefixes of what each rule keeps of a weight, and its own names."""


def reservedGradientPrefix() -> str:
    """Prefix of the name of a tensor's gradient."""
    return GRADIENT_PREFIX


def reservedAccumPrefix() -> str:
    """Prefix of the name of a weight's sum of gradients."""
    return ACCUMULATOR_PREFIX


def reservedAcclPrefix() -> str:
    """Prefix of the name of the momentum of :class:`SGD`."""
    return ACCL_PREFIX


def reservedAccl1Prefix() -> str:
    """Prefix of the name of a mean of gradients, or of squares of :class:`Adaptive`."""
    return ACCL1_PREFIX


def reservedAccl2Prefix() -> str:
    """Prefix of the name of a mean of squares, or of gradients or steps of :class:`Adaptive`."""
    return ACCL2_PREFIX


def reservedAccl3Prefix() -> str:
    """Prefix of the name of the momentum of :class:`Adaptive`."""
    return ACCL3_PREFIX


def reservedStepPrefix() -> str:
    """Prefix of the name of a number of updates."""
    return STEP_PREFIX


def reservedUpdatedVarPrefix() -> str:
    """Prefix of the name of a weight after its update."""
    return UPDATED_PREFIX


def reservedLossScalingPrefix() -> str:
    """Prefix of the name of the loss's factor."""
    return LOSS_SCALING_PREFIX
