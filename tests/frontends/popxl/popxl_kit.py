"""Ops of popxl on arrays, for its tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from abele import popxl
from abele.popxl import ops


def run(build: Callable[..., Any], *arrays: Any) -> list[Any]:
    """Results of ops on variables."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        made = build(*[popxl.variable(a) for a in arrays])
        made = [made] if isinstance(made, popxl.Tensor) else list(made)
        streams = [popxl.d2h_stream(t.shape, t.dtype) for t in made]
        for stream, tensor in zip(streams, made, strict=True):
            ops.host_store(stream, tensor)
    with popxl.Session(ir) as session:
        results = session.run()
    return [results[s] for s in streams]


def with_gradients(build: Callable[..., Any], *arrays: Any) -> tuple[list[Any], list[Any]]:
    """Outputs of a graph, and gradients of its float inputs by outputs' gradients that go from -1 to 1."""
    counts = []

    def both(*tensors: Any) -> list[Any]:
        graph = popxl.gir().create_graph(lambda *inner: build(*inner), *tensors)
        counts.append(len(graph.outputs))
        seeds = [
            popxl.constant(np.linspace(-1, 1, t.nelms).reshape(t.shape), t.dtype)
            for t in graph.outputs
            if t.dtype.is_floating_point
        ]
        info = popxl.transforms.autodiff(graph)
        call = ops.call_with_info(graph, *tensors)
        gradients = ops.call(info.graph, *seeds, inputs_dict=info.inputs_dict(call))
        return [*call.outputs[: counts[0]], *gradients]

    made = run(both, *arrays)
    return made[: counts[0]], made[counts[0] :]
