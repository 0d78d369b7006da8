"""Orders of arguments in PopLibs' poplin headers that are not our own; see :mod:`abele.poplibs.poputil.arguments`."""

from __future__ import annotations

import math
from typing import Any, TextIO

from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.poplibs import popops
from abele.poplibs.poplin.conv_params import flops
from abele.poplibs.poplin.conv_params.cpp_params import CppConvParams, check_weights
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.poplibs.poplin.conv_params.transforms import TransformedConv
from abele.poplibs.poplin.explain import report_plan_estimated_costs, report_plan_info
from abele.poplibs.poplin.operations.convolution import (
    calculate_weight_deltas,
    convolution,
    convolution_backward_data,
    exchanged,
)
from abele.poplibs.poplin.operations.create import create_input, create_weights
from abele.poplibs.poplin.operations.update import convolution_weight_update
from abele.poplibs.poputil.arguments import Forms
from abele.poplibs.poputil.options import Options

# Convolutions by PopLibs' parameters: weights are [groups, outChans, inChans, *kernel] there.


def _in_our_shape(name: str, params: CppConvParams, weights: Tensor) -> Tensor:
    """[groups, outChans, inChans, *kernel] as [groups · outChans, inChans, *kernel]."""
    check_weights(name, params, weights.shape)
    return weights.reshape((weights.shape[0] * weights.shape[1], *weights.shape[2:]))


def _convolution(
    graph: Graph,
    x: Tensor,
    weights: Tensor,
    params: ConvParams | TransformedConv | CppConvParams,
    transpose_and_flip: bool,
    prog: Steps,
    name: str = "convolution",
    *,
    options: Options = None,
) -> Tensor:
    if not isinstance(params, CppConvParams):
        turned = _turned(weights, params.groups) if transpose_and_flip else weights
        return convolution(graph, x, turned, params, prog, options=options, name=name)
    kinds: dict[str, Any] = {"output_type": params.outputType, "options": options, "name": name}
    if not transpose_and_flip:
        return convolution(graph, x, _in_our_shape(name, params, weights), params.frozen(), prog, **kinds)
    forward = params.forward
    if forward is not None and forward.weights_shape == weights.shape:
        ours = _in_our_shape(name, forward, weights)
        return convolution_backward_data(graph, x, ours, forward.frozen(), prog, **kinds)
    ours = _turned(weights.reshape((weights.shape[0] * weights.shape[1], *weights.shape[2:])), params.numConvGroups)
    return convolution(graph, x, ours, params.frozen(), prog, **kinds)


def _turned(weights: Tensor, groups: int) -> Tensor:
    """Weights with the channels of every group exchanged and the kernel flipped."""
    turned = exchanged(weights, groups)
    for d in range(2, turned.ndim):
        turned = turned.reverse(d)
    return turned


def _new_weights(graph: Graph, params: CppConvParams, name: str = "weights", *, options: Options = None) -> Tensor:
    made = create_weights(graph, params.core, params.inputType, name, options=options)
    if made.size == math.prod(params.weights_shape):
        return made.reshape(params.weights_shape)
    return graph.variable(params.inputType, params.weights_shape, name=name, map="linear")  # Part of it is not read.


def _new_input(graph: Graph, params: CppConvParams, name: str = "activations", *, options: Options = None) -> Tensor:
    made = create_input(graph, params.core, params.inputType, name, options=options)
    whole = params.frozen().input_shape
    return made if made.shape == whole else graph.variable(params.inputType, whole, name=name, map="linear")


def _new_biases(
    graph: Graph, acts: Tensor, params: CppConvParams | None = None, name: str = "biases", *, options: Options = None
) -> Tensor:
    return graph.variable(acts.dtype, acts.shape[1], name=name, map="linear")


def _weight_deltas(
    graph: Graph,
    z_deltas: Tensor,
    activations: Tensor,
    params: CppConvParams,
    prog: Steps,
    name: str = "calculate_weight_deltas",
    *,
    options: Options = None,
) -> Tensor:
    made = calculate_weight_deltas(
        graph, z_deltas, activations, params.frozen(), prog, output_type=params.inputType, options=options, name=name
    )
    return made.reshape(params.weights_shape)


def _weight_update(
    graph: Graph,
    z_deltas: Tensor,
    weights: Tensor,
    activations: Tensor,
    params: CppConvParams,
    scale: float | Tensor,
    prog: Steps,
    name: str = "convolution_weight_update",
    *,
    options: Options = None,
) -> None:
    ours, plain = _in_our_shape(name, params, weights), params.frozen()
    if isinstance(plain, ConvParams):
        convolution_weight_update(
            graph,
            z_deltas,
            ours,
            activations=activations,
            params=plain,
            scale=scale,
            prog=prog,
            options=options,
            name=name,
        )
        return
    gradient = _weight_deltas(graph, z_deltas, activations, params, prog, f"{name}_deltas", options=options)
    popops.scaled_add_to(graph, weights, gradient, scale, prog, name=name)


def _plan_info(graph: Graph, out: TextIO | None, params: CppConvParams, *, options: Options = None) -> str:
    return report_plan_info(graph, params.core, params.inputType, options=options, out=out)


def _plan_costs(graph: Graph, params: CppConvParams, *, options: Options = None) -> dict[str, int]:
    return report_plan_estimated_costs(graph, params.core, params.inputType, options=options)


def _fwd_cycles(graph: Graph, params: CppConvParams) -> float:
    return flops.get_fwd_perfect_cycle_count(graph, params.core, params.inputType)


def _bwd_cycles(graph: Graph, params: CppConvParams) -> float:
    return flops.get_bwd_perfect_cycle_count(graph, params.core, params.inputType)


def _wu_cycles(graph: Graph, params: CppConvParams) -> float:
    return flops.get_wu_perfect_cycle_count(graph, params.core, params.inputType)


CONV_FORMS: Forms = {
    "calculate_weight_deltas": (("z_deltas activations params prog", _weight_deltas),),
    "convolution": (("x weights params transpose_and_flip prog", _convolution),),
    "convolution_weight_update": (("z_deltas weights activations params scale prog", _weight_update),),
    "create_biases": (("acts params?", _new_biases),),
    "create_input": (("params", _new_input),),
    "create_weights": (("params", _new_weights),),
    "get_bwd_perfect_cycle_count": (("params", _bwd_cycles),),
    "get_fwd_perfect_cycle_count": (("params", _fwd_cycles),),
    "get_wu_perfect_cycle_count": (("params", _wu_cycles),),
    "report_plan_estimated_costs": (("params", _plan_costs),),
    "report_plan_info": (("^ out:stream params", _plan_info),),
}


FORMS: Forms = {
    **CONV_FORMS,
    "convolution_bias_update": ("z_deltas biases scale options? prog",),
    "create_matmul_input_lhs": ("dtype =type a_shape b_shape",),
    "create_matmul_input_rhs": ("dtype =type a_shape b_shape",),
    "create_matmul_output": ("=type dtype a_shape b_shape",),
    "create_norm_beta": ("acts =type",),
    "create_norm_gamma": ("acts =type",),
    "create_norm_params": ("acts =type",),
    "distributed_norm_statistics": ("acts eps prog unbiased all_reduce norm_batch_size stable? =type?",),
    "distributed_norm_statistics_gradients": ("whitened grads_in inv_std_dev prog all_reduce norm_batch_size =type?",),
    "matmul": ("a b prog output_type?",),
    "matmul_grouped": ("a b prog output_type?",),
    "matmul_report_plan": ("^ out:stream input_type output_type a_shape b_shape",),
    "norm_param_gradients": ("whitened grads_in prog =type?",),
    "norm_statistics": ("acts eps prog unbiased stable? =type?",),
    "norm_statistics_gradients": ("whitened grads_in inv_std_dev prog =type?",),
    "pre_arrange_matmul_input_rhs": ("a_shape b prog =type?",),
}
