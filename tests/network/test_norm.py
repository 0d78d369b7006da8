"""Norms as one op: what they mean, their gradients, and where they lie."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from meaning import Meaning

from abele.compiler import compile_program
from abele.distribution import inference_program
from abele.errors import NetworkError, UnsupportedOpError
from abele.expr.derivative import arg
from abele.graph import Graph
from abele.network import (
    Network,
    NetworkBuilder,
    Schedule,
    Value,
    differentiate,
    evaluate,
    evaluate_replicas,
    inference_pipeline,
    parse,
)
from abele.network.ops import build
from abele.numerics import f32
from abele.session import Session, Settings, compile_network
from support.examples import examples

EPS = 1e-3
NEARLY_EQUAL = 1568  # the seed that draws the two numbers of a group closest to each other
RNG = np.random.default_rng(5)


def network(
    shape: tuple[int, ...], groups: int, dtype: str = "f32", *, affine: bool = True
) -> tuple[Network, list[Value]]:
    """A norm of a parameter, times what enters, summed; and its parameters."""
    net = NetworkBuilder()
    x = net.parameter(shape, dtype, "x")
    sides = [net.parameter(shape[1:2], dtype, name) for name in ("gain", "shift")] if affine else []
    y, mean, inverse = build.norm(net, x, groups, EPS, *sides)
    for value in (y, mean, inverse):
        net.output(value)
    factor = net.input(shape, dtype, "factor")
    net.loss = build.reduce(net, build.map_(net, arg(0) * arg(1), [y, factor], f32), range(len(shape)))
    return net.finish(), [x, *sides]


def by_torch(arrays: list[np.ndarray], factor: np.ndarray, groups: int) -> list[np.ndarray]:
    """The result and the gradients of everything, in 64 bits."""
    x, *sides = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays)
    seen = x.reshape(x.shape[0], groups, -1) if groups else x
    dims = (2,) if groups else (0, *range(2, x.ndim))
    variance, mean = torch.var_mean(seen, dims, correction=0, keepdim=True)
    y = ((seen - mean) / torch.sqrt(variance + EPS)).reshape(x.shape)
    if sides:
        y = y * sides[0].reshape(-1, *[1] * (x.ndim - 2)) + sides[1].reshape(-1, *[1] * (x.ndim - 2))
    (y * torch.tensor(factor, dtype=torch.float64)).sum().backward()
    return [y.detach().numpy(), *(t.grad.numpy() for t in (x, *sides))]


cases = st.tuples(
    st.sampled_from([(3, 8), (1, 6), (2, 4, 5), (2, 6, 3, 2), (4, 2, 1)]), st.integers(0, 3), st.booleans()
)


@examples(5)
@given(cases, st.sampled_from(["f32", "f16"]), st.booleans(), st.integers(0, 2**32 - 1))
@example(((4, 2, 1), 1, False), "f32", False, NEARLY_EQUAL)
def test_norm__any_shape_and_groups__result_and_gradients_equal_pytorch(
    case: tuple[tuple[int, ...], int, bool], dtype: str, stable: bool, seed: int
) -> None:
    shape, pick, affine = case
    groups = (0, 1, 2, shape[1])[pick]
    rng = np.random.default_rng(seed)
    net, parameters = network(shape, groups, dtype, affine=affine)
    arrays = [(rng.standard_normal(p.shape) * 2 + 1).astype(p.dtype.np) for p in parameters]
    factor = rng.standard_normal(shape).astype(parameters[0].dtype.np)
    made = differentiate(net, parameters)
    expected = by_torch(arrays, factor, groups)
    tolerance = {"rtol": 2e-5, "atol": 2e-5} if dtype == "f32" else {"rtol": 2e-2, "atol": 4e-2}
    values = evaluate(made, dict(zip([*parameters, *made.inputs], [*arrays, factor], strict=True)))
    got = [values[made.outputs[0]], *(values[made.gradients[p]] for p in parameters)]
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, **tolerance)
    # What is lowered gives the same.
    wider = NetworkBuilder.of(made)
    for parameter in parameters:
        wider.output(made.gradients[parameter])
    planning = Settings(stable_norms=stable).planning
    program = inference_program(wider.finish(), Graph("bow"), Schedule(), planning=planning)
    state = Meaning(program.graph, {"input/factor": [factor]})
    for parameter, array in zip(parameters, arrays, strict=True):
        state.write(program.weights[parameter.name], array)
    state.run(program.program)
    sent = [state.sent[f"output/{n}"][0] for n in (0, *range(3, 3 + len(parameters)))]
    for mine, theirs in zip(sent, expected, strict=True):
        np.testing.assert_allclose(mine.reshape(theirs.shape), theirs, **tolerance)


@pytest.mark.parametrize("stable", [True, False])
def test_norm__large_mean_in_half_precision__keeps_what_is_left(stable: bool) -> None:
    net, _ = network((2, 64), 1, "f16", affine=False)
    data = (1000 + RNG.integers(-8, 9, (2, 64))).astype(np.float16)
    program = inference_program(net, Graph("bow"), Schedule(), planning=Settings(stable_norms=stable).planning)
    state = Meaning(program.graph, {"input/factor": [np.ones((2, 64), np.float16)]})
    state.write(program.weights["x"], data)
    state.run(program.program)
    (expected, _) = by_torch([data], np.ones((2, 64)), 1)
    off = np.abs(state.sent["output/0"][0].reshape(2, 64) - expected).max()
    assert off < 2e-3


@pytest.mark.parametrize("groups", [0, 2])
def test_norm__large_mean_on_the_host__loses_no_digits(groups: int) -> None:
    net, parameters = network((4, 6, 5), groups, affine=False)
    made = differentiate(net, parameters)
    wider = NetworkBuilder.of(made)
    wider.output(made.gradients[parameters[0]])
    data = (RNG.normal(size=(4, 6, 5)) + 1000).astype(np.float32)
    factor = RNG.normal(size=(4, 6, 5)).astype(np.float32)
    session = Session.of(
        inference_pipeline().run(wider.finish()), Schedule(), settings=Settings(threads=1), weights={"x": data}
    )
    sent = session(factor)
    # Means are rounded to f32: 1000 * 2 ** -24 of a deviation. E[x^2] - E[x]^2 is off by a tenth.
    for mine, theirs in zip((sent[0], sent[3]), by_torch([data], factor, groups), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=5e-4)


def test_norm__stable__takes_a_pass_more() -> None:
    net, _ = network((32, 64, 8, 8), 0)
    usual, stable = (compile_network(net, settings=Settings(stable_norms=s)).executable.report for s in (False, True))
    assert stable.cycles().compute > 1.1 * usual.cycles().compute


def test_norm__text__reads_back() -> None:
    net, parameters = network((2, 6, 4), 3)
    made = differentiate(net, parameters)
    assert parse(str(made)) == made


def test_norm__whitened_activations_that_nothing_reads__are_not_made() -> None:
    def names(trains: bool) -> set[str]:
        net, parameters = network((2, 6, 4), 3)
        made = differentiate(net, parameters) if trains else net
        wider = NetworkBuilder.of(made)
        for gradient in made.gradients.values():
            wider.output(gradient)
        graph = Graph("bow")
        inference_program(wider.finish(), graph, Schedule())
        return {v.name.rsplit("/", 1)[-1] for v in graph.variables}

    assert "whitened" not in names(False)
    assert "whitened" in names(True)


def test_norm__gradient_of_a_slice__lies_on_all_tiles() -> None:
    net = NetworkBuilder()
    x, w = net.input((8, 128, 256), "f32", "x"), net.parameter((256, 256), "f32", "w")
    sides = [net.parameter((256,), "f32", name) for name in ("gain", "shift")]
    rows = build.reshape(net, build.linear(net, x, w), (1024, 256))
    y = build.reshape(net, build.norm(net, rows, 1, EPS, *sides)[0], (8, 128, 256))
    net.loss = build.reduce(net, build.slice_(net, y, 1, 0, 1), [0, 1, 2])
    made = differentiate(net.finish(), [w, *sides])
    wider = NetworkBuilder.of(made)
    for gradient in made.gradients.values():
        wider.output(gradient)
    program = inference_program(wider.finish(), Graph("bow"), Schedule())
    report = compile_program(program.graph, program.program).report
    held, tiles = report.memory.run_bytes.sum(0), report.memory.run_tiles
    assert held.max() < 2 * (held @ tiles) / tiles.sum()


def test_norm__what_is_wrong_with_one__is_said() -> None:
    net = NetworkBuilder()
    x = net.parameter((2, 6), "f32", "x")
    made = "%0: f32[2, 6], %1: f32[2, 6], %2: f32[8], %3: f32[8]"
    text = f"network {{{{\n  parameter %x: f32[2, 6]\n  {made} = norm(%x) {{}}\n}}}}"
    with pytest.raises(NetworkError, match="no 4 groups of channels"):
        parse(text.format("eps=0.1 groups=4 replicas=1"))
    with pytest.raises(NetworkError, match="only batch norms take statistics over several replicas"):
        parse(text.format("eps=0.1 groups=2 replicas=2").replace("f32[8]", "f32[4]"))
    _, mean, _ = build.norm(net, x, 1, EPS)
    net.loss = build.reduce(net, mean, [0])
    with pytest.raises(UnsupportedOpError, match="the statistics of a norm has no derivative"):
        differentiate(net.finish(), [x])


def test_norm__only_some_samples_are_read__others_are_not_normalised() -> None:
    net = NetworkBuilder()
    x = net.parameter((4, 8, 16), "f32", "x")
    rows = build.reshape(net, x, (32, 16))
    sides = [net.parameter((16,), "f32", name) for name in ("gain", "shift")]
    y = build.reshape(net, build.norm(net, rows, 1, EPS, *sides)[0], (4, 8, 16))
    net.output(build.slice_(net, y, 1, 0, 1))
    whole = net.finish()
    narrow = inference_pipeline().run(whole)
    assert [op.inputs[0].shape for op in narrow.ops if op.kind == "norm"] == [(4, 16)]
    given = {p: RNG.standard_normal(p.shape) for p in whole.parameters}
    before, after = (evaluate(made, given)[made.outputs[0]] for made in (whole, narrow))
    np.testing.assert_allclose(before, after, rtol=1e-6)


def test_norm__of_the_batch__is_never_of_some_samples() -> None:
    net = NetworkBuilder()
    x = net.parameter((4, 8), "f32", "x")
    net.output(build.slice_(net, build.norm(net, x, build.BATCH, EPS)[0], 0, 0, 1))
    narrow = inference_pipeline().run(net.finish())
    assert [op.inputs[0].shape for op in narrow.ops if op.kind == "norm"] == [(4, 8)]


def of_replicas(shape: tuple[int, ...], replicas: int, dtype: str, *, affine: bool) -> tuple[Network, list[Value]]:
    """A batch norm of what enters, over replicas; gradients by it and by gain and shift leave."""
    net = NetworkBuilder()
    x = net.input(shape, dtype, "x")
    sides = [net.parameter(shape[1:2], dtype, name) for name in ("gain", "shift")] if affine else []
    y, mean, inverse = build.norm(net, x, build.BATCH, EPS, *sides, replicas=replicas)
    factor = net.input(shape, dtype, "factor")
    net.loss = build.reduce(net, build.map_(net, arg(0) * arg(1), [y, factor], f32), range(len(shape)))
    for value in (y, mean, inverse):
        net.output(value)
    sources = [x, *sides]
    wider = NetworkBuilder.of(differentiate(net.finish(), sources))
    for value in sources:
        wider.output(wider.gradients[value])
    wider.gradients.clear()
    return wider.finish(), sources


@pytest.mark.parametrize("mode", ["native", "tiles"])
@pytest.mark.parametrize(
    ("shape", "replicas", "dtype", "affine"),
    [((3, 5, 4, 4), 2, "f32", True), ((2, 7), 4, "f32", False), ((4, 6, 3), 2, "f16", True)],
)
def test_batch_norm__over_replicas__is_pytorch_over_their_samples(
    shape: tuple[int, ...], replicas: int, dtype: str, affine: bool, mode: str
) -> None:
    net, sources = of_replicas(shape, replicas, dtype, affine=affine)
    assert parse(str(net)) == net
    # A mean that is large beside the deviation: E[x²] − E[x]² would have no digit left in half precision.
    x, factor = RNG.normal(20.0, 0.5, (4, *shape)), RNG.normal(size=(4, *shape))
    sides = [RNG.normal(size=shape[1]) for _ in sources[1:]]
    if dtype == "f16":
        x, factor, *sides = (a.astype(np.float16).astype(np.float64) for a in (x, factor, *sides))
    feeds = [
        {net.inputs[0]: a, net.inputs[1]: f, **dict(zip(sources[1:], sides, strict=True))}
        for a, f in zip(x, factor, strict=True)
    ]
    exact = evaluate_replicas(net, feeds)
    session = Session.of(
        net,
        Schedule(replicas=4),
        settings=Settings(system="bow-2000", mode=mode, stable_norms=True),
        weights={v.name: s.astype(v.dtype.np) for v, s in zip(sources[1:], sides, strict=True)},
    )
    made = session(*(a.reshape(-1, *shape[1:]).astype(net.inputs[0].dtype.np) for a in (x, factor)))
    for first in range(0, 4, replicas):
        own = slice(first, first + replicas)
        expected = by_torch([x[own].reshape(-1, *shape[1:]), *sides], factor[own].reshape(-1, *shape[1:]), 0)
        tolerance = {"f32": 2e-5, "f16": 2e-2}[dtype]
        for replica in range(first, first + replicas):
            values = [exact[replica][v] for v in net.outputs]
            for n, want in ((0, expected[0]), (3, expected[1])):
                part = want.reshape(replicas, *shape)[replica - first]
                np.testing.assert_allclose(values[n], part, rtol=1e-9, atol=1e-9)
                given = made[n].reshape(4, *shape)[replica]
                np.testing.assert_allclose(given, part, rtol=tolerance, atol=tolerance * max(1, np.abs(part).max()))
        for n in (1, 2):
            rows = made[n].reshape(4, -1)[own]
            assert rows.dtype == np.float32
            assert (rows.view(np.uint32) == rows[:1].view(np.uint32)).all()
        for n, want in enumerate(expected[2:], 4):
            # Of gain and shift each replica has the part of its own samples; updates sum them.
            total = made[n].astype(np.float64).reshape(4, -1)[own].sum(0)
            np.testing.assert_allclose(total, want, rtol=tolerance, atol=tolerance * np.abs(want).max() * 4)


@pytest.mark.parametrize("groups", [build.BATCH, 2])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_whiten__with_the_statistics_of_a_norm__is_that_norm_to_the_bit(groups: int, dtype: str) -> None:
    net = NetworkBuilder()
    x = net.input((3, 8, 4, 4), dtype, "x")
    out, mean, inverse = build.norm(net, x, groups, EPS)
    for value in (out, build.whiten(net, x, mean, inverse, groups)):
        net.output(value)
    session = Session.of(net.finish(), Schedule(), settings=Settings(system="bow-2000"), weights={})
    given_x = RNG.normal(2.0, 3.0, (3, 8, 4, 4)).astype(dtype.replace("f", "float"))
    first, second = session(given_x)
    np.testing.assert_array_equal(first, second)


def test_whiten__statistics_of_another_number__are_refused() -> None:
    text = """network {
  input %x: f32[3, 8, 4]
  input %few: f32[3]
  %0: f32[3, 8, 4] = whiten(%x, %few, %few) groups=0
  output %0
}"""
    with pytest.raises(NetworkError, match="has 8 means and inverse deviations"):
        parse(text)
