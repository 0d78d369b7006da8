"""GRU layers: forward; with ``--phase all`` also backward and weight update."""

from __future__ import annotations

from abele.graph import Graph, Sequence
from abele.numerics import as_element_type
from abele.poplibs.popnn import gru
from abele.poplibs.popnn.gru import GruParams
from abele.validation.parameters import Parameters


def build(graph: Graph, given: Parameters) -> Sequence:
    """The layer that ``given`` describes, over all steps of the sequence."""
    params = GruParams(
        dtype=as_element_type(given.text("data-type", "half")),
        batch=given.integer("batch-size", 1),
        time_steps=given.integer("sequence-size", 1),
        layer_sizes=(given.integer("input-size"), given.integer("output-size")),
        cell_order=cell_order(given),
    )
    trains = given.text("phase", "fwd") == "all"
    options = {"inferenceOnly": not trains, "partialsType": given.text("partials-type", "float")}
    x = gru.create_input(graph, params)
    state = gru.create_initial_state(graph, params)
    weights = gru.create_weights(graph, params, options=options)
    prog = Sequence()
    made = gru.gru_fwd(graph, params, state, x, weights, prog, options=options)
    if trains:
        gradient = graph.clone(made.output, name="output_gradient")
        gru.gru_bwd_with_wu(graph, params, state, made.intermediates, weights, x, gradient, prog, options=options)
    return prog


def cell_order(given: Parameters) -> tuple[str, ...]:
    """The gates in the order that ``--cell-order`` gives; empty for the layer's own."""
    return tuple(name for name in given.text("cell-order").strip("{}").split(",") if name)
