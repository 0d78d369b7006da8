"""Fitting: how to spread a model over a machine, found from what its parts cost when they are compiled."""

from abele.fitting.chain import ChainSegment, SegmentChain, chain_of
from abele.fitting.fit import Fitted, compiled_plan, fit_network, placed
from abele.fitting.plan import (
    Compilation,
    Estimate,
    Miss,
    ModelSize,
    Ranked,
    Recomputation,
    Spreading,
    StatePlace,
    spread_words,
)
from abele.fitting.space import FitSpace, Model, check_counts, sizes_around
from abele.fitting.text import fitted_card, fitted_dict, fitted_text

__all__ = [
    "ChainSegment",
    "Compilation",
    "Estimate",
    "FitSpace",
    "Fitted",
    "Miss",
    "Model",
    "ModelSize",
    "Ranked",
    "Recomputation",
    "SegmentChain",
    "Spreading",
    "StatePlace",
    "chain_of",
    "check_counts",
    "compiled_plan",
    "fit_network",
    "fitted_card",
    "fitted_dict",
    "fitted_text",
    "placed",
    "sizes_around",
    "spread_words",
]
