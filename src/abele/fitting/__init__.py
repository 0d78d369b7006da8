"""Fitting: how to spread a model over a machine, found from what its parts cost when they are compiled."""

from abele.fitting.chain import Chain, Segment, chain_of
from abele.fitting.compiled import compiled_plan, placed
from abele.fitting.fit import Fitted, fit_network
from abele.fitting.plan import Compilation, Estimate, Miss, Ranked, Recomputation, Spread, StatePlace
from abele.fitting.search import Model, Space
from abele.fitting.text import fitted_card, fitted_dict, fitted_text

__all__ = [
    "Chain",
    "Compilation",
    "Estimate",
    "Fitted",
    "Miss",
    "Model",
    "Ranked",
    "Recomputation",
    "Segment",
    "Space",
    "Spread",
    "StatePlace",
    "chain_of",
    "compiled_plan",
    "fit_network",
    "fitted_card",
    "fitted_dict",
    "fitted_text",
    "placed",
]
