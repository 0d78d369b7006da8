"""An operation takes one entry of the table: everything else follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.codelet import Input, Output, Vector, Vertex, codelet, compile_codelet, interpret, macro
from abele.codelet.functions import VertexFunction
from abele.compiler import Executable, compile_program
from abele.errors import InvalidOptionError, UnsupportedOpError
from abele.expr import (
    Code,
    Expr,
    InVertex,
    Operation,
    Slots,
    Spelling,
    apply,
    define,
    defined,
    expanded,
    find_popops,
    load,
    loop_cost,
)
from abele.expr.derivative import arg, partial
from abele.expr.evaluate import evaluate
from abele.expr.operation import FLOAT
from abele.graph import Graph, Sequence
from abele.kernels import evaluate as evaluate_kernel
from abele.kernels.nest import ir
from abele.llvm import ir as ll
from abele.llvm.emit import constant, intrinsic
from abele.machine import systems
from abele.numerics import f16, f32
from abele.poplibs import popops
from abele.poplibs.popops.expr import Op, _1, _2, parts
from abele.runtime import Engine

X = np.linspace(-3, 3, 60, dtype=np.float32)


def softsign(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.abs(x))


def _code(b: ll.IRBuilder, x: ll.Value) -> ll.Value:
    return b.fdiv(x, b.fadd(constant(x.type, 1.0), intrinsic(b, "llvm.fabs", x)))


COMPOSITE = Operation(
    "softsign",
    1,
    FLOAT,
    softsign,
    expansion=lambda types, x: x / (1.0 + apply("abs", x)),
    cost=loop_cost((8, 2), (8, 4)),
    spelling=Spelling("softsign", "SOFTSIGN", "Softsign"),
)
PRIMITIVE = Operation(
    "softsign",
    1,
    FLOAT,
    softsign,
    slopes=(lambda x: apply("inv", apply("square", 1.0 + apply("abs", x))),),
    code=Code(_code),
    in_vertex=InVertex("function", "softsign"),
    slots=Slots(aux=7, source="§1.3 G: a division and a sum"),
    cost=loop_cost((8, 2), (8, 4)),
    spelling=Spelling("softsign", "SOFTSIGN", "Softsign"),
)


@pytest.fixture(params=[COMPOSITE, PRIMITIVE], ids=["composite", "primitive"])
def operation(request: pytest.FixtureRequest) -> Iterator[Operation]:
    with defined(request.param) as made:
        yield made


def _program() -> tuple[Graph, Sequence, object, object]:
    graph, prog = Graph(systems.get("bow").with_ipus(1)), Sequence()
    x = graph.variable(f32, (60,), name="x", map=0)
    return graph, prog, x, popops.map(graph, Op("softsign", _1) * 2.0, [x], prog, "softsign")


@pytest.mark.parametrize(("mode", "debug"), [("tiles", False), ("native", False), ("tiles", True)])
def test_map__new_operation__runs_as_vertex_kernel_and_plain_python(
    operation: Operation, mode: str, debug: bool
) -> None:
    graph, prog, x, y = _program()
    with Engine(compile_program(graph, prog), mode=mode, debug=debug, keep=[x, y]) as engine:
        engine[x] = X
        engine.run()
        np.testing.assert_allclose(engine[y], 2 * softsign(X), rtol=1e-6)


def test_derivative__new_operation__is_that_of_its_entry_or_of_its_parts(operation: Operation) -> None:
    slope = partial(apply("softsign", arg(0)), 0)
    x = X.astype(np.float64)
    x = x[np.abs(x) > 0.05]
    h = 1e-6
    expected = (softsign(x + h) - softsign(x - h)) / (2 * h)
    np.testing.assert_allclose(evaluate(slope, [x]), expected, rtol=1e-6)


def test_kernel__new_operation__means_what_the_entry_says(operation: Operation) -> None:
    body = ir.store(1, ("i",), apply("softsign", load(0, "i")) + 1.0)
    kernel = ir.HostKernel(((60,), (60,)), (f32, f32), 1, 1, (ir.nest({"i": 60}, body),))
    np.testing.assert_allclose(evaluate_kernel(kernel, [X])[0], softsign(X) + 1, rtol=1e-6)
    assert ("softsign" in str(kernel)) == operation.is_primitive


def test_saved_file__new_operation__runs_after_loading(operation: Operation, tmp_path: Path) -> None:
    graph, prog, x, y = _program()
    graph.expose(x, "x")
    graph.expose(y, "y")
    compile_program(graph, prog).save(tmp_path / "softsign.abele")
    loaded = Executable.load(tmp_path / "softsign.abele")
    with Engine(loaded, mode="tiles") as engine:
        engine["x"] = X
        engine.run()
        np.testing.assert_allclose(engine["y"], 2 * softsign(X), rtol=1e-6)


def test_codelet__new_function__is_compiled_interpreted_and_counted() -> None:
    with defined(PRIMITIVE):
        softsign_ = VertexFunction("softsign")

        @codelet
        class Squash(Vertex):
            x: Input[Vector[f32]]
            y: Output[Vector[f32]]

            def compute(self):
                for i in range(len(self.x)):
                    self.y[i] = softsign_(self.x[i])

        y = np.zeros_like(X)
        interpret(Squash.codelet, {"x": X, "y": y})
        np.testing.assert_allclose(y, softsign(X), rtol=1e-6)
        assert compile_codelet(Squash.codelet).run
        loop = max(compile_codelet(Squash.codelet).counting.charges.iteration.values())
        assert loop >= 7


def test_code__same_name_other_code__is_not_taken_from_the_cache() -> None:
    def twice(b: ll.IRBuilder, x: ll.Value) -> ll.Value:
        return b.fadd(x, x)

    results = []
    for emit in (_code, twice):
        entry = replace(PRIMITIVE, code=Code(emit))
        with defined(entry):
            graph, prog, x, y = _program()
            with Engine(compile_program(graph, prog), mode="tiles", keep=[x, y]) as engine:
                engine[x] = X
                engine.run()
                results.append(np.array(engine[y]))
    np.testing.assert_allclose(results[0], 2 * softsign(X), rtol=1e-6)
    np.testing.assert_allclose(results[1], 4 * X, rtol=1e-6)


def test_table__after_the_block__knows_the_operation_no_more() -> None:
    with defined(COMPOSITE), pytest.raises(InvalidOptionError, match="'softsign' already"):
        define(COMPOSITE)
    with pytest.raises(InvalidOptionError, match="no element-wise operation 'softsign'"):
        find_popops("softsign")


def test_define__neither_code_nor_expansion__is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="has no code\n  try      give it LLVM code, or an expansion"):
        define(Operation("nothing", 1, FLOAT, np.abs))


def test_map__operation_without_cost__says_where_to_give_it() -> None:
    def compiled() -> None:
        graph, prog, _, _ = _program()
        compile_program(graph, prog)

    with (
        defined(replace(COMPOSITE, cost=None)),
        pytest.raises(UnsupportedOpError, match="'softsign' has no cost in library vertices"),
    ):
        compiled()


@given(st.integers(1, 40))
def test_expanded__shared_parts__stay_shared(depth: int) -> None:
    value: Expr = load(0)
    for _ in range(depth):
        value = apply("expm1", value) * value
    assert len(parts(expanded(value, (f16,)))) <= 12 * depth + 1


def _smooth(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.sqrt(x * x + y * y)


def _smooth_code(b: ll.IRBuilder, x: ll.Value, y: ll.Value) -> ll.Value:
    return intrinsic(b, "llvm.sqrt", b.fadd(b.fmul(x, x), b.fmul(y, y)))


LENGTH = Operation(
    "length_of",
    2,
    FLOAT,
    _smooth,
    slopes=(
        lambda x, y: x / apply("length_of", x, y),
        lambda x, y: y / apply("length_of", x, y),
    ),
    code=Code(_smooth_code),
    in_vertex=InVertex("function", "length_of"),
    slots=Slots(aux=8, source="§1.3 G: two products, a sum and a root"),
    cost=loop_cost((8, 2), (8, 4)),
    spelling=Spelling("length_of", "LENGTH_OF", "LengthOf"),
)
Y = np.linspace(0.5, 2, 60, dtype=np.float32)


@pytest.mark.parametrize(("mode", "debug"), [("tiles", False), ("native", False), ("tiles", True)])
def test_map_and_reduce__new_binary_operation__run_as_vertices_kernels_and_plain_python(mode: str, debug: bool) -> None:
    with defined(LENGTH):
        graph, prog = Graph(systems.get("bow").with_ipus(1)), Sequence()
        x, y = (graph.variable(f32, (60,), name=n, map=0) for n in "xy")
        mapped = popops.map(graph, Op("length_of", _1, _2) + 1.0, [x, y], prog, "lengths")
        total = popops.reduce(graph, mapped, (0,), "ADD", prog, name="total")
        with Engine(compile_program(graph, prog), mode=mode, debug=debug, keep=[x, y, total]) as engine:
            engine[x], engine[y] = X, Y
            engine.run()
            np.testing.assert_allclose(engine[total], (_smooth(X, Y) + 1).sum(), rtol=1e-5)


@pytest.mark.parametrize("operand", [0, 1])
def test_derivative__new_binary_operation__is_that_of_its_entry(operand: int) -> None:
    with defined(LENGTH):
        slope = partial(apply("length_of", arg(0), arg(1)), operand)
        at, h = [X.astype(np.float64), Y.astype(np.float64)], 1e-6
        above, below = ([v + d * (n == operand) for n, v in enumerate(at)] for d in (h, -h))
        expected = (_smooth(*above) - _smooth(*below)) / (2 * h)
        np.testing.assert_allclose(evaluate(slope, at), expected, rtol=1e-6, atol=1e-8)


def test_codelet_and_macro__new_binary_operation__are_compiled_and_interpreted() -> None:
    with defined(LENGTH):
        length_of = VertexFunction("length_of")

        @macro
        def longer(total, x, y):  # type: ignore[no-untyped-def]
            return max(total, length_of(x, y))

        @codelet
        class Longest(Vertex):
            x: Input[Vector[f32]]
            y: Input[Vector[f32]]
            out: Output[f32]

            def compute(self):  # type: ignore[no-untyped-def]
                total = f32(0.0)
                for i in range(len(self.x)):
                    total = longer(total, self.x[i], self.y[i])
                self.out = total

        out = np.zeros(1, np.float32)
        interpret(Longest.codelet, {"x": X, "y": Y, "out": out})
        np.testing.assert_allclose(out[0], _smooth(X, Y).max(), rtol=1e-6)
        assert compile_codelet(Longest.codelet).slots is not None
