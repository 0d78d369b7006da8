"""GRU layers: forward; with ``--phase bwd`` also backward, with ``--phase all`` and weight update too."""

from __future__ import annotations

from abele.graph import Graph, Sequence
from abele.poplibs.popnn import gru
from abele.poplibs.popnn.gru import GruParams
from abele.validation.parameters import Parameters
from abele.validation.recurrent import build_passes, layer


def build(graph: Graph, given: Parameters) -> Sequence:
    """The layer that ``given`` describes, over all steps of the sequence."""
    return build_passes(graph, gru, GruParams(**layer(given), reset_after=given.flag("reset-after")), given)
