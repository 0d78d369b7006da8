"""LSTM layers: forward; with ``--phase bwd`` also backward, with ``--phase all`` and weight update too."""

from __future__ import annotations

from abele.graph import Graph, Sequence
from abele.poplibs.popnn import lstm
from abele.poplibs.popnn.lstm import LstmParams
from abele.validation.parameters import Parameters
from abele.validation.recurrent import build_passes, layer


def build(graph: Graph, given: Parameters) -> Sequence:
    """The layer that ``given`` describes, over all steps of the sequence."""
    return build_passes(graph, lstm, LstmParams(**layer(given)), given)
