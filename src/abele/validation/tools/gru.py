"""GRU layers: forward; with ``--phase bwd`` also backward, with ``--phase all`` and weight update too."""

from __future__ import annotations

from abele.graph import Graph, Sequence
from abele.poplibs.popnn import gru
from abele.poplibs.popnn.gru import GruParams
from abele.validation.parameters import Parameters
from abele.validation.recurrent import layer, options_of, phase_of


def build(graph: Graph, given: Parameters) -> Sequence:
    """The layer that ``given`` describes, over all steps of the sequence."""
    params = GruParams(**layer(given), reset_after=given.flag("reset-after"))
    options, phase = options_of(given), phase_of(given)
    x = gru.create_input(graph, params)
    state = gru.create_initial_state(graph, params)
    weights = gru.create_weights(graph, params, options=options)
    prog = Sequence()
    made = gru.gru_fwd(graph, params, state, x, weights, prog, options=options)
    if phase != "fwd":
        gradient = graph.clone(made.output, name="output_gradient")
        backward = gru.gru_bwd if phase == "bwd" else gru.gru_bwd_with_wu
        backward(
            graph,
            params,
            state,
            intermediates=made.intermediates,
            weights=weights,
            input=x,
            output_gradient=gradient,
            prog=prog,
            options=options,
        )
    return prog
