from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from abele.codelet import InOut, Input, MultiVertex, Output, Vector, Vertex, codelet, compile_codelet, interpret
from abele.codelet.tables import build_tables
from abele.errors import CodeletAccessError, CodeletError
from abele.numerics import f16, f32, i32

TEXT = "words"
OBJECT = object()


def recursive(n):
    return recursive(n - 1)


def sometimes(x):  # noqa: RET503
    if x > 0:
        return 1.0


CASES: list[tuple[str, str, str]] = [
    ("self.x[0] = 1.0", "field x is an Input and cannot be written", "InOut or Output"),
    ("self.y[0] = unknown", "name 'unknown' is not defined", "set it before"),
    ("self.y[0] = tahn(1.0)", "name 'tahn' is not defined", "did you mean tanh?"),
    ("self.y[0] = self.z[0]", "has no field 'z'", "its fields are x, y, n"),
    ("self.y = 1.0", "y is set as a whole", "one element at a time"),
    ("self.y[0] = self.x", "vector field x is used as a value", "index it: x[i]"),
    ("self.y[-1] = 1.0", "negative index -1 into y", "len(…) - 1"),
    ("self.y[0:2] = 1.0", "a slice or a tuple as an index", "one element at a time"),
    ("self.y[0.5] = 1.0", "a f32 is used as an index", "i32(…)"),
    ("self.n = self.x[0]", "field n is i32, the value is f32", "convert it: i32(…)"),
    ("v = 0\nv += self.x[0]", "v, set at line", "i64(…)"),
    ("v = f16(1.0)\nv = self.x[0]", "v, set at line", "f16(…)"),
    ("if self.n > 0:\n    v = 1\nself.n = v", "v may have no value here", "before the branch"),
    ("for v in self.x:\n    pass", "a loop over something that is no range", "range(len(self.x))"),
    ("for i in range(0, 9, self.n):\n    pass", "a range step that is no constant", "while loop"),
    ("self.y[0] = sum([1, 2])", "which the vertex language does not know", "plain functions"),
    ("self.y[0] = [1, 2][0]", "List is outside the vertex language", "local variables"),
    ("v = [i for i in range(3)]", "ListComp is outside the vertex language", "for loop"),
    ("import os", "statement Import is outside the vertex language", "top of the file"),
    ("try:\n    pass\nfinally:\n    pass", "statement Try is outside", "cannot raise or catch"),
    ("v = TEXT", "TEXT is a str", "close over numbers"),
    ("v = OBJECT", "OBJECT is a object", "wire data to a field"),
    ("v = 'text'", "'text' is outside the vertex language", "numbers and bools"),
    ("self.y[0] = recursive(3)", "recursive calls itself", "write a loop"),
    ("self.y[0] = sometimes(3)", "may end without returning", "return one on every path"),
    ("self.y[0] = recursive(1, 2)", "recursive takes (n), got 2 arguments", ""),
    ("self.y[0] = self.x[0] // 2.0", "// and % of f32", "floor(x / y)"),
    ("self.y[0] = self.x[0] & 1", "bit operation on f32", "convert to an integer"),
    ("self.y[0] = max(self.x[0])", "max of fewer than two values", "max(a, b)"),
    ("self.y[0] = min(1.0, key=2)", "keyword arguments", "by position"),
    ("self.y[0] = min(*self.x)", "starred arguments", "each argument by itself"),
    ("self.y[0] = recursive(m=2)", "recursive takes (n) beside what is given by position, got (m)", "name each"),
    ("self.y[0] = recursive(1, n=2)", "recursive takes () beside what is given by position, got (n)", "name each"),
    ("self.y[0] = recursive(**self.x)", "recursive takes (n) beside what is given by position, got (**)", "name each"),
    ("self.n = self.n ** self.n", "an integer to a power", "constant"),
    ("return 3 + self.n", "compute returns a value", "Output fields"),
    ("self.y[0] == 1.0", "a statement that does nothing", "remove it"),
    ("a = b = 1", "several targets", "one after the other"),
    ("for i in range(3):\n    pass\nelse:\n    pass", "else after for", "set a flag"),
    ("v = self.n is self.n", "Is is outside the vertex language", "compare numbers"),
    ("v = len(3)", "len of something that is no vector field", "len(self.x)"),
    ("self.y[0] = self.x[0] @ 2", "operator MatMult is outside", ""),
    ("self.y[0] = 1 // 0", "constant expression", ""),
    ("lambda: 3", "a statement that does nothing", ""),
]


def made(body: str) -> Any:
    """A codelet with the given body, and the line of the body's first statement."""
    import linecache

    indented = "\n".join(f"        {line}" for line in body.splitlines())
    text = (
        "@codelet\nclass Odd(Vertex):\n    x: Input[Vector[f32]]\n    y: Output[Vector[f32]]\n    n: i32\n"
        f"    def compute(self):\n{indented}\n"
    )
    file = f"<odd {hash(body)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope = {"codelet": codelet, "Vertex": Vertex, "Input": Input, "Output": Output, "Vector": Vector}
    scope |= {"f32": f32, "f16": f16, "i32": i32, "TEXT": TEXT, "OBJECT": OBJECT}
    scope |= {"recursive": recursive, "sometimes": sometimes, "__name__": __name__}
    exec(compile(text, file, "exec", dont_inherit=True), scope)
    return scope["Odd"], file


@pytest.mark.parametrize(("body", "message", "remedy"), CASES, ids=[c[0].splitlines()[-1] for c in CASES])
def test_outside_the_language__error_names_class_line_and_remedy(body: str, message: str, remedy: str) -> None:
    cls, _ = made(body)
    with pytest.raises(CodeletError) as caught:
        _ = compile_codelet(cls.codelet).run
    text = str(caught.value)
    assert message in text
    assert "Odd" in text
    assert remedy in (caught.value.remedy or "")
    assert re.search(r":\d+$", str(caught.value.at))


def test_outside_the_language__line__is_that_of_the_construct() -> None:
    cls, file = made("v = 1\nv = 2\nself.x[0] = 1.0")
    with pytest.raises(CodeletError) as caught:
        _ = compile_codelet(cls.codelet).run
    assert caught.value.at == f"{file}:9"
    assert "self.x[0] = 1.0" in str(caught.value)


def test_source_unknown__says_so() -> None:
    scope = {"codelet": codelet, "Vertex": Vertex}
    exec("@codelet\nclass Nowhere(Vertex):\n    def compute(self):\n        pass\n", scope)
    with pytest.raises(CodeletError, match=r"the source of .*compute is not known"):
        _ = compile_codelet(scope["Nowhere"].codelet).run  # type: ignore[attr-defined]


def test_class__no_vertex__is_refused() -> None:
    with pytest.raises(CodeletError, match="derives from no vertex class"):

        @codelet
        class Plain:
            def compute(self):
                pass


def test_class__no_compute__is_refused() -> None:
    with pytest.raises(CodeletError, match="codelet Empty has no compute"):

        @codelet
        class Empty(Vertex):
            pass


def test_class__multi_vertex_without_worker__is_refused() -> None:
    with pytest.raises(CodeletError, match=r"compute of multi codelet Lonely takes \(self\)") as caught:

        @codelet
        class Lonely(MultiVertex):
            def compute(self):
                pass

    assert caught.value.remedy == "def compute(self, worker_id):"


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("Input[Vector[float64]]", "name 'float64' is not defined"),
        ("Input['f64']", "is no element type"),
        ("Vector[Vector[f32]]", "without a direction inside is no field"),
        ("Input[Input[f32]]", "a field that has a direction already"),
        ("Vector[Vector[Input[f32]]]", "without a direction inside is no field"),
        ("Input[Vector[Vector[f32]]]", "without a direction inside"),
    ],
)
def test_annotation__no_field__is_refused(annotation: str, message: str) -> None:
    body = {"__annotations__": {"x": annotation}, "compute": lambda self: None}
    with pytest.raises(CodeletError) as caught:
        codelet(type("Odd", (Vertex,), body))
    assert "field Odd.x" in str(caught.value)
    assert message in str(caught.value)


@codelet
class Shift(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]
    by: i32

    def compute(self):
        for i in range(len(self.y)):
            self.y[i] = self.x[i + self.by]


@pytest.mark.parametrize(("by", "index"), [(1, 4), (-1, -1)])
def test_debug_mode__index_out_of_range__names_class_field_index_size(by: int, index: int) -> None:
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    with pytest.raises(CodeletAccessError) as caught:
        interpret(Shift.codelet, {"x": x, "y": y, "by": by})
    assert f"read of Shift.x[{index}], which has 4 elements" in str(caught.value)
    assert isinstance(caught.value, IndexError)
    line = Shift.codelet.compute.__code__.co_firstlineno + 2
    assert caught.value.at == f"{__file__}:{line}"


def test_debug_mode__output_read_before_written__is_refused() -> None:
    @codelet
    class Accumulates(Vertex):
        y: Output[Vector[f32]]

        def compute(self):
            self.y[0] += 1.0

    with pytest.raises(CodeletAccessError, match="element 0 is read before it is written") as caught:
        interpret(Accumulates.codelet, {"y": np.zeros(1, np.float32)})
    assert "InOut" in str(caught.value.remedy)


def test_debug_mode__row_out_of_range__is_refused() -> None:
    @codelet
    class Row(Vertex):
        rows: Vector[InOut[Vector[f32]]]
        at: i32

        def compute(self):
            self.rows[self.at][0] = 1.0

    with pytest.raises(CodeletAccessError, match=r"row 3 of Row\.rows, which has 2 rows"):
        interpret(Row.codelet, {"rows": [np.zeros(1, np.float32)] * 2, "at": 3})


def test_debug_mode__failed_assertion__names_the_line() -> None:
    @codelet
    class Checks(Vertex):
        y: Output[f32]

        def compute(self):
            assert 1 > 2, "impossible"
            self.y = 1.0

    with pytest.raises(CodeletError, match="assertion in Checks failed: impossible") as caught:
        interpret(Checks.codelet, {"y": np.zeros(1, np.float32)})
    assert caught.value.at.endswith(f":{Checks.codelet.compute.__code__.co_firstlineno + 1}")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": np.zeros(1, np.float32), "y": np.zeros(1, np.float32)}, "field Shift.by is missing"),
        ({"x": 0, "y": 0, "by": 0, "z": 0}, "field Shift.z is unknown"),
        ({"x": np.zeros(1), "y": np.zeros(1, np.float32), "by": 0}, "field Shift.x is f32, got float64"),
    ],
)
def test_debug_mode__fields_that_do_not_fit__are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CodeletError, match=re.escape(message)):
        interpret(Shift.codelet, fields)


def test_tables__wrong_array__is_refused() -> None:
    with pytest.raises(CodeletError, match=r"Shift\.x needs a contiguous array of float32, got float64"):
        build_tables(Shift.codelet, [{"x": np.zeros(2), "y": np.zeros(2, np.float32), "by": 0}])
    with pytest.raises(CodeletError, match="without field y"):
        build_tables(Shift.codelet, [{"x": np.zeros(2, np.float32), "by": 0}])
