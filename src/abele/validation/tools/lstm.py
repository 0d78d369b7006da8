"""LSTM layers: forward; with ``--phase bwd`` also backward, with ``--phase all`` and weight update too."""

from __future__ import annotations

from abele.graph import Graph, Sequence
from abele.poplibs.popnn import lstm
from abele.poplibs.popnn.lstm import LstmParams
from abele.validation.parameters import Parameters
from abele.validation.recurrent import layer, options_of, phase_of


def build(graph: Graph, given: Parameters) -> Sequence:
    """The layer that ``given`` describes, over all steps of the sequence."""
    params = LstmParams(**layer(given))
    options, phase = options_of(given), phase_of(given)
    x = lstm.create_input(graph, params)
    state = lstm.create_initial_state(graph, params)
    weights = lstm.create_weights(graph, params, options=options)
    prog = Sequence()
    made = lstm.lstm_fwd(graph, params, state, x, weights, prog, options=options)
    if phase != "fwd":
        gradient = graph.clone(made.output, name="output_gradient")
        backward = lstm.lstm_bwd if phase == "bwd" else lstm.lstm_bwd_with_wu
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
