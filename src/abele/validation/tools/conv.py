"""Convolutions: forward, and unless only that is asked for, backward and weight update."""

from __future__ import annotations

from abele.graph import Graph, Sequence
from abele.numerics import ElementType, as_element_type
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams
from abele.validation.parameters import Parameters


def build(graph: Graph, given: Parameters) -> Sequence:
    """The convolution that ``given`` describes."""
    params = params_of(given)
    dtype = as_element_type(given.text("data-type", "half"))
    partials = as_element_type(given.text("partials-type", "float"))
    prog = Sequence()
    passes(graph, params, dtype, partials, prog, inference_only=given.flag("inference-only"))
    return prog


def passes(
    graph: Graph, params: ConvParams, dtype: ElementType, partials: ElementType, prog: Sequence, *, inference_only: bool
) -> None:
    """Append the passes of one convolution, operands made as the library wants them."""
    x = poplin.create_input(graph, params, dtype)
    weights = poplin.create_weights(graph, params, dtype)
    poplin.convolution(graph, x, weights, params, prog, partials_type=partials)
    if inference_only:
        return
    deltas = poplin.create_input(graph, params.gradient_params(), dtype, name="z_deltas")
    poplin.convolution_backward_data(graph, deltas, weights, params, prog, partials_type=partials)
    poplin.convolution_weight_update(graph, deltas, weights, x, params, -0.05, prog, partials_type=partials)


def params_of(given: Parameters) -> ConvParams:
    """The convolution that the options of the benchmark describe; channels are those of one group."""
    field = given.integers("field")
    rank = len(field)
    groups = given.integer("conv-groups", 1)

    def per_dim(name: str, default: int) -> tuple[int, ...]:
        values = given.integers(name, (default,))
        return values if len(values) == rank else values * rank

    def padding(side: str) -> tuple[int, ...]:
        return per_dim(f"padding-{side}", 0) if f"padding-{side}" in given.values else per_dim("padding", 0)

    return ConvParams(
        batch=given.integer("batch-size", 1),
        in_channels=given.integer("input-channels", 1) * groups,
        out_channels=given.integer("output-channels", 1) * groups,
        field=field,
        kernel=per_dim("kernel-size", 1),
        stride=per_dim("stride", 1),
        dilation=per_dim("kernel-dilation", 1),
        padding_lower=padding("lower"),
        padding_upper=padding("upper"),
        groups=groups,
    )
