"""Every operation of the table at the ends of its types: NaN, infinities, zeros, the largest and smallest numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from abele.compiler import compile_program
from abele.expr import TABLE, Operation, apply
from abele.expr.derivative import arg
from abele.expr.operations import special
from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.numerics import ElementType, bf16, f16, f32
from abele.poplibs import popops
from abele.runtime import Engine

Array = np.ndarray[Any, Any]
FLOATS = [op for op in TABLE.values() if op.kinds is None or "float" in op.kinds]
EXTREMES = {"max", "min", "clamp", "relu", "nl_relu"}
"""Of zeros of both signs they may give either: IEEE 754 leaves it open, and so do PyTorch and NumPy."""
ENDS = {f32: (2.0**-126, 3.4028235e38), f16: (2.0**-14, 65504.0), bf16: (2.0**-126, 3.3895314e38)}
ACCURACY = {f32: 2e-5, f16: 1.5e-3, bf16: 1e-2}
FEW, MANY = (0.5, 1.0, 3.0, 1e10), (1e-20, 1e-3, 0.3, 0.9, 1.5, 2.0, 2.5, 4.5, 7.0, 11.0, 20.0, 89.0, 1e3, 12345.0, 3e9)


def _inputs(dtype: ElementType, arity: int, *, whole: bool) -> list[Array]:
    """All values of one argument, pairs and triples of fewer."""
    least, largest = ENDS[dtype]
    sizes = [0.0, least / 4, least, *FEW, 0.9 * largest, largest, np.inf]
    if arity == 1 or (whole and arity == 2):
        sizes += MANY
    if arity == 3:
        sizes = [0.0, 1.0, 2.5, largest, np.inf]
    with np.errstate(all="ignore"):
        values = np.array([np.nan, *sizes, *(-s for s in sizes)]).astype(dtype.np)
    return [np.array(column, dtype.np) for column in zip(*product(values, repeat=arity), strict=True)]


def _flushed(x: Array, dtype: ElementType) -> Array:
    """Subnormal f32 numbers as zero, which is how they are computed with."""
    wide = x.astype(np.float64)
    return wide if dtype == f16 else np.where(np.abs(wide) < 2.0**-126, np.copysign(0.0, wide), wide)


def _meanings(op: Operation, inputs: list[Array], dtype: ElementType) -> list[Array]:
    """NumPy's results in 64 bits and, where a step overflows, in 32, with and without subnormal arguments."""
    made = []
    for given in (inputs, [_flushed(x, dtype) for x in inputs]):
        for wide in (np.float64, np.float32):
            args = [x.astype(wide) for x in given]
            if op.name == "select":
                args[0] = args[0] > 0
            with np.errstate(all="ignore"):
                made.append(np.broadcast_to(np.asarray(op.meaning(*args)), inputs[0].shape))
    return made


def _equal(got: Array, wanted: Array, dtype: ElementType, name: str) -> Array:
    if wanted.dtype == bool:
        return got.astype(bool) == wanted
    with np.errstate(all="ignore"):
        wanted = _flushed(wanted.astype(np.float32).astype(dtype.np), dtype)
        got = _flushed(got, dtype)
        signed = (np.signbit(got) == np.signbit(wanted)) | (name in EXTREMES)
        same = ((got == wanted) & (signed | (got != 0))) | (np.isnan(got) & np.isnan(wanted))
        # A step on the way may be subnormal where the result, a hundred times it, is not.
        least = 2.0**-119 if dtype != f16 else 2.0**-23
        near = np.abs(got - wanted) <= ACCURACY[dtype] * np.abs(wanted) + least
    return same | (near & np.isfinite(wanted) & (signed | (wanted != 0)))


def _operations(*, whole: bool) -> list[Operation]:
    """All operations, or every third."""
    return FLOATS if whole else FLOATS[::3]


def _run(dtype: ElementType, ways: list[tuple[str, bool]], *, whole: bool) -> tuple[dict[int, list[Array]], Any]:
    """Operations in one program; results by way and name."""
    bow = systems.get("bow")
    graph, prog = Graph(replace(bow, ipu=replace(bow.ipu, num_tiles=2), num_ipus=1)), Sequence()
    inputs = {arity: _inputs(dtype, arity, whole=whole) for arity in (1, 2, 3)}
    tensors = {
        arity: [graph.variable(dtype, v.shape, name=f"v{arity}{n}").map_linear() for n, v in enumerate(arrays)]
        for arity, arrays in inputs.items()
    }
    outs = {}
    for op in _operations(whole=whole):
        args = [arg(n) for n in range(op.arity)]
        condition = [args[0] > 0.0] if op.name == "select" else args[:1]
        expression = popops.expr.Expr(apply(op.name, *condition, *args[1:]))
        outs[op.name] = popops.map(graph, expression, tensors[op.arity], prog)
    executable, found = compile_program(graph, prog), {}
    for mode, debug in ways:
        kept = [*(t for group in tensors.values() for t in group), *outs.values()]
        with Engine(executable, mode=mode, debug=debug, threads=1, keep=kept) as engine:
            for arity, arrays in inputs.items():
                for tensor, array in zip(tensors[arity], arrays, strict=True):
                    engine[tensor] = array
            engine.run()
            found[mode, debug] = {name: np.array(engine[out]) for name, out in outs.items()}
    return inputs, found


def _check(dtype: ElementType, ways: list[tuple[str, bool]], *, whole: bool) -> None:
    inputs, found = _run(dtype, ways, whole=whole)
    wrong = []
    for op in _operations(whole=whole):
        given = inputs[op.arity]
        meanings = _meanings(op, given, dtype)
        for way, results in found.items():
            got = results[op.name]
            right = np.any([_equal(got, m, dtype, op.name) for m in meanings], axis=0)
            if op.name == "swish_gradient":
                # Its sigmoid is subnormal, so zero, and the other factor may be any.
                right |= np.nan_to_num(given[0].astype(np.float64)) < -87
            for n in np.flatnonzero(~right)[:3]:
                at = ", ".join(f"{float(x[n]):g}" for x in given)
                wrong.append(f"{op.name}({at}) {way}: {got[n]}, not {meanings[0][n]}")
    assert not wrong, "\n".join(wrong)


def test_operations__some_with_special_values_in_f32__are_their_meanings_both_ways() -> None:
    _check(f32, [("tiles", False), ("native", False)], whole=False)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [f32, f16, bf16])
def test_operations__all_special_values_and_pairs__are_their_meanings_every_way(dtype: ElementType) -> None:
    _check(dtype, [("tiles", False), ("native", False), ("tiles", True)], whole=True)


_OTHER_NAMES = {
    "inv": "reciprocal",
    "rem": "fmod",
    "max": "maximum",
    "min": "minimum",
    "signum": "sign",
    "is_finite": "isfinite",
    "is_inf": "isinf",
    "is_nan": "isnan",
    "gelu_erf": "gelu",
    "nl_gelu_erf": "gelu",
    "nl_relu": "relu",
    "nl_sigmoid": "sigmoid",
    "nl_tanh": "tanh",
    "swish": "silu",
}
"""PyTorch's names where they differ; an operation of the same name is found by it."""
_ANOTHER_MEANING = {"select", "gelu", "hard_sigmoid"} | {op.name for op in special.OPERATIONS}
"""Functions of those names are others in PyTorch; of special functions SciPy is the oracle, by limits."""


def _of_pytorch(op: Operation) -> Callable[..., Any] | None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    if op.name in _ANOTHER_MEANING:
        return None
    name = _OTHER_NAMES.get(op.name, op.name)
    rooms = (torch, torch.special, torch.nn.functional)
    found: Callable[..., Any] | None = next((getattr(r, name) for r in rooms if hasattr(r, name)), None)
    return found


@pytest.mark.parametrize("op", FLOATS, ids=lambda op: op.name)
def test_meaning__special_values__is_that_of_pytorch(op: Operation) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    function = _of_pytorch(op)
    if function is None:
        return
    inputs = [x.astype(np.float64) for x in _inputs(f32, op.arity, whole=True)]
    wanted = function(*map(torch.from_numpy, inputs)).numpy()
    with np.errstate(all="ignore"):
        got = np.asarray(op.meaning(*inputs))
        got = got if got.dtype == bool else got.astype(np.float32)
    right = _equal(got, wanted, f32, op.name)
    assert right.all(), [*(float(x[~right][0]) for x in inputs), got[~right][0], wanted[~right][0]]


LARGE = np.array([2.0**30, 3e9, 1e10, 1e15, 1e20, 16367173 * 2.0**72, 1e30, 3e38, 3.4028235e38], np.float32)
"""16367173 · 2⁷² is the f32 nearest to a multiple of π/2. Source: Kahan, minimizing q·m − n."""


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("mode", ["tiles", "native"])
def test_circular_function__large_angle__is_exact_to_two_units(name: str, mode: str) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([LARGE, -LARGE, np.exp(rng.uniform(10, 88, 400)).astype(np.float32)])
    bow = systems.get("bow")
    graph, prog = Graph(replace(bow, ipu=replace(bow.ipu, num_tiles=2), num_ipus=1)), Sequence()
    tensor = graph.variable(f32, x.shape, name="x").map_linear()
    out = popops.map(graph, popops.expr.Expr(apply(name, arg(0))), [tensor], prog)
    with Engine(compile_program(graph, prog), mode=mode, threads=1, keep=[tensor, out]) as engine:
        engine[tensor] = x
        engine.run()
        got = np.array(engine[out]).astype(np.float64)
    exact = getattr(np, name)(x.astype(np.float64))
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    assert (np.abs(got - exact) / unit).max() < (4 if name == "tan" else 2)


def test_remainder__random_pairs__is_exact() -> None:
    rng = np.random.default_rng(2)
    x, y = (np.exp(rng.uniform(-80, 80, (2, 2000))) * rng.choice([-1, 1], (2, 2000))).astype(np.float32)
    bow = systems.get("bow")
    graph, prog = Graph(replace(bow, ipu=replace(bow.ipu, num_tiles=2), num_ipus=1)), Sequence()
    tensors = [graph.variable(f32, x.shape, name=f"v{n}").map_linear() for n in range(2)]
    out = popops.rem(graph, *tensors, prog)
    for mode in ("tiles", "native"):
        with Engine(compile_program(graph, prog), mode=mode, threads=1, keep=[*tensors, out]) as engine:
            engine[tensors[0]], engine[tensors[1]] = x, y
            engine.run()
            wanted = _flushed(np.fmod(x.astype(np.float64), y.astype(np.float64)), f32)
            np.testing.assert_array_equal(_flushed(np.array(engine[out]), f32), wanted)
