"""Partials of fewer out-channels than the matrix units write at a time."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from abele.compiler import compile_program
from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams
from abele.poplibs.poplin.vertices.method import Method
from abele.runtime import Engine


def partial_bytes(graph: Graph, program: Sequence) -> int:
    """Bytes of all partial sums of a program."""
    held = compile_program(graph, program).report.variables
    return sum(int(n) for name, n in zip(held["name"], held["bytes"], strict=True) if str(name).endswith("/partials"))


def gradient(channels: int, kind: str, rows: int = 24) -> tuple[Graph, Sequence, tuple[int, ...]]:
    """Backward pass of a first layer: gradients of an image of few channels."""
    graph, prog = Graph(systems.get("gc200")), Sequence()
    params = ConvParams(2, channels, 16, (rows, rows), (3, 3), padding_lower=(1, 1), padding_upper=(1, 1))
    options = {"partialsType": "float", "planConstraints": json.dumps({"method": {"type": kind}})}
    deltas = poplin.create_input(graph, params.gradient_params(), "half", name="d", options=options)
    weights = poplin.create_weights(graph, params, "half", name="w", options=options)
    poplin.convolution_backward_data(graph, deltas, weights, params, prog, options=options)
    return graph, prog, (2, channels, rows, rows)


@pytest.mark.parametrize("channels", [1, 3, 4, 5, 8])
def test_partials__few_channels__are_of_whole_groups_of_the_units(channels: int) -> None:
    graph, prog, shape = gradient(channels, "AMP")
    plan = prog.steps[-1].attributes["plan"].plans[0]  # type: ignore[attr-defined]
    parts = plan.split["co"]
    written = sum(-(-int(n) // 8) * 8 for n in plan.pieces("co")[1])
    assert partial_bytes(graph, prog) >= 4 * plan.depth * shape[0] * written * shape[2] * shape[3], parts


def test_partials__without_the_units__have_the_channels_there_are() -> None:
    graph, prog, shape = gradient(3, "HMAC")
    (plan,) = prog.steps[-1].attributes["plan"].plans  # type: ignore[attr-defined]
    assert partial_bytes(graph, prog) == 4 * plan.depth * int(np.prod(shape))


@pytest.mark.parametrize(
    ("channels", "units", "written"), [(1, 8, 8), (5, 16, 16), (8, 16, 8), (20, 8, 24), (48, 8, 48)]
)
def test_written_channels__amp__are_whole_groups(channels: int, units: int, written: int) -> None:
    assert Method("amp_nx1", units).written_channels(np.array([channels])).tolist() == [written]
    assert Method("hmac").written_channels(np.array([channels])).tolist() == [channels]


@pytest.mark.parametrize("channels", [1, 3, 5, 10, 20, 36, 100])
@pytest.mark.parametrize("partials", ["float", "half"])
@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_matmul__columns_make_no_whole_groups__is_numpys(channels: int, partials: str, mode: str) -> None:
    graph, prog = Graph(systems.get("gc200").evolve(ipu={"num_tiles": 24})), Sequence()
    options = {"partialsType": partials}
    a = poplin.create_matmul_input_lhs(graph, "half", (24, 160), (160, channels), name="a", options=options)
    b = poplin.create_matmul_input_rhs(graph, "half", (24, 160), (160, channels), name="b", options=options)
    out = poplin.matmul(graph, a, b, prog, options=options)
    rng = np.random.default_rng(channels)
    left, right = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((24, 160), (160, channels)))
    with Engine(graph, prog, keep=[a, b, out], mode=mode) as engine:
        engine[a], engine[b] = left, right
        engine.run()
        np.testing.assert_array_equal(
            engine[out], (left.astype(np.float32) @ right.astype(np.float32)).astype(np.float16)
        )


@pytest.mark.parametrize("channels", [3, 5, 20])
def test_gradient_of_weights__added_in_place__is_numpys(channels: int) -> None:
    graph, prog = Graph(systems.get("gc200").evolve(ipu={"num_tiles": 24})), Sequence()
    a = poplin.create_matmul_input_lhs(graph, "half", (32, 96), (96, channels), name="a")
    b = poplin.create_matmul_input_rhs(graph, "half", (32, 96), (96, channels), name="b")
    total = poplin.matmul(graph, a, b, prog)
    poplin.matmul_acc(graph, total, 2.0, a, b, prog, in_place=True)
    rng = np.random.default_rng(channels)
    left, right = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((32, 96), (96, channels)))
    with Engine(graph, prog, keep=[a, b, total], mode="tiles") as engine:
        engine[a], engine[b] = left, right
        engine.run()
        product = torch.from_numpy(left).float() @ torch.from_numpy(right).float()
        np.testing.assert_array_equal(engine[total], (3 * product).half().numpy())


def test_sliding_window__has_a_second_field_of_partials() -> None:
    graph, prog = Graph(systems.get("gc200")), Sequence()
    params = ConvParams(2, 4, 16, (32, 32), (3, 3), padding_lower=(1, 1), padding_upper=(1, 1))
    options = {"planConstraints": json.dumps({"method": {"type": "SLIC"}})}
    x = poplin.create_input(graph, params, "half", options=options)
    w = poplin.create_weights(graph, params, "half", options=options)
    poplin.convolution(graph, x, w, params, prog, options=options)
    plan = prog.steps[-1].attributes["plan"].plans[0]  # type: ignore[attr-defined]
    partials = 4 * plan.depth * 2 * 16 * 32 * 32
    assert partial_bytes(graph, prog) == 2 * partials + 200 * plan.tiles
