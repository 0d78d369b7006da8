"""Common parts of the benchmarks of recurrent layers: parameters, options, phases."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from abele.graph import Graph, Sequence
from abele.numerics import as_element_type
from abele.validation.parameters import Parameters


def layer(given: Parameters) -> dict[str, Any]:
    """The layer that ``given`` describes, over all steps of the sequence, as arguments of its parameters."""
    return {
        "dtype": as_element_type(given.text("data-type", "half")),
        "batch": given.integer("batch-size", 1),
        "time_steps": given.integer("sequence-size", 1),
        "layer_sizes": (given.required("input-size"), given.required("output-size")),
        "cell_order": tuple(name for name in given.text("cell-order").strip("{}").split(",") if name),
        "activation": given.text("activation", "tanh").lower(),
        "recurrent_activation": given.text("recurrent-activation", "sigmoid").lower(),
        "output_full_sequence": given.flag("output-full-sequence", True),
        "calc_input_gradients": given.flag("calc-input-gradients", True),
    }


def phase_of(given: Parameters) -> str:
    """``fwd``, ``bwd`` (with the forward passes that it needs), or ``all``; a weight update needs all."""
    found = given.choice("phase", "fwd", "fwd", "bwd", "wu", "all")
    return "all" if found == "wu" else found


def options_of(given: Parameters) -> dict[str, Any]:
    """The library's options of the layer."""
    options: dict[str, Any] = {
        "inferenceOnly": phase_of(given) == "fwd",
        "partialsType": given.text("partials-type", "float"),
        "preCalcWeights": given.flag("pre-weights"),
        "recomputationMode": given.text("recomputation-mode", "none"),
        "rnnCodeReuse": given.flag("code-reuse"),
        "rnnStepsPerWU": given.integer("steps-per-wu", 1),
    }
    if "accumulators-type" in given.values:
        options["weightAccumulatorsType"] = given.text("accumulators-type")
    if "available-memory-proportion" in given.values:
        options["availableMemoryProportion"] = given.number("available-memory-proportion")
    return options


def build_passes(graph: Graph, cell: ModuleType, params: Any, given: Parameters) -> Sequence:
    """The passes that ``given`` asks for of a layer, by the functions of ``cell``: ``popnn.lstm`` or ``popnn.gru``."""
    name = cell.__name__.rpartition(".")[2]
    forward, backward, update = (getattr(cell, f"{name}_{which}") for which in ("fwd", "bwd", "bwd_with_wu"))
    options, phase, prog = options_of(given), phase_of(given), Sequence()
    x = cell.create_input(graph, params)
    state = cell.create_initial_state(graph, params)
    weights = cell.create_weights(graph, params, options=options)
    made = forward(graph, params, state, x, weights, prog, options=options)
    if phase != "fwd":
        gradient = graph.clone(made.output, name="output_gradient")
        (backward if phase == "bwd" else update)(
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
