"""Multi-convolutions: PyTorch's results, shares that end together, errors."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from poplibs_kit import Bench, assert_close, system_of

from abele.compiler import compile_program
from abele.errors import (
    AbeleError,
    ControlProgramError,
    InvalidOptionError,
    TensorError,
    TensorIndexError,
    TypeMismatchError,
)
from abele.graph import Execute, Graph, LibraryCall, Sequence, walk
from abele.machine import systems
from abele.numerics import f16, f32
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams, InputTransform, OutputTransform, TransformedConv, multiconv
from abele.poplibs.poplin.contraction import problem as problems
from abele.poplibs.poplin.multiconv.args import MultiPlanning
from abele.poplibs.poplin.multiconv.convs import share_tiles
from abele.poplibs.poplin.options import Planning
from abele.poplibs.poplin.planner.search import best_plans, find_plan
from abele.poplibs.poplin.planner.target import target_of
from poplibs.poplin.support import reference_conv

PLAIN = ConvParams(2, 8, 16, (9, 9), (3, 3), padding_lower=(1, 1), padding_upper=(1, 1))
POINT = ConvParams(2, 6, 4, (7, 5), (1, 1))
GROUPED = ConvParams(1, 8, 8, (11, 11), (3, 2), stride=(2, 1), groups=4)
LINE = ConvParams(3, 4, 5, (17,), (4,), padding_lower=(2,), padding_upper=(1,))
MIXED = (PLAIN, POINT, GROUPED, LINE)


class Layers:
    """Several convolutions with random operands, and PyTorch's results of them."""

    def __init__(self, tiles: int, given: tuple[ConvParams, ...] = MIXED, dtype: str = "f32", **options: Any) -> None:
        rng = np.random.default_rng(7)
        self.bench = Bench(tiles)
        self.given, self.options = given, options
        created = [multiconv.CreateTensorArgs(dtype, params) for params in given]
        graph = self.bench.graph
        self.x = [multiconv.create_input(graph, created, i, options=options) for i in range(len(given))]
        self.w = [multiconv.create_weights(graph, created, i, options=options) for i in range(len(given))]
        for made in (*self.x, *self.w):
            self.bench.data[made] = rng.uniform(-1, 1, made.shape).astype(made.dtype.np)
        self.z = [self.bench.tensor(rng.uniform(-1, 1, p.output_shape), dtype, "activations") for p in given]
        self.torch_x, self.torch_w = (
            [torch.tensor(self.bench.values(t), requires_grad=True) for t in ts] for ts in (self.x, self.w)
        )
        self.torch_y = [reference_conv(p, x, w) for p, x, w in zip(given, self.torch_x, self.torch_w, strict=True)]
        for y, z in zip(self.torch_y, self.z, strict=True):
            y.backward(torch.tensor(self.bench.values(z)))

    def forward(self) -> list[multiconv.ConvolutionArgs]:
        return [multiconv.ConvolutionArgs(*args) for args in zip(self.x, self.w, self.given, strict=True)]

    def backward(self) -> list[multiconv.ConvolutionArgs]:
        params = [p.gradient_params() for p in self.given]
        return [multiconv.ConvolutionArgs(*args) for args in zip(self.z, self.w, params, strict=True)]

    def gradients(self) -> list[multiconv.CalculateWeightDeltasArgs]:
        return [multiconv.CalculateWeightDeltasArgs(*args) for args in zip(self.z, self.x, self.given, strict=True)]

    def updates(self, scale: Any) -> list[multiconv.ConvWeightUpdateArgs]:
        operands = zip(self.z, self.w, self.x, self.given, strict=True)
        return [multiconv.ConvWeightUpdateArgs(z, w, x, scale, p) for z, w, x, p in operands]


@pytest.mark.parametrize(("tiles", "plan"), [(4, "parallel"), (64, "parallel"), (64, "serial")])
def test_multiconv__a_training_step__gives_what_pytorch_gives(tiles: int, plan: str) -> None:
    layers = Layers(tiles, planType=plan)
    bench, options = layers.bench, layers.options
    graph, prog = bench.graph, bench.prog
    outs = multiconv.convolution(graph, layers.forward(), prog, options=options)
    backs = multiconv.convolution(graph, layers.backward(), prog, transpose_and_flip_weights=True, options=options)
    deltas = multiconv.calculate_weight_deltas(graph, layers.gradients(), prog, options=options)
    multiconv.convolution_weight_update(graph, layers.updates(-0.5), prog, options=options)
    wanted = [
        *(y.detach() for y in layers.torch_y),
        *(x.grad for x in layers.torch_x),
        *(w.grad for w in layers.torch_w),
        *((w - 0.5 * w.grad).detach() for w in layers.torch_w if w.grad is not None),
    ]
    for got, want in zip(bench.run_both(*outs, *backs, *deltas, *layers.w), wanted, strict=True):
        assert want is not None
        assert_close(got, want.numpy(), f32)


def test_multiconv__half_operands_on_a_whole_chip__gives_what_pytorch_gives() -> None:
    layers = Layers(1472, MIXED[:3], "f16")
    outs = multiconv.convolution(layers.bench.graph, layers.forward(), layers.bench.prog)
    for got, want in zip(layers.bench.run_both(*outs), layers.torch_y, strict=True):
        assert_close(got, want.detach().numpy(), outs[0].dtype)


def test_multiconv__operands_on_any_tiles_and_a_tensor_as_scale__updates_in_place() -> None:
    layers = Layers(64)
    bench = layers.bench
    for own in (layers.x, layers.w):
        for i, made in enumerate(own):
            own[i] = bench.tensor(bench.data.pop(made), "f32", layout="linear")
    scale = bench.tensor(np.array([0.25]), "f32", layout=63)
    multiconv.convolution_weight_update(bench.graph, layers.updates(scale), bench.prog)
    for got, w in zip(bench.run_both(*layers.w), layers.torch_w, strict=True):
        assert w.grad is not None
        assert_close(got, (w + 0.25 * w.grad).detach().numpy(), f32)


def test_multiconv__four_field_dimensions_and_transforms__run_beside_plain_ones() -> None:
    rng = np.random.default_rng(3)
    bench = Bench(16)
    deep = ConvParams(1, 2, 3, (3, 3, 2, 3), (2, 1, 2, 1))
    cut = TransformedConv(
        1,
        (8, 8),
        (3, 3),
        4,
        4,
        input=InputTransform(truncation_lower=(1, 0), truncation_upper=(0, 2), dilation=(1, 2)),
        output=OutputTransform(stride=(1, 2)),
    )
    given = [deep, cut, POINT]
    args = [
        multiconv.ConvolutionArgs(
            bench.tensor(rng.uniform(-1, 1, p.input_shape), "f32"),
            bench.tensor(rng.uniform(-1, 1, p.weights_shape), "f32"),
            p,
        )
        for p in given
    ]
    together = multiconv.convolution(bench.graph, args, bench.prog)
    alone = [poplin.convolution(bench.graph, a.inputs, a.weights, a.params, bench.prog) for a in args]
    results = bench.run_both(*together, *alone)
    for got, want in zip(results[:3], results[3:], strict=True):
        assert_close(got, want, f32)


@cache
def _step_of_four(plan: str) -> tuple[int, tuple[set[int], ...]]:
    """Cycles of four small convolutions on a whole chip, and the tiles of the products of each."""
    graph, prog = Graph(systems.get("bow")), Sequence()
    params = [replace(PLAIN, batch=4, in_channels=n, out_channels=n, field=(14, 14)) for n in (16, 32, 48, 64)]
    created = [multiconv.CreateTensorArgs("f16", p) for p in params]
    args = [
        multiconv.ConvolutionArgs(
            multiconv.create_input(graph, created, i, options={"planType": plan}),
            multiconv.create_weights(graph, created, i, options={"planType": plan}),
            p,
        )
        for i, p in enumerate(params)
    ]
    multiconv.convolution(graph, args, prog, options={"planType": plan})
    steps = [s for s in walk(prog) if isinstance(s, Execute) and s.compute_set.debug.name == "partials"]
    tiles = tuple(set(group.tile.tolist()) for step in steps for group in step.compute_set.groups)
    return compile_program(graph, prog).report.total_cycles, tiles


def test_multiconv__parallel__takes_less_time_than_serial() -> None:
    assert _step_of_four("parallel")[0] < 0.7 * _step_of_four("serial")[0]


def test_multiconv__parallel__products_lie_on_tiles_of_their_own_by_work() -> None:
    tiles = _step_of_four("parallel")[1]
    assert len(tiles) == 4
    assert len(set().union(*tiles)) == sum(map(len, tiles))
    assert [len(t) for t in tiles] == sorted(len(t) for t in tiles)


def test_multiconv__parallel__is_one_call_with_one_kernel() -> None:
    layers = Layers(64)
    multiconv.convolution(layers.bench.graph, layers.forward(), layers.bench.prog, name="four")
    (call,) = layers.bench.prog.steps
    assert isinstance(call, LibraryCall)
    assert call.kernel is not None
    assert call.debug.name == "four"
    assert call.flops == sum(2 * p.macs for p in MIXED)


def test_multiconv__no_convolutions__appends_nothing() -> None:
    bench = Bench(4)
    assert multiconv.convolution(bench.graph, [], bench.prog) == []
    assert len(bench.prog) == 0


def test_multiconv__camel_case__are_the_same_functions() -> None:
    assert poplin.multiconv.createWeights is multiconv.create_weights
    assert poplin.multiconv.convolutionWeightUpdate is multiconv.convolution_weight_update


@pytest.mark.parametrize("work", [(900, 300, 100), (500, 500), (2000, 10, 10, 10)])
def test_share_tiles__times_of_known_form__are_close_to_the_best_shares(work: tuple[int, ...]) -> None:
    tiles = 40
    system = systems.get("bow").evolve(ipu={"num_tiles": tiles})

    def estimate(n: int, share: int) -> dict[str, int]:
        return {"fixed": 20, "products": -(-100 * n // share)}

    planning = MultiPlanning(is_parallel=True, reserved_tiles=1, back_off=0.0)
    shares = share_tiles("m", Graph(system), [lambda s, n=n: estimate(n, s.tiles) for n in work], planning)  # type: ignore[misc]
    sizes = [share.limits.tiles for share in shares]
    assert sum(sizes) == tiles

    def longest(parts: tuple[int, ...]) -> int:
        return max(sum(estimate(n, s).values()) for n, s in zip(work, parts, strict=True))

    every = (p for p in product(range(1, tiles), repeat=len(work) - 1) if sum(p) < tiles)
    best = min(longest((tiles - sum(p), *p)) for p in every)
    assert longest(tuple(sizes)) <= 1.15 * best


def test_share_tiles__reserved_tiles__are_the_least_of_each() -> None:
    system = systems.get("bow").evolve(ipu={"num_tiles": 40})
    planning = MultiPlanning(is_parallel=True, reserved_tiles=10, back_off=0.1)
    estimates = [lambda s: {"products": 10**6 // s.tiles}, lambda s: {"products": 10 // s.tiles}]
    assert [share.limits.tiles for share in share_tiles("m", Graph(system), estimates, planning)] == [30, 10]


@pytest.mark.parametrize("ipus", [1, 2])
def test_share_tiles__graphs__number_the_tiles_of_a_share_first(ipus: int) -> None:
    graph = Graph(systems.get("bow").evolve(ipu={"num_tiles": 12}).with_ipus(ipus))
    planning = MultiPlanning(is_parallel=True, reserved_tiles=1, back_off=0.1)
    shares = share_tiles("m", graph, [lambda s: {"products": 100 // s.tiles}] * 3, planning)
    firsts = [share.graph.virtual(0, share.limits.tiles).tiles.tolist() for share in shares]
    assert firsts == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert all(share.graph.system.num_ipus == ipus for share in shares)


@pytest.mark.parametrize("tiles", [16, 64])
def test_find_plan__beside_another__is_the_best_of_all_splits_together_with_it(tiles: int) -> None:
    problem = problems.forward(replace(PLAIN, batch=4), f16, f32, f16)
    alone = Planning()
    beside = replace(alone, beside=(("partial products", 9000), ("exchange of the input", 700), ("conversion", 90)))
    machine, grains = target_of(system_of(tiles)), (1, 1, 1, 1, 8, 4, 1, 1)
    theirs = dict(beside.beside)

    def together(plan: poplin.ContractionPlan) -> int:
        mine = dict(plan.terms)
        return sum(max(mine.get(kind, 0), theirs.get(kind, 0)) for kind in mine | theirs)

    every = best_plans(problem, grains, machine, alone, 10**6)
    assert together(find_plan(problem, grains, machine, beside)) == min(map(together, every))


def test_multiconv__on_a_virtual_graph__stays_inside() -> None:
    bench = Bench(64)
    graph = bench.graph.virtual(21, 50)
    args = [
        multiconv.ConvolutionArgs(
            bench.tensor(np.ones(p.input_shape), "f32", layout=30),
            bench.tensor(np.ones(p.weights_shape), "f32", layout=40),
            p,
        )
        for p in MIXED
    ]
    outs = multiconv.convolution(graph, args, bench.prog)
    tiles = {int(t) for made in bench.graph.compute_sets for group in made.groups for t in group.tile}
    assert min(tiles) >= 21
    assert max(tiles) < 50
    for got, one in zip(bench.run(*outs), args, strict=True):
        ones = (torch.ones(*shape) for shape in (one.params.input_shape, one.params.weights_shape))
        assert_close(got, reference_conv(one.params, *ones).numpy(), f32)


def _wrong(layers: Layers, what: str) -> None:
    graph, prog, args = layers.bench.graph, layers.bench.prog, layers.forward()
    created = [multiconv.CreateTensorArgs("f32", p) for p in MIXED]
    pinned = '{"0": {"partition": {"outChanSplit": 16}}}'
    match what:
        case "index":
            multiconv.create_weights(graph, created, 4)
        case "plan type":
            multiconv.convolution(graph, args, prog, options={"planType": "sideways"})
        case "option":
            multiconv.convolution(graph, args, prog, options={"planTypes": "serial"})
        case "option of one":
            multiconv.convolution(graph, [args[1], replace(args[0], options={"pas": "NONE"})], prog)
        case "many":
            multiconv.convolution(graph, args * 20, prog)
        case "share":
            wide = replace(args[0], options={"planConstraints": pinned})
            multiconv.convolution(graph, [wide] * 8, prog)
        case "shape":
            multiconv.convolution(graph, [replace(args[0], weights=args[1].weights)], prog)
        case "weights shape":
            multiconv.convolution(graph, [replace(args[0], params=POINT)], prog, transpose_and_flip_weights=True)
        case "type":
            half = layers.bench.tensor(np.zeros(PLAIN.weights_shape), "f16")
            multiconv.convolution(graph, [replace(args[0], weights=half)], prog)
        case "twice":
            multiconv.convolution_weight_update(graph, layers.updates(1.0)[:1] * 2, prog)


@pytest.mark.parametrize(
    ("what", "error", "text"),
    [
        ("index", TensorIndexError, "there is no convolution 4, 4 are given"),
        ("plan type", InvalidOptionError, "option 'planType' takes one of parallel, serial, got 'sideways'"),
        ("option", InvalidOptionError, "has no option 'planTypes'; did you mean 'planType'"),
        ("option of one", InvalidOptionError, "no option 'pas'; did you mean 'pass'"),
        ("many", InvalidOptionError, "80 convolutions cannot each have tiles of their own, there are 64"),
        ("share", InvalidOptionError, "convolution 0 does not fit its share of 8 tiles: .* 16 parts"),
        ("shape", TensorError, "the convolution needs shape"),
        ("weights shape", TensorError, "the convolution needs shape"),
        ("type", TypeMismatchError, "operands differ in type"),
        ("twice", ControlProgramError, "program 0 writes what program 1 reads or writes"),
    ],
)
def test_multiconv__wrong_arguments__are_refused_in_words(what: str, error: type[AbeleError], text: str) -> None:
    with pytest.raises(error, match=text):
        _wrong(Layers(64), what)
