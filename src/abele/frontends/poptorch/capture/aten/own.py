"""PopTorch's own operators: identities with effects, functions on the host, operations that users write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from abele.frontends.poptorch import logs
from abele.frontends.poptorch.capture import torch_export
from abele.frontends.poptorch.capture.registry import OperatorCall, aten, element_type
from abele.graph import PrintTensorFmt
from abele.network import Value
from abele.network.ops import build
from abele.numerics import f32, i32, u32


@aten("abele.keep")
def keep(call: OperatorCall, value: Value) -> Value:
    """The value, which is kept."""
    return build.keep(call.net, value)


@aten("abele.plan_with")
def plan_with(call: OperatorCall, value: Value, proportion: float) -> Value:
    """The value, whose product plans with a share of a tile's memory."""
    if not build.plan_with(call.net, value, proportion):
        origin = torch_export.origin(call.node)
        where = f" ({origin.location})" if origin.location else ""
        logs.warn(
            f"set_available_memory{where} has no effect: the tensor is not what a matrix product, a convolution or a "
            "recurrent layer gives"
        )
    return value


@aten("abele.print_tensor")
def print_tensor(call: OperatorCall, value: Value, title: str, gradient: bool, layout: str) -> Value:
    """The value, which is printed."""
    form = PrintTensorFmt(**json.loads(layout))
    return build.print_value(call.net, value, title, gradient=gradient, layout=form)


def _results(call: OperatorCall) -> list[tuple[tuple[int, ...], Any]]:
    """Shape and type of each result of a call."""
    return [(tuple(t.shape), element_type(t.dtype)) for t in torch_export.fake(call.node)]


@aten("abele.host_function")
def host_function(call: OperatorCall, name: str, inputs: Sequence[Value]) -> list[Value]:
    """Results of a function on the host."""
    return list(build.host_call(call.net, name, inputs, _results(call)))


@aten("abele.own_op")
def own_op(call: OperatorCall, name: str, inputs: Sequence[Value], attributes: str) -> list[Value]:
    """The results of an operation that a user wrote."""
    return list(build.own_op(call.net, name, inputs, _results(call), json.loads(attributes)))


@aten("abele.ctc_decode")
def ctc_decode(
    call: OperatorCall, probs: Value, lengths: Value, blank: int, beam_width: int, top_paths: int
) -> tuple[Value, ...]:
    """The most likely label sequences, by a beam search."""
    net = call.net
    scores, sizes, labels = build.ctc_decode(
        net, build.cast(net, probs, f32), build.cast(net, lengths, u32), blank=blank, beams=beam_width, paths=top_paths
    )
    return build.cast(net, scores, probs.dtype), build.cast(net, sizes, i32), build.cast(net, labels, i32)
