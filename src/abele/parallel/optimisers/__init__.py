"""Optimisers: update rules as expressions over parameters, gradients and state."""

from abele.parallel.optimisers.adaptive import Adadelta, Adagrad, RmsProp
from abele.parallel.optimisers.base import Group, Optimiser, StateSlot, climbs
from abele.parallel.optimisers.descent import Sgd
from abele.parallel.optimisers.layerwise import Lars
from abele.parallel.optimisers.moments import Adam, Adamax, Lamb, MomentRule, NAdam, RAdam
from abele.parallel.optimisers.terms import GRADIENT, PARAMETER, Terms

RULES: tuple[type[Optimiser], ...] = (Adadelta, Adagrad, Adam, Adamax, Lamb, Lars, NAdam, RAdam, RmsProp, Sgd)
"""Every update rule."""

__all__ = [
    "GRADIENT",
    "PARAMETER",
    "RULES",
    "Adadelta",
    "Adagrad",
    "Adam",
    "Adamax",
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
