"""Orders of arguments in PopLibs' popnn headers that are not our own; see :mod:`abele.poplibs.poputil.arguments`."""

from __future__ import annotations

from abele.errors import TypeMismatchError
from abele.graph import ComputeSet, Graph, Sequence, Tensor
from abele.poplibs.popnn.nonlinearity import non_linearity_in_place, non_linearity_input_gradient
from abele.poplibs.popnn.norms import batch_normalise_inference
from abele.poplibs.popnn.pool_layout import create_pool_input
from abele.poplibs.popnn.pool_params import PoolParams
from abele.poplibs.poputil.arguments import Forms
from abele.poplibs.poputil.one_step import add_to_compute_set


def _pool_input(graph: Graph, params: PoolParams, name: str = "acts") -> Tensor:
    if params.dtype is None:
        raise TypeMismatchError(
            f"{name}: the parameters of the pooling say no element type",
            remedy="PoolParams(…, batch, dtype), or createInput(graph, dtype, params)",
        )
    return create_pool_input(graph, params.dtype, params, name)


def _in_place_in_set(
    graph: Graph, kind: str, tensor: Tensor, compute_set: ComputeSet, name: str = "non_linearity"
) -> None:
    steps = Sequence()
    non_linearity_in_place(graph, kind, tensor, steps, name)
    add_to_compute_set(graph, compute_set, steps, name)


def _gradient_in_set(
    graph: Graph,
    kind: str,
    activation: Tensor,
    out_gradient: Tensor,
    compute_set: ComputeSet,
    name: str = "non_linearity_gradient",
) -> Tensor:
    steps = Sequence()
    made = non_linearity_input_gradient(graph, kind, activation, out_gradient, steps, name)
    add_to_compute_set(graph, compute_set, steps, name)
    return made


_STATISTICS = "acts eps prog unbiased stable? =type?"
_PARAM_GRADIENTS = ("acts grads_in mean inv_std_dev prog =type?", "acts grads_in prog =type?")
_GRADIENTS = ("acts grads_in mean inv_std_dev gamma prog =type?", "acts grads_in inv_std_dev gamma prog =type?")
_LOSS = "model_outputs expected loss deltas"
_BACKWARD = "params prog state intermediates weights input =tensor output_gradient"
_GIVEN_BACK = "=any? =any?"
"""Arguments that are pointers to results in C++; they are returned here."""

_NORMS: Forms = {
    f"{kind}_norm_{part}": forms
    for kind in ("batch", "group", "layer", "instance")
    for part, forms in {
        "statistics": ("acts eps prog num_groups unbiased stable? =type?" if kind == "group" else _STATISTICS,),
        "param_gradients": _PARAM_GRADIENTS,
        "gradients": _GRADIENTS,
    }.items()
}

FORMS: Forms = {
    **_NORMS,
    "batch_normalise": (("acts combined_multiplicand addend prog", batch_normalise_inference),),
    "calc_loss": (
        f"{_LOSS} loss_type",
        f"{_LOSS} num_correct loss_type",
        f"{_LOSS} deltas_scale model_output_scaling loss_type",
        f"{_LOSS} deltas_scale model_output_scaling num_correct loss_type",
    ),
    "create_pool_input": (("params", _pool_input),),
    "distributed_batch_norm_gradients": (
        "acts grads_in mean inv_std_dev gamma prog all_reduce norm_batch_size =type?",
        "acts grads_in inv_std_dev gamma prog all_reduce norm_batch_size =type?",
    ),
    "distributed_batch_norm_statistics": ("acts eps prog unbiased all_reduce norm_batch_size stable? =type?",),
    "non_linearity_in_place": (("kind tensor compute_set", _in_place_in_set),),
    "non_linearity_input_gradient": (("kind activation out_gradient compute_set", _gradient_in_set),),
    "pool": ("params tensor prog",),
    "pool_input_gradient": (
        "params tensor pooled pooled_gradient use_scaled_gradient prog",
        "params fwd_chans_per_group pooled_gradient prog",
    ),
    "top_k": ("tensor =tensor? k sort prog",),
}
RECURRENT_FORMS: Forms = {
    "lstm_fwd": ("params state input weights =any prog",),
    "lstm_bwd": (f"{_BACKWARD} cell_state_gradient? {_GIVEN_BACK}",),
    "lstm_bwd_with_wu": (f"{_BACKWARD} cell_state_gradient? {_GIVEN_BACK}",),
    "lstm_wu": ("params prog =any =any gradients =any input =tensor",),
    "gru_fwd": ("params state input weights =any prog",),
    "gru_bwd": (f"{_BACKWARD} {_GIVEN_BACK}",),
    "gru_bwd_with_wu": (f"{_BACKWARD} {_GIVEN_BACK}",),
    "gru_wu": ("params prog =any =any gradients =any input =tensor",),
}
"""Intermediates of the backward pass, which C++ hands to the update of weights, are the gradients object here."""
