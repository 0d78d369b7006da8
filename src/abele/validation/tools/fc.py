"""Fully connected layers: forward, backward and weight update."""

from __future__ import annotations

from abele.graph import Graph, Sequence
from abele.numerics import as_element_type
from abele.poplibs import poplin
from abele.validation.parameters import Parameters


def build(graph: Graph, given: Parameters) -> Sequence:
    """The layer that ``given`` describes: [groups, batch, input] by [groups, input, output]."""
    groups, batch = given.integer("num-groups", 1), given.integer("batch-size", 1)
    inputs, outputs = given.integer("input-size"), given.integer("output-size")
    dtype = as_element_type(given.text("data-type", "half"))
    partials = as_element_type(given.text("partials-type", "float"))
    x_shape, w_shape, z_shape = (groups, batch, inputs), (groups, inputs, outputs), (groups, batch, outputs)
    options = {"fullyConnectedPass": "TRAINING_FWD"}
    x = poplin.create_matmul_input_lhs(graph, dtype, x_shape, w_shape, name="activations", options=options)
    weights = poplin.create_matmul_input_rhs(graph, dtype, x_shape, w_shape, name="weights", options=options)
    prog = Sequence()
    poplin.matmul_grouped(graph, x, weights, prog, partials_type=partials, options=options, name="fwd")
    if given.flag("inference-only"):
        return prog
    turned = weights.transpose((0, 2, 1))
    deltas = poplin.create_matmul_input_lhs(graph, dtype, z_shape, turned.shape, name="z_deltas")
    poplin.matmul_grouped(graph, deltas, turned, prog, partials_type=partials, name="bwd")
    columns = x.transpose((0, 2, 1))
    poplin.matmul_acc(graph, weights, -0.05, columns, deltas, prog, partials_type=partials, name="wu")
    return prog
