"""Networks as ONNX models: onnx's reference evaluator computes what the network's own meaning in NumPy says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import abele.onnx
from abele.arrays import Array
from abele.errors import InvalidOptionError, SignatureError, UnknownArrayError, UnsupportedOpError
from abele.expr import TABLE, apply, derivative
from abele.graph.debug import DebugRecord
from abele.network import Network, NetworkBuilder, Value
from abele.network.interpreter import evaluate
from abele.network.ir import Dense
from abele.network.ops import (
    control,
    convolution,
    draw,
    dropout,
    elementwise,
    linear,
    lookup,
    nonlinearity,
    norm,
    pooling,
    reduction,
    rows,
    scan,
    search,
    softmax,
    sorting,
    views,
)
from abele.network.ops.matrices.lu import lu
from abele.numerics import bool_, f16, f32, i32
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.poplibs.popnn.pool_params import PoolParams

x, y, z = (derivative.arg(n) for n in range(3))
RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    return np.asarray(RANDOM.normal(size=shape), np.float32)


class Case:
    """A network in the making, with an array for each of its inputs."""

    def __init__(self) -> None:
        self.net = NetworkBuilder()
        self.feeds: dict[Value, Array] = {}

    def __call__(self, array: Any, dtype: Any = f32, *, weight: bool = False) -> Value:
        array = np.asarray(array)
        enter = self.net.parameter if weight else self.net.input
        value = enter(array.shape, dtype, f"x{len(self.feeds)}")
        self.feeds[value] = array.astype(dtype.np)
        return value


def finished(make: Callable[[NetworkBuilder, Case], Any]) -> tuple[Network, Case]:
    case = Case()
    made = make(case.net, case)
    for value in made if isinstance(made, (list, tuple)) else [made]:
        case.net.output(value)
    return case.net.finish(), case


def written(net: Network, case: Case, opset: int = 18) -> onnx.ModelProto:
    weights = {v.name: case.feeds[v] for v in net.parameters}
    proto = abele.onnx.export(net, weights=weights, opset=opset)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def held(make: Callable[[NetworkBuilder, Case], Any], opset: int = 18) -> onnx.ModelProto:
    """Write a network, and hold the reference evaluator's results against its own meaning."""
    net, case = finished(make)
    proto = written(net, case, opset)
    got = ReferenceEvaluator(proto).run(None, {v.name: case.feeds[v] for v in net.inputs})
    seed = {} if net.seed is None else {net.seed: np.array([1, 2], np.uint32)}
    values = evaluate(net, {**case.feeds, **seed}, precise=False)
    for array, value in zip(got, net.outputs, strict=True):
        assert (array.shape, array.dtype) == (value.shape, value.dtype.np)
        tolerance = 2e-3 if value.dtype == f16 else 1e-5
        np.testing.assert_allclose(array, values[value], rtol=tolerance, atol=tolerance)
    return proto


def operators(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


# --- element by element -----------------------------------------------------------------------------------------------

FLOATS = (
    *("exp", "expm1", "log1p", "tanh", "sigmoid", "softplus", "erf", "erfc", "sin", "cbrt", "floor", "ceil", "round"),
    *("trunc", "round_half_away", "abs", "signum", "square", "relu", "neg", "is_nan", "is_finite"),
    *("nl_gelu_erf", "gelu", "swish", "hard_sigmoid"),
)
TWO = ("add", "sub", "mul", "div", "rem", "pow", "max", "min", "atan2", "hypot", "copysign", "lt", "le", "eq", "ne")
WHOLE = ("add", "mul", "div", "floordiv", "rem", "max", "and", "or", "xor", "shl", "shr", "shift_right_sign_extend")


@pytest.mark.parametrize("name", FLOATS)
def test_function__of_floats__is_written(name: str) -> None:
    out = bool_ if TABLE[name].gives_bool else f32
    held(lambda net, enter: elementwise.map_(net, apply(name, x), [enter(normal(3, 4) * 0.6)], out))


@pytest.mark.parametrize("name", TWO)
def test_operation__of_floats__is_written(name: str) -> None:
    out = bool_ if TABLE[name].gives_bool else f32
    held(lambda net, enter: elementwise.map_(net, apply(name, x, y), [enter(abs(normal(3, 4))), enter(normal(4))], out))


@pytest.mark.parametrize("name", WHOLE)
def test_operation__of_whole_numbers__rounds_as_the_machine(name: str) -> None:
    numbers, others = np.arange(-6, 6).reshape(3, 4), np.array([[3], [0], [2]])
    held(lambda net, enter: elementwise.map_(net, apply(name, x, y), [enter(numbers, i32), enter(others, i32)], i32))


def test_map__of_halves__computes_in_f32() -> None:
    def make(net: NetworkBuilder, enter: Case) -> Value:
        return elementwise.map_(net, apply("exp", x) * 2.0 - y, [enter(normal(3, 4), f16), enter(normal(4), f16)], f16)

    assert operators(held(make))[:2] == ["Cast", "Exp"]


def test_map__with_a_part_twice__has_it_once() -> None:
    def make(net: NetworkBuilder, enter: Case) -> list[Value]:
        value, half = enter(normal(3, 4)), apply("tanh", x * 0.5)
        return [elementwise.map_(net, half * half + half, [value]), elementwise.map_(net, half + 1.0, [value])]

    assert operators(held(make)).count("Tanh") == 1


def test_nonlinearity__and_its_gradient__are_written() -> None:
    def make(net: NetworkBuilder, enter: Case) -> list[Value]:
        value, made = enter(abs(normal(3, 4)) * 0.5), []
        for function in ("relu", "sigmoid", "tanh", "gelu", "gelu_erf", "swish"):
            made.append(nonlinearity.nonlinearity(net, function, value))
            made.append(net.emit_like("nonlinearity_grad", [value, value], value, function=function))
        return made

    held(make)
    assert "Gelu" in operators(held(make, opset=20))


def test_casts__between_all_kinds__are_written() -> None:
    held(
        lambda net, enter: [
            elementwise.cast(net, enter(normal(3) * 5), i32),
            elementwise.cast(net, enter(normal(3) > 0, bool_), f32),
            elementwise.cast(net, enter(normal(3), f16), f32),
        ]
    )


# --- views and reductions ---------------------------------------------------------------------------------------------


def test_views__of_all_kinds__are_written() -> None:
    def make(net: NetworkBuilder, enter: Case) -> list[Value]:
        value = enter(normal(3, 4))
        return [
            views.reshape(net, value, (2, 6)),
            views.permute(net, value, (1, 0)),
            views.expand(net, value, (2, 3, 4)),
            views.slice_(net, value, 1, 0, 4, 2),
            views.reverse(net, value, [0, 1]),
            views.pad(net, value, [1, 0], [0, 2]),
            views.detach(net, value),
        ]

    held(make)


@pytest.mark.parametrize("opset", [17, 18])
def test_reductions__of_both_opsets__are_written(opset: int) -> None:
    def make(net: NetworkBuilder, enter: Case) -> list[Value]:
        value, flags = enter(normal(2, 3, 4)), enter(normal(3, 4) > 0, bool_)
        made = [reduction.reduce(net, value, [0, 2], o) for o in ("add", "max", "min", "mul")]
        made += [reduction.reduce(net, flags, [0], o) for o in ("and", "or")]
        return [*made, reduction.mean(net, value, [1], keep=True), reduction.reduce(net, value, [1], scale=0.3)]

    held(make, opset)


def test_softmaxes__along_any_dimension__are_written() -> None:
    def make(net: NetworkBuilder, enter: Case) -> list[Value]:
        value = enter(normal(3, 4))
        hidden = enter(np.where(np.arange(3)[:, None] == 1, -np.inf, normal(3, 4)))
        return [
            softmax.softmax(net, value, 0),
            softmax.softmax(net, value, 1, log=True),
            softmax.safe_softmax(net, hidden, 1),
            net.emit_like("softmax_grad", [value, value], value),
        ]

    held(make)


# --- products ---------------------------------------------------------------------------------------------------------


def test_products__of_matrices__are_written() -> None:
    def make(net: NetworkBuilder, enter: Case) -> list[Value]:
        layer = linear.linear(net, enter(normal(3, 4)), enter(normal(5, 4), weight=True), enter(normal(5), weight=True))
        return [layer, linear.matmul(net, enter(normal(2, 3, 4)), enter(normal(2, 4, 5)))]

    assert "Gemm" in operators(held(make))


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "strided": {"stride": (2, 1), "padding_lower": (1, 0), "padding_upper": (2, 1), "dilation": (1, 2), "groups": 2},
    "cut": {"stride": (1, 2), "padding_lower": (-1, 0), "padding_upper": (2, -2)},
    "dilated input": {"input_dilation": (2, 3), "padding_lower": (1, 0)},
    "no field": {"field": (), "kernel": ()},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution__and_its_transpose__are_written(name: str) -> None:
    given: dict[str, Any] = {
        "batch": 2,
        "in_channels": 4,
        "out_channels": 6,
        "field": (5, 6),
        "kernel": (3, 2),
    } | CONVOLUTIONS[name]
    params = ConvParams(**given)

    def make(net: NetworkBuilder, enter: Case) -> list[Value]:
        weight = enter(normal(*params.weights_shape))
        image, bias = enter(normal(*params.input_shape)), enter(normal(params.out_channels))
        made = [net.emit("convolution", [image, weight, bias], params.output_shape, f32, params=params)]
        if params.groups == 1:  # onnx's evaluator has no groups of these
            back = [enter(normal(*params.output_shape)), weight, enter(normal(params.in_channels))]
            made.append(net.emit("convolution_grad_data", back, params.input_shape, f32, params=params))
        return made

    held(make)


def test_transposed_convolution__with_output_padding__is_written() -> None:
    def make(net: NetworkBuilder, enter: Case) -> Value:
        operands = enter(normal(2, 4, 5, 6)), enter(normal(4, 3, 3, 3)), enter(normal(3))
        steps: dict[str, Any] = {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 2), "dilation": (1, 1)}
        return convolution.transposed_convolution(net, *operands, **steps)

    held(make)


@pytest.mark.parametrize("dim", [0, 2])
def test_resampling__becomes_a_product(dim: int) -> None:
    matrix = np.repeat(np.eye(4, dtype=np.float32), 2, 0)
    shape = tuple(8 if d == dim else 4 for d in range(3))
    held(lambda net, enter: net.emit("resample", [enter(normal(4, 4, 4))], shape, f32, dim=dim, matrix=Dense(matrix)))


# --- layers -----------------------------------------------------------------------------------------------------------

NORMS = {
    "LayerNormalization": ((6, 8), 1),
    "InstanceNormalization": ((2, 4, 5, 5), 4),
    "ReduceMean": ((2, 4, 5, 5), 2),
}


@pytest.mark.parametrize("operator", NORMS)
def test_norm__becomes_the_operator_of_its_groups(operator: str) -> None:
    shape, groups = NORMS[operator]

    def make(net: NetworkBuilder, enter: Case) -> Value:
        sides = enter(normal(shape[1])), enter(normal(shape[1]))
        return norm.norm(net, enter(normal(*shape) * 3 + 1), groups, 1e-5, *sides)[0]

    assert operator in operators(held(make))


def test_norm__of_a_batch_with_its_statistics__is_written() -> None:
    held(lambda net, enter: list(norm.norm(net, enter(normal(4, 3, 5)), norm.BATCH, 1e-5)))


@pytest.mark.parametrize("kind", ["max", "avg", "sum"])
def test_pooling__with_padding__is_written(kind: Any) -> None:
    params = PoolParams(
        kind,
        field=(7, 8),
        kernel=(3, 2),
        stride=(2, 1),
        padding_lower=(1, 0),
        padding_upper=(0, 1),
        channels=3,
        batch=2,
    )
    held(lambda net, enter: pooling.pool(net, enter(normal(2, 3, 7, 8)), params))


@pytest.mark.parametrize(("kind", "gates", "states", "biases"), [("lstm", 4, 2, 1), ("gru", 3, 1, 2), ("rnn", 1, 1, 1)])
def test_recurrent_layer__has_its_gates_in_onnx_order(kind: str, gates: int, states: int, biases: int) -> None:
    def make(net: NetworkBuilder, enter: Case) -> Sequence[Value]:
        operands = [enter(normal(5, 2, 3)), *(enter(normal(2, 4)) for _ in range(states))]
        operands += [enter(normal(gates * 4, 3)), enter(normal(gates * 4, 4))]
        operands += [enter(normal(gates * 4)) for _ in range(biases)]
        types = [((5, 2, 4), f32), ((2, 4), f32)][:states]
        attrs: dict[str, Any] = {"activation": "tanh"} if kind == "rnn" else {}
        return net.emit_many(kind, operands, types, keeps=False, **attrs)

    held(make)


# --- rows, order and scans --------------------------------------------------------------------------------------------


def test_look_up__of_numbers_that_are_no_rows__gives_zeros() -> None:
    def make(net: NetworkBuilder, enter: Case) -> list[Value]:
        table = enter(normal(7, 5), weight=True)
        groups = lookup.look_up_groups(net, enter(normal(2, 7, 5)), enter([[0, 6], [-1, 9]], i32))
        return [lookup.look_up(net, table, enter([[0, 6], [-1, 9]], i32)), groups]

    assert "Where" in operators(held(make))


def test_look_up__of_numbers_in_bounds__is_one_gather() -> None:
    def make(net: NetworkBuilder, enter: Case) -> Value:
        index = enter([[0, 6], [3, 2]], i32)
        net.bound(index, 7, "token")
        return lookup.look_up(net, enter(normal(7, 5), weight=True), index)

    assert {"Where", "Less"}.isdisjoint(operators(held(make)))


@pytest.mark.parametrize("operation", ["set", "add", "mul", "max", "min"])
def test_update_of_rows__leaves_out_numbers_outside(operation: str) -> None:
    index = [0, 3, -2, 9] if operation == "set" else [0, 3, 3, 9]
    held(
        lambda net, enter: lookup.update_rows(
            net, enter(normal(7, 3)), enter(normal(4, 3)), enter(index, i32), operation
        )
    )


def test_rows_and_windows__at_places_of_a_run__are_written() -> None:
    def make(net: NetworkBuilder, enter: Case) -> list[Value]:
        table, array = enter(normal(3, 4)), enter(normal(6, 7, 2))
        made = [rows.read_row(net, table, enter(2, i32)), rows.write_row(net, table, enter(normal(4)), enter(1, i32))]
        for starts in ([1, 2], [-2, 5]):
            places = enter(starts, i32)
            made.append(rows.read_window(net, array, places, (0, 1), (3, 4)))
            made.append(rows.write_window(net, array, enter(normal(3, 4, 2)), places, (0, 1)))
        return made

    held(make)


def test_order__of_equal_elements__stays() -> None:
    def make(net: NetworkBuilder, enter: Case) -> list[Value]:
        value, ties = enter(normal(3, 4)), enter([[1, 1, 0, 0, 2, 2]], i32)
        ordered = np.sort(normal(3, 4), 1)
        return [
            *sorting.sort(net, value, descending=True),
            *sorting.sort(net, ties),
            *sorting.top_k(net, value, 2, largest=False),
            search.search(net, enter(ordered), enter(normal(3, 5)), right=True),
        ]

    held(make)


@pytest.mark.parametrize("operation", ["add", "mul", "max", "min", "logaddexp"])
def test_scan__in_both_directions__is_written(operation: str) -> None:
    held(lambda net, enter: [scan.scan(net, enter(normal(3, 7)), dim, operation, reverse=bool(dim)) for dim in (0, 1)])


def test_recurrence__joins_ever_more_indices() -> None:
    held(lambda net, enter: scan.recurrence(net, enter(normal(3, 7)), enter(normal(3, 7)), 1))


# --- control flow -----------------------------------------------------------------------------------------------------


def test_loops__inside_each_other__see_names_around() -> None:
    def make(net: NetworkBuilder, enter: Case) -> Sequence[Value]:
        start, weight = enter(normal(3, 4)), enter(normal(4, 4), weight=True)

        def inner(block: Any, trip: Value, state: Value) -> list[Value]:
            product = linear.matmul(block, state, block.read(weight))
            return [elementwise.map_(block, apply("tanh", x + y), [product, elementwise.cast(block, trip, f32)])]

        return control.loop(net, 2, [start], lambda block, trip, state: control.loop(block, 3, [state], inner))

    held(make)


def test_while__and_branches__are_written() -> None:
    def make(net: NetworkBuilder, enter: Case) -> list[Value]:
        value = enter(normal(3, 4))
        grown = control.while_(
            net,
            [value, enter(0, i32)],
            lambda block, state, count: elementwise.map_(block, x < 4, [count], bool_),
            lambda block, trip, state, count: [
                elementwise.map_(block, x * 1.5, [state]),
                elementwise.map_(block, x + 1, [count], i32),
            ],
        )
        cases = [lambda block, k=k: [elementwise.map_(block, x + float(k), [block.read(value)])] for k in range(3)]
        same = control.cond(net, enter(False, bool_), cases[0], lambda block: [block.read(value)])
        return [*grown, *same, *control.switch(net, enter(1, i32), cases)]

    held(make)


# --- random numbers ---------------------------------------------------------------------------------------------------


def test_dropout__is_left_out() -> None:
    def make(net: NetworkBuilder, enter: Case) -> Value:
        return dropout.dropout(net, enter(normal(3, 4)), 0.5)

    net, case = finished(make)
    assert operators(written(net, case)) == ["Identity"]


def test_draws__have_their_distribution() -> None:
    net, case = finished(lambda net, enter: [draw.uniform(net, (4000,)), draw.integers(net, (4000,), 3, 6)])
    uniform, whole = ReferenceEvaluator(written(net, case)).run(None, {})
    assert abs(uniform.mean() - 0.5) < 0.05
    assert set(whole.tolist()) == {3, 4, 5}


# --- models -----------------------------------------------------------------------------------------------------------


def model_of_onnx() -> onnx.ModelProto:
    """Two layers over doubles, with a shape that is taken from wide integers."""
    weight = onnx.numpy_helper.from_array(RANDOM.normal(size=(4, 5)), "weight")
    nodes = [
        helper.make_node("MatMul", ["a", "weight"], ["h"]),
        helper.make_node("Softmax", ["h"], ["p"], axis=-1),
        helper.make_node("ArgMax", ["p"], ["best"], axis=-1),
    ]
    ends = [("a", TensorProto.DOUBLE, (3, 4)), ("p", TensorProto.DOUBLE, (3, 5)), ("best", TensorProto.INT64, (3, 1))]
    first, *last = (helper.make_tensor_value_info(*end) for end in ends)
    graph = helper.make_graph(nodes, "two layers", [first], last, [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_model_of_onnx__written_again__has_its_names_and_types(tmp_path: Any) -> None:
    proto, path = model_of_onnx(), tmp_path / "again.onnx"
    abele.onnx.export(abele.onnx.load(proto), path)
    again = onnx.load(path)
    onnx.checker.check_model(again, full_check=True)
    given = RANDOM.normal(size=(3, 4))
    for name, want, got in zip(
        ("p", "best"), *(ReferenceEvaluator(m).run(None, {"a": given}) for m in (proto, again)), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=name)
        assert got.dtype == want.dtype
    assert again.graph.initializer[0].name == "weight"


def test_model_of_pytorch__written__equals_pytorch() -> None:
    torch = pytest.importorskip("torch")
    from abele import poptorch

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(11, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Dropout(0.5)
    ).eval()
    tokens = torch.randint(0, 11, (2, 5))
    wrapped = poptorch.inferenceModel(model)
    wrapped.compile(tokens)
    proto = abele.onnx.export(wrapped)
    onnx.checker.check_model(proto, full_check=True)
    (end,) = proto.graph.input
    assert end.type.tensor_type.elem_type == TensorProto.INT64
    (got,) = ReferenceEvaluator(proto).run(None, {end.name: tokens.numpy()})
    np.testing.assert_allclose(got, model(tokens).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert {t.name for t in proto.graph.initializer} >= {"0.weight", "2.weight"}


def test_function_of_jax__written__equals_jax() -> None:
    jax = pytest.importorskip("jax")
    import abele.jax

    weight = normal(8, 8)

    def net(x: Any) -> Any:
        return jax.lax.scan(lambda state, row: (jax.numpy.tanh(state @ weight + row), state.sum()), x[0], x)[1]

    given, function = normal(6, 8), abele.jax.jit(net)
    function(given)
    (got,) = ReferenceEvaluator(abele.onnx.export(function)).run(None, {"x": given})
    np.testing.assert_allclose(got, net(given), rtol=1e-4, atol=1e-5)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_op_that_onnx_lacks__is_named_with_its_line() -> None:
    def make(net: NetworkBuilder, enter: Case) -> Any:
        with net.at(origin=DebugRecord("lu", "solver", "model.py", 7)):
            return list(lu(net, enter(normal(1, 3, 3))))

    net, case = finished(make)
    with pytest.raises(UnsupportedOpError, match="an op of kind 'lu'") as refused:
        written(net, case)
    assert "model.py:7" in str(refused.value)


def test_function_that_onnx_lacks__is_named() -> None:
    net, case = finished(lambda net, enter: elementwise.map_(net, apply("lgamma", x), [enter(normal(3))]))
    with pytest.raises(UnsupportedOpError, match="ONNX has no operator for 'lgamma'"):
        written(net, case)


def test_operation_of_a_later_opset__names_it() -> None:
    net, case = finished(
        lambda net, enter: elementwise.map_(net, apply("and", x, y), [enter([3], i32), enter([5], i32)], i32)
    )
    with pytest.raises(UnsupportedOpError, match="since opset 18, the model is written for 17"):
        written(net, case, opset=17)


def test_arguments_that_do_not_fit__are_refused() -> None:
    net, _ = finished(lambda net, enter: linear.linear(net, enter(normal(3, 4)), enter(normal(5, 4), weight=True)))
    with pytest.raises(UnknownArrayError, match="weight x1"):
        abele.onnx.export(net)
    with pytest.raises(SignatureError, match=r"float32\[5, 5\]"):
        abele.onnx.export(net, weights={"x1": normal(5, 5)})
    with pytest.raises(SignatureError, match="for the 1 inputs"):
        abele.onnx.export(net, weights={"x1": normal(5, 4)}, names=(["a", "b"], ["c"]))
    with pytest.raises(InvalidOptionError, match="opsets 17 to"):
        abele.onnx.export(net, opset=9)
    with pytest.raises(InvalidOptionError, match="a list holds no network"):
        abele.onnx.export([1, 2])


def test_names__given__are_those_of_the_model() -> None:
    net, _ = finished(lambda net, enter: elementwise.map_(net, x * 2.0, [enter(normal(3))]))
    proto = abele.onnx.export(net, names=(["image"], ["score"]), name="twice")
    assert (proto.graph.name, proto.graph.input[0].name, proto.graph.output[0].name) == ("twice", "image", "score")
