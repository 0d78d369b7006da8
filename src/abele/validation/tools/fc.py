"""Fully connected layers: forward, backward and weight update."""

from __future__ import annotations

from abele.graph import Graph, Sequence
from abele.numerics import as_element_type
from abele.poplibs import poplin, popops
from abele.poplibs.poputil.mapping import map_tensor_linearly
from abele.validation.parameters import Parameters
from abele.validation.passes import Passes, planner_options

_RATE = -0.05


def build(graph: Graph, given: Parameters) -> Sequence:
    """The layer that ``given`` describes: [groups, batch, input] by [groups, input, output]."""
    groups, batch = given.integer("num-groups", 1), given.integer("batch-size", 1)
    inputs, outputs = given.required("input-size"), given.required("output-size")
    dtype, passes = as_element_type(given.text("data-type", "half")), Passes.of(given)
    x_shape, w_shape, z_shape = (groups, batch, inputs), (groups, inputs, outputs), (groups, batch, outputs)
    forward, backward, update = (
        planner_options(given, "matmul-options", f"{name}-plan-constraints") for name in ("fwd", "bwd", "wu")
    )
    forward = {"fullyConnectedPass": "TRAINING_FWD"} | forward
    backward = {"fullyConnectedPass": "TRAINING_BWD"} | backward
    update = {"fullyConnectedPass": "TRAINING_WU"} | update
    x = poplin.create_matmul_input_lhs(graph, dtype, x_shape, w_shape, name="activations", options=forward)
    weights = poplin.create_matmul_input_rhs(graph, dtype, x_shape, w_shape, name="weights", options=forward)
    biases = None
    if given.flag("bias"):
        biases = map_tensor_linearly(graph, graph.variable(dtype, (groups, outputs), name="biases"))
    prog = Sequence()
    if passes.forward:
        out = poplin.matmul_grouped(graph, x, weights, prog, options=forward, name="fwd")
        if biases is not None:
            popops.add_in_place(graph, out, biases.reshape(groups, 1, outputs), prog, name="add_bias")
    if not passes.is_training:
        return prog
    turned = weights.transpose((0, 2, 1))
    deltas = poplin.create_matmul_input_lhs(graph, dtype, z_shape, turned.shape, name="z_deltas", options=backward)
    if passes.backward:
        poplin.matmul_grouped(graph, deltas, turned, prog, options=backward, name="bwd")
    if passes.update:
        columns = x.transpose((0, 2, 1))
        poplin.matmul_acc(graph, weights, _RATE, columns, deltas, prog, options=update, name="wu")
        if biases is not None:
            popops.reduce_with_output(graph, deltas, biases, (1,), "ADD", prog, scale=_RATE, update=True, name="bias")
    return prog
