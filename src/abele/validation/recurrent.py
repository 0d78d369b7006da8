"""Common parts of the benchmarks of recurrent layers: parameters, options, phases."""

from __future__ import annotations

from typing import Any

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
