"""``join-casts``: which casts ops take over, and that results stay the same to the bit."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from meaning import Meaning

from abele.arrays import Array
from abele.distribution import inference_program
from abele.expr import derivative
from abele.graph import Graph
from abele.network import (
    Adam,
    Anchor,
    Group,
    Network,
    NetworkBuilder,
    Pipeline,
    Schedule,
    Value,
    evaluate,
    inference_pipeline,
    training_pipeline,
)
from abele.network.ops import build
from abele.network.passes import JoinCasts
from abele.numerics import f16, f32

A, B = derivative.arg(0), derivative.arg(1)


def _kinds(net: Network) -> Counter[str]:
    return Counter(op.kind for op in net.walk())


def _same_bits(net: Network) -> None:
    """Lower a network with and without the pass; outputs are equal bit by bit."""
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=v.shape).astype(v.dtype.np) for v in net.inputs]
    assert _kinds(inference_pipeline().run(net))["cast"] == 0
    passes = inference_pipeline(), inference_pipeline().without("join-casts")
    for joined, apart in zip(*(_run(net, pipeline, inputs) for pipeline in passes), strict=True):
        assert joined.dtype == apart.dtype
        assert joined.tobytes() == apart.tobytes()


def _run(net: Network, pipeline: Pipeline, inputs: list[Array]) -> list[Array]:
    """Outputs of a run of the lowered network."""
    graph = Graph("bow")
    program = inference_program(net, graph, Schedule(), pipeline=pipeline)
    machine = Meaning(graph, {s.name: [x] for s, x in zip(program.inputs, inputs, strict=True)})
    machine.run(program.program)
    return [machine.sent[s.name][0] for s in program.outputs]


def test_widening_cast__read_by_maps_through_a_view__is_part_of_them() -> None:
    net = NetworkBuilder()
    x, y = net.input((4, 8), "f16", "x"), net.input((8, 4), "f32", "y")
    wide = build.permute(net, build.cast(net, x, f32), [1, 0])
    net.output(build.map_(net, A * B + 1.0, [wide, y]))
    before = net.finish()
    after = JoinCasts().run(before)
    assert not _kinds(after)["cast"]
    assert next(op for op in after.ops if op.kind == "permute").output.dtype == f16
    _same_bits(before)


def test_widening_cast__with_a_reader_that_takes_one_type__stays() -> None:
    net = NetworkBuilder()
    x, w = net.input((4, 8), "f16", "x"), net.input((8, 4), "f32", "w")
    wide = build.cast(net, x, f32)
    net.output(build.map_(net, A + 1.0, [wide]))
    net.output(build.matmul(net, wide, w))
    captured = net.finish()
    assert JoinCasts().run(captured) == captured


def test_rounding_cast__of_a_map_that_nothing_else_reads__is_part_of_it() -> None:
    net = NetworkBuilder()
    x = net.input((4, 8), "f32", "x")
    net.output(build.cast(net, build.map_(net, A * 3.0, [x]), f16))
    captured = net.finish()
    (op,) = JoinCasts().run(captured).ops
    assert (op.kind, op.output.dtype) == ("map", f16)
    _same_bits(captured)


def test_rounding_cast__of_what_something_else_reads__stays() -> None:
    net = NetworkBuilder()
    x = net.input((4, 8), "f32", "x")
    made = build.map_(net, A * 3.0, [x])
    net.output(build.cast(net, made, f16))
    net.output(made)
    assert _kinds(JoinCasts().run(net.finish()))["cast"] == 1


def _rows(net: NetworkBuilder, kind: str, x: Value) -> Value:
    return build.softmax(net, x, -1, log=kind == "log_softmax")


@pytest.mark.parametrize("kind", ["softmax", "log_softmax"])
def test_casts__around_softmax__are_part_of_it(kind: str) -> None:
    net = NetworkBuilder()
    x = net.input((16, 40), "f16", "x")
    net.output(build.cast(net, _rows(net, kind, build.cast(net, x, f32)), f16))
    captured = net.finish()
    joined = JoinCasts().run(captured)
    assert _kinds(joined) == {kind: 1}
    _same_bits(captured)


@pytest.mark.parametrize("kind", ["softmax_grad", "log_softmax_grad"])
def test_casts__around_gradients_of_softmax__are_part_of_them(kind: str) -> None:
    net = NetworkBuilder()
    y, g = net.input((16, 40), "f32", "y"), net.input((16, 40), "f16", "g")
    made = net.emit_like(kind, [y, build.cast(net, g, f32)], y)
    net.output(build.cast(net, made, f16))
    captured = net.finish()
    assert _kinds(JoinCasts().run(captured)) == {kind: 1}
    _same_bits(captured)


def test_casts__around_reductions_and_behind_norms__are_part_of_them() -> None:
    net = NetworkBuilder()
    x, z = net.input((4, 16, 8), "f32", "x"), net.input((6, 32), "f16", "z")
    gain, shift = net.input((16,), "f32", "gain"), net.input((16,), "f32", "shift")
    net.output(build.cast(net, build.norm(net, x, 1, 1e-5, gain, shift)[0], f16))
    net.output(build.reduce(net, build.cast(net, z, f32), [0]))
    captured = net.finish()
    assert _kinds(JoinCasts().run(captured)) == {"norm": 1, "reduce": 1}
    _same_bits(captured)


def test_image_of_bytes__in_a_map__is_converted_there() -> None:
    net = NetworkBuilder()
    x = net.input((3, 8, 8), "u8", "x")
    net.output(build.map_(net, A * 0.25, [build.cast(net, x, f16)]))
    captured = net.finish()
    assert _kinds(JoinCasts().run(captured)) == {"map": 1}
    image, joined = np.arange(192, dtype=np.uint8).reshape(3, 8, 8), JoinCasts().run(captured)
    made = evaluate(joined, {joined.inputs[0]: image}, precise=False)
    np.testing.assert_array_equal(made[joined.outputs[0]], (image * 0.25).astype(np.float16))


def _layers(count: int) -> Network:
    """Layers with weights in f32 that products read in f16, as autocast makes them."""
    net = NetworkBuilder()
    x = net.input((16, 64), "f16", "x")
    for number in range(count):
        with net.at(net.origin.renamed(f"layers/{number}")):
            w, b = net.parameter((64, 64), "f32", f"w{number}"), net.parameter((64,), "f32", f"b{number}")
            x = build.linear(net, x, build.cast(net, w, f16), build.cast(net, b, f16))
            for _ in range(4):
                x = build.map_(net, A * 0.5 + 1.0, [build.nonlinearity(net, "tanh", x)])
    net.loss = build.mean(net, build.cast(net, x, f32), [0, 1])
    net.output(net.loss)
    return net.finish()


@pytest.mark.parametrize("accumulation", [1, 4])
def test_gradients_of_weights_that_are_cast__reach_sums_and_updates_as_they_are_made(accumulation: int) -> None:
    net = _layers(3)
    groups = [Group(Adam(lr=0.1), net.parameters)]
    joined = training_pipeline(Schedule(accumulation=accumulation), groups).run(net)
    # Each layer's weight and bias are cast for products; their gradients are not cast back.
    assert all(op.output.dtype == f16 for op in joined.walk() if op.kind == "cast")
    kind = "update" if accumulation == 1 else "accumulate"
    assert {op.inputs[1].dtype for op in joined.ops if op.kind == kind} == {f16}
    assert any(op.kind == "call" for op in joined.ops)


def test_gradient_that_the_host_reads__keeps_its_type() -> None:
    net = _layers(1)
    schedule = Schedule(anchors=(Anchor("gradient/w0"),))
    joined = training_pipeline(schedule, [Group(Adam(lr=0.1), net.parameters)]).run(net)
    types = {p.name: v.dtype for p, v in joined.gradients.items()}
    assert types == {"w0": f32, "b0": f16}


def test_weight_that_is_cast__lies_as_the_product_wants_its_cast() -> None:
    def mapping(dtype: str) -> tuple[list[int], list[int]]:
        net = NetworkBuilder()
        x, w = net.input((64, 256), "f16", "x"), net.parameter((256, 256), dtype, "w")
        net.output(build.linear(net, x, build.cast(net, w, f16)))
        program = inference_program(net.finish(), Graph("bow"), Schedule())
        found = program.graph.mapping_of(program.weights["w"])
        return found.begin.tolist(), found.tile.tolist()

    assert mapping("f32") == mapping("f16")
