"""Convolutions: forward, and unless only that is asked for, backward and weight update."""

from __future__ import annotations

from abele.graph import Graph, Sequence
from abele.numerics import as_element_type
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams
from abele.validation.parameters import Parameters
from abele.validation.passes import Passes, planner_options

_RATE = -0.05


def build(graph: Graph, given: Parameters) -> Sequence:
    """The convolution that ``given`` describes, operands made as the library wants them."""
    params, passes = params_of(given), Passes.of(given)
    dtype = as_element_type(given.text("data-type", "half"))
    forward, backward, update = (
        planner_options(given, "convolution-options", f"{name}-plan-constraints") for name in ("fwd", "bwd", "wu")
    )
    prog = Sequence()
    weights = poplin.create_weights(graph, params, dtype, options=forward)
    biases = poplin.create_biases(graph, params, dtype) if given.flag("bias") else None
    if passes.forward or passes.update:
        x = poplin.create_input(graph, params, dtype, options=forward)
    if passes.forward:
        out = poplin.convolution(graph, x, weights, params, prog, options=forward)
        if biases is not None:
            poplin.add_bias(graph, out, biases, prog)
    if not passes.is_training:
        return prog
    deltas = poplin.create_input(graph, params.gradient_params(), dtype, name="z_deltas", options=backward)
    if passes.backward:
        poplin.convolution_backward_data(graph, deltas, weights, params, prog, options=backward)
    if passes.update:
        poplin.convolution_weight_update(
            graph, deltas, weights, activations=x, params=params, scale=_RATE, prog=prog, options=update
        )
        if biases is not None:
            poplin.convolution_bias_update(graph, deltas, biases, _RATE, prog)
    return prog


def params_of(given: Parameters) -> ConvParams:
    """The convolution that the options of the benchmark describe; channels are those of one group.

    What is cut from the input, the kernel or the output, and zeros around the kernel, are padding that lacks: the same
    outputs are made of the same products.
    """
    field, groups = given.shape("field"), given.integer("conv-groups", 1)
    rank = len(field)

    def per_dim(name: str, default: int) -> tuple[int, ...]:
        return given.per_dim(name, rank, default)

    def at(name: str, side: str) -> tuple[int, ...]:
        return given.per_side(name, side, rank)

    stride, input_dilation, dilation = per_dim("stride", 1), per_dim("in-dilation", 1), per_dim("kernel-dilation", 1)

    def padding(side: str) -> tuple[int, ...]:
        zeros = at("padding", side), at("truncation", side), at("kernel-padding", side), at("output-truncation", side)
        return tuple(
            pad - cut * apart - around - left_out * step
            for pad, cut, around, left_out, apart, step in zip(*zeros, input_dilation, stride, strict=True)
        )

    cut = zip(at("kernel-truncation", "lower"), at("kernel-truncation", "upper"), strict=True)
    return ConvParams(
        batch=given.integer("batch-size", 1),
        in_channels=given.integer("input-channels", 1) * groups,
        out_channels=given.integer("output-channels", 1) * groups,
        field=field,
        kernel=tuple(n - a - b for n, (a, b) in zip(per_dim("kernel-size", 1), cut, strict=True)),
        stride=stride,
        dilation=dilation,
        padding_lower=padding("lower"),
        padding_upper=padding("upper"),
        input_dilation=input_dilation,
        flip=tuple(bool(n) for n in _flips(given, rank)),
        groups=groups,
    )


def _flips(given: Parameters, rank: int) -> tuple[int, ...]:
    """True if the kernel runs backwards along each dimension."""
    if given.text("flip-kernel").lower() in ("true", "false"):
        return (int(given.flag("flip-kernel")),) * rank
    return given.per_dim("flip-kernel", rank, 0)
