"""PopLibs' namespaces inside popops: ``expr``, ``rearrange``, ``padding``."""

from __future__ import annotations

import numpy as np
import pytest
from poplibs_kit import Bench, system_of

from abele import Graph
from abele.errors import TensorError
from abele.graph import Execute
from abele.numerics import f16, f32
from abele.poplibs import popops
from abele.poplibs.popops import expr as pe

RNG = np.random.default_rng(11)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_partial_transpose__into_a_compute_set__swaps_the_last_dimensions(dtype: str) -> None:
    data = RNG.integers(-9, 9, (6, 8, 4))
    bench = Bench(16)
    cs = bench.graph.compute_set("transpose")
    out = popops.rearrange.partialTranspose(bench.graph, bench.tensor(data, dtype), cs, "t")
    bench.prog.add(Execute(cs))
    np.testing.assert_array_equal(bench.run_both(out)[0], data.transpose(0, 2, 1))


def test_partial_transpose__into_a_sequence__does_the_same() -> None:
    data = RNG.integers(-9, 9, (3, 8, 4))
    bench = Bench(16)
    out = popops.rearrange.partialTranspose(bench.graph, bench.tensor(data, "f32"), bench.prog)
    np.testing.assert_array_equal(bench.run_both(out)[0], data.transpose(0, 2, 1))


def test_transpose_vertices__by_tile__write_each_matrix_transposed() -> None:
    data = RNG.integers(-9, 9, (4, 3, 5))
    bench = Bench(16)
    x, y = bench.tensor(data, "f16"), bench.tensor(np.zeros((4, 5, 3)), "f16")
    cs = bench.graph.compute_set("transpose")
    mapping = [[(0, 2)], [], [(3, 4), (2, 3)]]
    popops.rearrange.addTransposeVertices(bench.graph, cs, f16, 3, 5, mapping, lambda n: (x[n], y[n]))
    bench.prog.add(Execute(cs))
    np.testing.assert_array_equal(bench.run_both(y)[0], data.transpose(0, 2, 1))
    with pytest.raises(TensorError, match="does not have the elements of a 3 x 4 matrix"):
        popops.rearrange.add_transpose_vertices(bench.graph, cs, f16, 3, 4, mapping, lambda n: (x[n], y[n]))


def test_fast_transpose__only_of_16_bits_in_blocks_of_four__can_be_used() -> None:
    target = Graph(system_of(4)).getTarget()
    assert popops.rearrange.canUseFastTranspose(target, f16, 8, 12, 1)
    assert not popops.rearrange.canUseFastTranspose(target, f32, 8, 12, 1)
    assert not popops.rearrange.canUseFastTranspose(target, f16, 8, 6, 1)


def test_regroup__in_the_namespace__takes_poplibs_order() -> None:
    data = RNG.integers(-9, 9, (4, 16))
    bench = Bench(16)
    out = popops.rearrange.regroupTensor(bench.graph, bench.tensor(data, "f16"), bench.prog, (1, 8), (0, 4), "r")
    np.testing.assert_array_equal(bench.run_both(out)[0], data)


def test_padding__names_of_the_namespace__are_taken() -> None:
    graph = Graph(system_of(4))
    x = graph.variable("f32", (3,), map=0)
    assert popops.pad(x, [1], [1], popops.padding.Type.EDGE).shape == (5,)
    assert popops.pad(graph, x, [1], [1], 0.0, popops.padding.MappingMethod.EDGE).shape == (5,)


UNARY = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Exp": np.exp,
    "Floor": np.floor,
    "Inv": lambda x: 1 / x,
    "Log1p": lambda x: np.log1p(np.abs(x)),
    "Neg": np.negative,
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Signum": np.sign,
    "Sin": np.sin,
    "Square": np.square,
    "Tanh": np.tanh,
    "Trunc": np.trunc,
}
BINARY = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Divide": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Atan2": np.arctan2,
}


def test_expressions__of_one__equal_numpy() -> None:
    data = RNG.uniform(-2, 2, 50).astype(np.float32)
    bench = Bench(4)
    x, outs = bench.tensor(data), []
    for name in UNARY:
        argument = pe.Abs(pe._1) if name == "Log1p" else pe._1
        outs.append(popops.map(bench.graph, getattr(pe, name)(argument), [x], bench.prog))
    for (name, function), got in zip(UNARY.items(), bench.run_both(*outs), strict=True):
        np.testing.assert_allclose(got, function(data.astype(np.float64)), rtol=1e-4, atol=1e-5, err_msg=name)


def test_expressions__of_two__equal_numpy() -> None:
    one, other = (RNG.uniform(0.5, 2, 50).astype(np.float32) for _ in range(2))
    bench = Bench(4)
    x, y = bench.tensor(one), bench.tensor(other)
    outs = [popops.map(bench.graph, getattr(pe, name)(pe._1, pe._2), [x, y], bench.prog) for name in BINARY]
    for (name, function), got in zip(BINARY.items(), bench.run_both(*outs), strict=True):
        wanted = function(one.astype(np.float64), other.astype(np.float64))
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=name)


def test_expression__by_class_enumerator_and_operator__is_one_and_the_same() -> None:
    types = (f32, f32)
    by_class = pe.Add(pe._1, pe.Mul(pe._2, pe.Const(2.0)))
    by_enumerator = pe.BinaryOp(pe.BinaryOpType.ADD, pe._1, pe.BinaryOp(pe.BinaryOpType.MULTIPLY, pe._2, 2.0))
    by_operator = pe.Any(pe.PlaceHolder(1) + pe.PlaceHolder(2) * 2.0)
    assert str(by_class.lower(types)) == str(by_enumerator.lower(types)) == str(by_operator.lower(types))
    three = pe.TernaryOp(pe.TernaryOpType.SELECT, pe._1, pe._2, pe.UnaryOp(pe.UnaryOpType.IS_NAN, pe._1))
    assert str(three.lower(types)) == str(pe.Select(pe._1, pe._2, pe.IsNaN(pe._1)).lower(types))
    assert str(pe.Cast(pe.ConstHalf(1.5), f32).lower(())) == str(pe.Cast(pe.Const(1.5, f16), "f32").lower(()))


def test_expression__several_at_once__give_a_tensor_each() -> None:
    data = RNG.uniform(0.5, 2, 20).astype(np.float32)
    bench = Bench(4)
    outs = popops.map(bench.graph, [pe.Square(pe._1), pe.Sqrt(pe._1)], [bench.tensor(data)], bench.prog, "two")
    got = bench.run_both(*outs)
    np.testing.assert_allclose(got, [data**2, np.sqrt(data)], rtol=1e-5)


def test_expression__named_in_no_way__has_no_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Addd'"):
        pe.Addd  # noqa: B018
