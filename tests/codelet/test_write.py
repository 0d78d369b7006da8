"""Codelets that Python code writes: what their text says is what their tree does."""

from __future__ import annotations

import linecache
import math
from typing import Any

import numpy as np
import pytest

import abele.codelet as language
from abele.codelet import CodeletDef, Input, Output, Vector, interpret
from abele.codelet.statements import read_compute
from abele.codelet.write import CodeWriter
from abele.codelet.written import WrittenCode, written_codelet
from abele.compiler.store.records import CODELET_TREE, encode
from abele.errors import CodeletError
from abele.expr import POPOPS
from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.numerics import bool_, f32, i32, types
from abele.poplibs import popops
from abele.poplibs.popops.expr import Op, PlaceHolder, _1, _2, element_index, select


def vertex_of(graph: Graph) -> CodeletDef:
    return graph.compute_sets[-1].groups[0].codelet


def read_again(definition: CodeletDef) -> Any:
    """The tree that reading the text gives."""
    lines = linecache.getlines(definition.file)
    names = {n: getattr(language, n) for n in language.__all__} | {t.name: t for t in types.ALL}
    scope: dict[str, Any] = {"INF": math.inf, "NAN": math.nan, "bool_": bool_, "codelet": language.codelet} | names
    exec(compile("".join(lines), definition.file, "exec", dont_inherit=True), scope)
    return read_compute(scope[definition.name].codelet)


def assert_same(definition: CodeletDef) -> None:
    assert isinstance(definition.source, WrittenCode)
    told, meant = (encode(t, CODELET_TREE, str) for t in (read_again(definition), definition.source.tree))
    assert told == meant


KINDS = {"f16": "float", "i32": "int"}
CASES = [(n, t) for n, op in POPOPS.items() for t, kind in KINDS.items() if kind in (op.kinds or {"float"})]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_text__every_operation__reads_as_the_tree(name: str, dtype: str) -> None:
    graph, prog = Graph(systems.get("bow")), Sequence()
    arity = POPOPS[name].arity
    kinds = [dtype] * arity if name != "select" else [dtype, dtype, "bool"]
    tensors = [graph.variable(t, (4, 6), name=f"v{n}", map=0) for n, t in enumerate(kinds)]
    popops.map(graph, Op(name, *(PlaceHolder(n + 1) for n in range(arity))), tensors, prog)
    assert_same(vertex_of(graph))


@pytest.mark.parametrize(
    "expression",
    [
        select(_1 * 2.0, _2 - math.inf, _1 < _2),
        _1 * math.nan,
        (element_index() % 7 == 3) & (_1 > -math.inf),
        Op("exp", Op("exp", _1)) / Op("exp", _1) + _2 * _2,
    ],
)
@pytest.mark.parametrize("shape", [(4, 6), (1, 6), (4, 1), (1, 1)])
def test_text__broadcast_operands__reads_as_the_tree(expression: Any, shape: tuple[int, int]) -> None:
    graph, prog = Graph(systems.get("bow")), Sequence()
    one = graph.variable(f32, (4, 6), name="one", map=0)
    popops.map(graph, expression, [one, graph.variable(f32, shape, name="other", map=0)], prog)
    assert_same(vertex_of(graph))


def test_writer__loops_and_choices__run_as_plain_python() -> None:
    code = CodeWriter("Vertex", {"x": Input[Vector[f32]], "y": Output[Vector[f32]], "limit": f32})
    with code.loop("i", code.number(0), code.length("x")) as i:
        code.let("v", code.element("x", i))
        over = code.local("v").compare(">", code.scalar("limit"))
        code.store("y", code.choice(over, code.scalar("limit"), code.local("v").negative()), code.local("i"))
    built = written_codelet("Limited", code, None)
    x, y = np.float32([1, 2, 3]), np.zeros(3, np.float32)
    interpret(built.codelet, {"x": x, "y": y, "limit": 2.0})
    np.testing.assert_array_equal(y, [-1, -2, 2])
    assert_same(built.codelet)
    assert written_codelet("Limited", code, None) is built


def test_writer__value_that_does_not_fit__is_refused() -> None:
    code = CodeWriter("Vertex", {"n": Output[i32], "x": Input[f32]})
    with pytest.raises(CodeletError, match="field n is i32, the value written to it is f32"):
        code.store("n", code.scalar("x"))


@pytest.mark.parametrize("mode", ["tiles", "native"])
def test_map__nan_as_a_constant__is_nan_everywhere(mode: str) -> None:
    from abele.compiler import compile_program
    from abele.runtime import Engine

    graph, prog = Graph(systems.get("bow")), Sequence()
    x = graph.variable(f32, (3,), name="x", map=0)
    y = popops.map(graph, _1 * math.nan, [x], prog)
    with Engine(compile_program(graph, prog), mode=mode, keep=[x, y]) as engine:
        engine[x] = np.float32([-1, 0, 2])
        engine.run()
        assert np.isnan(engine[y]).all()
