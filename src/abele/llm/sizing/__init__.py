"""Sizing: costs of tokens on a machine, and the spread of a model over it."""

from abele.llm.sizing.fit import DecodeFit, SpreadRanking, fit
from abele.llm.sizing.presets import MODELS, model_named
from abele.llm.sizing.spread import Costing, DecodeCost, DecodePlan, Workload

__all__ = [
    "MODELS",
    "Costing",
    "DecodeCost",
    "DecodeFit",
    "DecodePlan",
    "SpreadRanking",
    "Workload",
    "fit",
    "model_named",
]
