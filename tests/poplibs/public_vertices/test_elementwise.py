"""Element-wise library vertices placed by hand, against NumPy and SciPy-free references in 64 bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hand_kit import Hand, listed
from poplibs_kit import assert_close

from abele import Graph
from abele.compiler.cost import vertex_costs
from abele.errors import GraphConnectionError, TypeMismatchError, UnknownFieldError, UnknownVertexTypeError
from abele.numerics import as_element_type, bool_, f16, f32, i32
from abele.poplibs import popops, poputil
from abele.poplibs.popops.expressions.names import BinaryOpType, UnaryOpType

UNARY = "popops::expr::UnaryOpType::"
BINARY = "popops::expr::BinaryOpType::"
_erf = np.vectorize(math.erf)
FLOAT_UNARY: dict[str, Callable[[Any], Any]] = {
    "ABSOLUTE": np.abs,
    "ASIN": lambda x: np.arcsin(x / 4),
    "CBRT": np.cbrt,
    "CEIL": np.ceil,
    "COS": np.cos,
    "ERF": _erf,
    "EXPONENT": np.exp,
    "EXPONENT2": np.exp2,
    "EXPONENT_MINUS_ONE": np.expm1,
    "FLOOR": np.floor,
    "GELU_ERF": lambda x: x * 0.5 * (1 + _erf(x / math.sqrt(2))),
    "INVERSE": lambda x: 1 / x,
    "IS_FINITE": np.isfinite,
    "IS_INF": np.isinf,
    "IS_NAN": np.isnan,
    "LOGARITHM": lambda x: np.log(np.abs(x)),
    "LOGARITHM_ONE_PLUS": lambda x: np.log1p(np.abs(x)),
    "NEARBY_INT": np.rint,
    "NEGATE": np.negative,
    "RELU": lambda x: np.maximum(x, 0),
    "ROUND": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "RSQRT": lambda x: 1 / np.sqrt(np.abs(x)),
    "SIGMOID": lambda x: 1 / (1 + np.exp(-x)),
    "SIGNUM": np.sign,
    "SIN": np.sin,
    "SQRT": lambda x: np.sqrt(np.abs(x)),
    "SQUARE": np.square,
    "TAN": np.tan,
    "TANH": np.tanh,
    "TRUNC": np.trunc,
}
POSITIVE = {"LOGARITHM", "LOGARITHM_ONE_PLUS", "RSQRT", "SQRT"}
FLOAT_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "ADD": np.add,
    "ATAN2": np.arctan2,
    "DIVIDE": np.divide,
    "EQUAL": np.equal,
    "GREATER_THAN": np.greater,
    "GREATER_THAN_EQUAL": np.greater_equal,
    "LESS_THAN": np.less,
    "LESS_THAN_EQUAL": np.less_equal,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "MULTIPLY": np.multiply,
    "NOT_EQUAL": np.not_equal,
    "POWER": lambda x, y: np.power(np.abs(x), y),
    "REMAINDER": np.fmod,
    "SUBTRACT": np.subtract,
}
INTEGER_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "BITWISE_AND": np.bitwise_and,
    "BITWISE_OR": np.bitwise_or,
    "BITWISE_XOR": np.bitwise_xor,
    "BITWISE_XNOR": lambda x, y: ~(x ^ y),
    "SHIFT_LEFT": lambda x, y: x << (y & 7),
    "SHIFT_RIGHT_SIGN_EXTEND": lambda x, y: x >> (y & 7),
    "ADD": np.add,
    "REMAINDER": np.fmod,
}


def _values(op: str) -> Any:
    x = np.linspace(-3.0, 3.0, 37) + 0.013
    return np.abs(x) if op in POSITIVE else x / 4 if op == "ASIN" else x


NATIVE = {"ABSOLUTE", "EXPONENT", "IS_NAN", "ROUND", "SQRT", "ADD", "ATAN2", "LESS_THAN", "MAXIMUM"}
"""Operations whose native code is made here; the others are run in debug mode, which needs none."""


@pytest.mark.parametrize("debug", [False, True])
def test_unary_1d__every_operation_on_floats__as_numpy(debug: bool) -> None:
    hand = Hand()
    wanted = {}
    for op, reference in FLOAT_UNARY.items():
        if (op in NATIVE) == debug:
            continue
        x = hand.put(_values(op), "f32")
        out = hand.room(37, "bool" if op.startswith("IS_") else "f32")
        hand.place(f"popops::UnaryOp1D<{UNARY}{op},float>", in_=x, out=out)
        inside = 4 * hand.data[x].astype(np.float64) if op == "ASIN" else hand.data[x].astype(np.float64)
        wanted[out] = reference(inside)
    got = hand.run(debug=debug)
    for out, value in wanted.items():
        assert_close(got[out], value, f32, 3.0)


@pytest.mark.parametrize("in_place", [False, True])
def test_unary_2d__of_halves__rows_of_different_length(in_place: bool) -> None:
    hand = Hand()
    wanted = {}
    for op in ("EXPONENT", "NEGATE", "TANH", "SQRT"):
        values = [np.abs(_values(op)[:n]) for n in (5, 1, 16)]
        x = [hand.put(v, "f16") for v in values]
        if in_place:
            hand.place(f"popops::UnaryOp2DInPlace<{UNARY}{op},half>", inOut=x)
            outs = x
        else:
            outs = [hand.room(len(v), "f16") for v in values]
            hand.place(f"popops::UnaryOp2D<{UNARY}{op},half>", in_=x, out=outs)
        wanted |= {
            o: FLOAT_UNARY[op](v.astype(np.float16).astype(np.float64)) for o, v in zip(outs, values, strict=True)
        }
    got = hand.run()
    for out, value in wanted.items():
        assert_close(got[out], value, f16)


@pytest.mark.parametrize("debug", [False, True])
def test_binary_1d__every_operation_on_floats__as_numpy(debug: bool) -> None:
    hand = Hand()
    x, y = np.linspace(-3, 3, 40), np.linspace(2.0, -1.9, 40)
    y[7] = x[7]
    a, b = hand.put(x, "f32"), hand.put(y, "f32")
    wide = hand.data[a].astype(np.float64), hand.data[b].astype(np.float64)
    wanted = {}
    for op, reference in FLOAT_BINARY.items():
        if (op in NATIVE) == debug:
            continue
        value = reference(*wide)
        out = hand.room(40, "bool" if value.dtype == bool else "f32")
        first = hand.put(np.abs(x), "f32") if op == "POWER" else a
        hand.place(f"popops::BinaryOp1D<{BINARY}{op},float>", in1=first, in2=b, out=out)
        wanted[out] = value
    got = hand.run(debug=debug)
    for out, value in wanted.items():
        assert_close(got[out], value, f32, 3.0)


def test_binary__whole_numbers_and_truth_values__as_numpy() -> None:
    hand = Hand()
    x, y = np.arange(-9, 9, dtype=np.int32) * 37, np.arange(1, 19, dtype=np.int32)
    wanted = {}
    for op, reference in INTEGER_BINARY.items():
        second = y & 7 if op.startswith("SHIFT") else y
        out = hand.room((2, 9), "i32")
        first = hand.put(x.reshape(2, 9), "i32")
        hand.place(
            f"popops::BinaryOp2D<{BINARY}{op},int>",
            in1=listed(first),
            in2=listed(hand.put(second.reshape(2, 9), "i32")),
            out=listed(out),
        )
        wanted[out] = reference(x, second).reshape(2, 9)
    p, q = hand.put([True, True, False, False]), hand.put([True, False, True, False])
    hand.place(f"popops::BinaryOp1DInPlace<{BINARY}LOGICAL_AND,bool>", in1Out=p, in2=q)
    wanted[p] = np.array([True, False, False, False])
    got = hand.run()
    for out, value in wanted.items():
        np.testing.assert_array_equal(got[out], value)


def test_broadcast_scalar__one_and_one_for_each_row() -> None:
    hand = Hand()
    data = np.arange(12.0).reshape(2, 6)
    half, scalar = hand.put(data, "f16"), hand.put(0.5, "f16")
    one, two, three = hand.room(6, "f16"), hand.room((2, 6), "f16"), hand.room((2, 6), "f16")
    name = f"<{BINARY}MULTIPLY,half>"
    hand.place(f"popops::BroadcastScalar1D{name}", data=half[1], B=scalar, out=one)
    hand.place(f"popops::BroadcastScalar2DData{name}", data=listed(half), B=scalar, out=listed(two))
    scales = hand.put([2.0, 3.0], "f16")
    hand.place(f"popops::BroadcastScalar2D{name}", data=listed(half), B=listed(scales), out=listed(three))
    changed = hand.put(data, "f32")
    hand.place(
        f"popops::BroadcastScalar2DInPlace<{BINARY}SUBTRACT,float>",
        data=listed(changed),
        B=listed(hand.put([1.0, 2.0], "f32")),
    )
    both = hand.room(6, "f16")
    hand.place(
        f"popops::BroadcastScalar2Types1D<{BINARY}ADD,float,half>",
        data=hand.put(data[0], "f32"),
        B=hand.put(1.5, "f32"),
        out=both,
    )
    got = hand.run()
    np.testing.assert_array_equal(got[one], data[1] * 0.5)
    np.testing.assert_array_equal(got[two], data * 0.5)
    np.testing.assert_array_equal(got[three], data * [[2], [3]])
    np.testing.assert_array_equal(got[changed], data - [[1], [2]])
    np.testing.assert_array_equal(got[both], data[0] + 1.5)


@pytest.mark.parametrize("which", ["Row1D", "Column1D", "RowSupervisor", "ColumnInPlaceSupervisor", "Row1DInPlace"])
def test_broadcast_vector_outer__rows_and_columns(which: str) -> None:
    hand = Hand()
    data = np.arange(35.0).reshape(7, 5)
    x, b = hand.put(data, "f32"), hand.put(np.arange(7.0), "f32")
    in_place = "InPlace" in which
    out = x if in_place else hand.room((7, 5), "f32")
    more = {} if in_place else {"out": out.flatten()}
    name = f"popops::BroadcastVectorOuterBy{which}<{BINARY}ADD,float,true>"
    hand.place(name, data=x.flatten(), B=b, columns=5, rows=7, **more)
    np.testing.assert_array_equal(hand.run()[out], data + np.arange(7.0)[:, None])


def test_broadcast_vector_inner__one_vector_and_rows() -> None:
    hand = Hand()
    data, b = np.arange(84.0).reshape(14, 6), np.arange(6.0)
    x, out = hand.put(data, "f16"), hand.room((14, 6), "f16")
    packed = 14 // 6 << 3 | 14 % 6
    hand.place(
        f"popops::BroadcastVectorInner1D<{BINARY}ADD,half>",
        B=hand.put(b, "f16"),
        data=x.flatten(),
        out=out.flatten(),
        dataBlockCountPacked=packed,
    )
    y = hand.put(data, "f32")
    hand.place(
        f"popops::BroadcastVectorInner2DInPlace<{BINARY}MULTIPLY,float>",
        n=2,
        B=[hand.put(b, "f32"), hand.put(b[:3], "f32")],
        BLen=[6, 3],
        data=[y[:2].flatten(), y[2:].flatten()],
        dataBlockCount=[2, 24],
    )
    got = hand.run()
    np.testing.assert_array_equal(got[out], data + b)
    np.testing.assert_array_equal(
        got[y], np.concatenate([data[:2] * b, (data[2:].reshape(24, 3) * b[:3]).reshape(12, 6)])
    )


def test_debug_mode__a_field_that_python_reserves__runs() -> None:
    hand = Hand()
    x, out = hand.put([1.0, -2.0], "f32"), hand.room(2, "f32")
    hand.place(f"popops::UnaryOp1D<{UNARY}ABSOLUTE,float>", in_=x, out=out)
    np.testing.assert_array_equal(hand.run(debug=True)[out], [1.0, 2.0])


@pytest.mark.parametrize(("size", "dtype"), [(7, "f32"), (1000, "f32"), (999, "f16")])
def test_cost__same_data__that_of_the_library_function(size: int, dtype: str) -> None:
    """Sums and exponentials of the libraries are made of the same vertices, so tiles take as long."""
    by_hand, called = Hand(1), Hand(1)
    kind = as_element_type(dtype)
    name = kind.poplar_name
    a, b = (by_hand.put(np.ones(size), dtype) for _ in range(2))
    hand_add = by_hand.place(f"popops::BinaryOp1D<{BINARY}ADD,{name}>", in1=a, in2=b, out=by_hand.room(size, dtype))
    hand_exp = by_hand.place(f"popops::UnaryOp1D<{UNARY}EXPONENT,{name}>", in_=a, out=by_hand.room(size, dtype))
    hand_scale = by_hand.place(
        f"popops::BroadcastScalar1D<{BINARY}MULTIPLY,{name}>",
        data=a,
        B=by_hand.put(2.0, dtype),
        out=by_hand.room(size, dtype),
    )
    x, y, s = called.put(np.ones(size), dtype), called.put(np.ones(size), dtype), called.put(2.0, dtype)
    g = called.graph
    popops.add(g, x, y, called.prog)
    popops.exp(g, x, called.prog)
    popops.mul(g, x, s, called.prog)
    groups = [group for cs in g.compute_sets for group in cs.groups]
    costs = [int(vertex_costs(group, g.system.ipu).amount[0]) for group in groups]
    assert [by_hand.cycles(v) for v in (hand_add, hand_exp, hand_scale)] == costs


def test_names__of_enumerations__as_poplar_writes_them() -> None:
    assert poputil.templateVertex("popops::UnaryOp1D", UnaryOpType.EXPONENT, f16) == (
        "popops::UnaryOp1D<popops::expr::UnaryOpType::EXPONENT,half>"
    )
    assert poputil.templateVertex("popops::BinaryOp2D", BinaryOpType.ADD, i32).endswith("BinaryOpType::ADD,int>")
    assert poputil.templateVertex("popops::UnaryOp1D", popops.expr.UnaryOpType.TANH, f32) == (
        "popops::UnaryOp1D<popops::expr::UnaryOpType::TANH,float>"
    )
    update = poputil.templateVertex("popops::MultiUpdateOp", f16, False, popops.Operation.MAX)
    assert update == "popops::MultiUpdateOp<half,false,popops::Operation::MAX>"
    hand = Hand()
    assert hand.graph.hasCodelet(update)
    assert hand.graph.hasCodelet("popops::BinaryOp1D< BinaryOpType::ADD, unsigned int >")
    assert not hand.graph.hasCodelet("popops::BinaryOp1D<BinaryOpType::ADD>")
    assert not hand.graph.hasCodelet(f"popops::BinaryOp1D<popnn::BinaryOpType::ADD,{bool_.poplar_name}>")


@pytest.mark.parametrize("spelling", ["long long", "longlong", "signed long long", "std::int64_t", "long long int"])
def test_names__of_types__in_every_spelling(spelling: str) -> None:
    assert Hand().graph.codelet(f"popops::Fill< {spelling} >").fields[0].type.name == "i64"


def test_unknown_names__say_what_is_wrong_and_what_there_is() -> None:
    graph = Hand().graph
    cs = graph.addComputeSet("cs")

    def error(name: str) -> str:
        with pytest.raises(UnknownVertexTypeError) as caught:
            graph.addVertex(cs, name)
        return str(caught.value)

    assert "its argument type is 'flot'" in error(f"popops::UnaryOp1D<{UNARY}EXPONENT,flot>")
    assert "float, half" in error(f"popops::UnaryOp1D<{UNARY}EXPONENT,flot>")
    assert "popops::UnaryOp1D" in error("popops::UnaryOp1d<X>")
    assert "takes 2 template arguments, not 1" in error("popops::UnaryOp1D<float>")
    assert "is_nan does not take int" in error(f"popops::UnaryOp1D<{UNARY}IS_NAN,int>")
    assert "bitwise_xor does not take half" in error(f"popops::BinaryOp1D<{BINARY}BITWISE_XOR,half>")
    assert "eq of float gives bool, which does not overwrite its operand" in error(
        f"popops::BinaryOp1DInPlace<{BINARY}EQUAL,float>"
    )
    assert "its argument UnaryOpType is 'EXP'" in error("popops::UnaryOp1D<EXP,float>")


@pytest.mark.parametrize(
    "name",
    [
        "popops::",
        "popops::Fill",
        "popops::Fill<",
        "popops::Fill<>",
        "popops::Fill<float",
        "popops::Fill<float,>",
        "popops::Fill<<float>>",
        "popops::Fill<float>x",
        "popops::Fill<float);import os;(>",
        "popops::Reduce<popops::ReduceAdd,float,float,false,\u00b2>",
        "poplin::ConvPartial1x1Out<half,half,true,false," + "9" * 5000 + ">",
        "popops::BinaryOp1D<" + "<" * 2000 + "," + ">" * 2000 + ">",
        "popops::\x1b]0;title\x07<float>",
    ],
)
def test_hostile_names__are_unknown_vertices(name: str) -> None:
    graph = Hand().graph
    assert not graph.hasCodelet(name)
    with pytest.raises(UnknownVertexTypeError):
        graph.addVertex(graph.addComputeSet("cs"), name)


def test_virtual_graph_and_replicas__know_the_vertices_too() -> None:
    graph = Graph(Hand(8).graph.system)
    part = graph.virtual(2, 4)
    popops.addCodelets(part)
    name = "popops::Fill<float>"
    assert graph.hasCodelet(name)
    out = part.addVariable("float", [4], "out")
    part.setTileMapping(out, 1)
    vertex = part.addVertex(part.addComputeSet("cs"), name, {"out": out})
    part.setInitialValue(vertex["in"], 2.0)
    part.setTileMapping(vertex, 1)
    assert graph.compute_sets[0].groups[0].tile.tolist() == [3]
    assert graph.getMaxVertexFieldValue("popops::ScaledAddSupervisor<float,float,float,true,false>", "size") == 65535


def test_without_add_codelets__the_error_says_to_call_it() -> None:
    graph = Graph(Hand().graph.system)
    with pytest.raises(UnknownVertexTypeError, match=r"popops.addCodelets\(graph\) makes the vertices of popops known"):
        graph.addVertex(graph.addComputeSet("cs"), f"popops::UnaryOp1D<{UNARY}EXPONENT,float>")
    popops.add_codelets(graph)
    popops.addCodelets(graph)
    graph.addVertex(graph.addComputeSet("cs"), f"popops::UnaryOp1D<{UNARY}EXPONENT,float>")


def test_misuse__wrong_field_type_and_size__typed_errors() -> None:
    hand = Hand()
    x, out = hand.put([1.0, 2.0], "f32"), hand.room(2, "f32")
    name = f"popops::BroadcastScalar1D<{BINARY}ADD,float>"
    vertex = hand.graph.addVertex(hand.graph.addComputeSet("a"), name)
    with pytest.raises(UnknownFieldError, match="has no field 'inn'"):
        hand.graph.connect(vertex["inn"], x)
    for wrong, kind, text in ((hand.put([1, 2], "i32"), TypeMismatchError, "data is f32"),):
        with pytest.raises(kind, match=text):
            hand.graph.addComputeSet("b").vertices(name, tile=[0], data=[wrong], B=[x[0]], out=[out])
    with pytest.raises(GraphConnectionError, match="it takes one element, not 2"):
        hand.graph.addComputeSet("c").vertices(name, tile=[0], data=[x], B=[x], out=[out])
