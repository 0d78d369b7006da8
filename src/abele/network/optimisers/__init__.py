"""Optimisers: update rules as expressions over parameters, gradients and state."""

from abele.network.optimisers.adaptive import Adadelta, Adagrad, RmsProp
from abele.network.optimisers.base import GRADIENT, PARAMETER, Group, Optimiser, StateSlot, Terms, climbs
from abele.network.optimisers.captured import CapturedUpdate
from abele.network.optimisers.descent import Sgd
from abele.network.optimisers.layerwise import Lars
from abele.network.optimisers.moments import Adam, Adamax, Lamb, MomentRule, NAdam, RAdam

RULES: tuple[type[Optimiser], ...] = (Adadelta, Adagrad, Adam, Adamax, Lamb, Lars, NAdam, RAdam, RmsProp, Sgd)
"""Every update rule that is an expression."""

__all__ = [
    "GRADIENT",
    "PARAMETER",
    "RULES",
    "Adadelta",
    "Adagrad",
    "Adam",
    "Adamax",
    "CapturedUpdate",
    "Group",
    "Lamb",
    "Lars",
    "MomentRule",
    "NAdam",
    "Optimiser",
    "RAdam",
    "RmsProp",
    "Sgd",
    "StateSlot",
    "Terms",
    "climbs",
]
