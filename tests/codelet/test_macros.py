"""Macros, and code that is specialised by settings."""

# Bodies and annotations are in the vertex language.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pytest

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, compile_codelet, exp, log, macro
from abele.codelet.compiled import content_key
from abele.codelet.interpret import interpret
from abele.errors import CodeletError
from abele.numerics import ElementType, f16, f32, i32


def same_code(one: Any, other: Any) -> bool:
    """True if two codelets have the same text of their trees, apart from lines and names of variables."""
    return _shape(compile_codelet(one.codelet).tree.body, {}) == _shape(compile_codelet(other.codelet).tree.body, {})


def _shape(part: Any, names: dict[str, int]) -> Any:
    if isinstance(part, list | tuple):
        return [_shape(p, names) for p in part]
    if not hasattr(part, "__dataclass_fields__") or isinstance(part, ElementType):
        return str(part)
    values = {n: getattr(part, n) for n in part.__dataclass_fields__ if n not in ("line", "lanes")}
    if type(part).__name__ in ("Local", "Assign", "For"):
        values["name"] = names.setdefault(values["name"], len(names))
    return [type(part).__name__, *(_shape(v, names) for v in values.values())]


class Op(Enum):
    ADD = "add"
    LOG_ADD = "log_add"


@dataclass(frozen=True)
class How:
    op: Op
    kind: ElementType
    scaled: bool = False


@macro
def combined(how, total, e):
    if how.op == Op.LOG_ADD:
        top = max(total, e)
        low = min(total, e)
        return top + log(1.0 + exp(low - top))
    return total + e


@macro
def bounds(start, stop, part):
    begin = start + part * (stop - start) // 2
    end = min(begin + (stop - start) // 2, stop)
    return begin, end


@macro
def halve(x, i):
    x[i] = x[i] * 0.5


def reducing(how: How) -> Any:
    kind = how.kind

    @codelet
    class Reducing(Vertex):
        x: Input[Vector[kind]]
        y: Output[f32]
        if how.scaled:
            scale: f32

        def compute(self):
            total = f32(0.0)
            for i in range(len(self.x)):
                total = combined(how, total, f32(self.x[i]))
            if how.scaled:
                total = total * self.scale
            self.y = total

    return Reducing


def test_macro__plain_sum__is_what_is_written_out() -> None:
    @codelet
    class Plain(Vertex):
        x: Input[Vector[f32]]
        y: Output[f32]

        def compute(self):
            total = f32(0.0)
            for i in range(len(self.x)):
                total = total + f32(self.x[i])
            self.y = total

    made = reducing(How(Op.ADD, f32))
    assert same_code(made, Plain)
    assert compile_codelet(made.codelet).code_bytes == compile_codelet(Plain.codelet).code_bytes
    (loop,) = [s for s in compile_codelet(made.codelet).tree.body if type(s).__name__ == "For"]
    assert loop.lanes == {"total": "add"}


def test_settings__optional_field__is_there_where_they_say_so() -> None:
    names = [[f.name for f in reducing(How(Op.ADD, f16, scaled)).codelet.fields] for scaled in (False, True)]
    assert names == [["x", "y"], ["x", "y", "scale"]]


def test_settings__different_ones__have_different_keys() -> None:
    choices = [How(op, f32, scaled) for op in Op for scaled in (False, True)]
    assert len({content_key(reducing(how).codelet) for how in choices}) == len(choices)


def test_macro__two_results__are_the_variables_they_are_assigned_to() -> None:
    @codelet
    class Halves(Vertex):
        x: InOut[Vector[f32]]

        def compute(self):
            first, last = bounds(0, len(self.x), 1)
            for i in range(first, last):
                halve(self.x, i)

    @codelet
    class Plain(Vertex):
        x: InOut[Vector[f32]]

        def compute(self):
            first = 0 + 1 * (len(self.x) - 0) // 2
            last = min(first + (len(self.x) - 0) // 2, len(self.x))
            for i in range(first, last):
                self.x[i] = self.x[i] * 0.5

    assert same_code(Halves, Plain)
    x = np.arange(8, dtype=np.float32)
    interpret(Halves.codelet, {"x": x})
    assert x.tolist() == [0, 1, 2, 3, 2, 2.5, 3, 3.5]


@macro
def every_second(self, visit):
    for i in range(0, len(self.x), 2):
        visit(self.x, i)


def test_macro__given_another__puts_its_code_there_too() -> None:
    @codelet
    class Walk(Vertex):
        x: InOut[Vector[f32]]

        def compute(self):
            every_second(self, halve)

    @codelet
    class Plain(Vertex):
        x: InOut[Vector[f32]]

        def compute(self):
            for i in range(0, len(self.x), 2):
                self.x[i] = self.x[i] * 0.5

    assert same_code(Walk, Plain)
    x = np.arange(5, dtype=np.float32)
    interpret(Walk.codelet, {"x": x})
    assert x.tolist() == [0, 1, 1, 3, 2]


def difference(a, b, scale):
    return (a - b) * scale


def test_calls__arguments_by_name__mean_what_they_mean_by_position() -> None:
    @codelet
    class Named(Vertex):
        x: InOut[Vector[f32]]

        def compute(self):
            first, last = bounds(0, part=1, stop=len(self.x))
            for i in range(first, last):
                halve(i=i, x=self.x)
                self.x[i] = difference(scale=self.x[0], b=self.x[i], a=self.x[i - first])

    @codelet
    class Plain(Vertex):
        x: InOut[Vector[f32]]

        def compute(self):
            first, last = bounds(0, len(self.x), 1)
            for i in range(first, last):
                halve(self.x, i)
                self.x[i] = difference(self.x[i - first], self.x[i], self.x[0])

    assert same_code(Named, Plain)
    x = np.arange(2, 6, dtype=np.float32)
    interpret(Named.codelet, {"x": x})
    assert x.tolist() == [2, 3, (2 - 4 / 2) * 2, (3 - 5 / 2) * 2]


def test_macro__variable_of_the_caller__is_left_alone() -> None:
    @macro
    def squared(x):
        square = x
        square *= x
        return square

    @codelet
    class Kept(Vertex):
        x: InOut[Vector[f32]]

        def compute(self):
            square = f32(7.0)
            for i in range(len(self.x)):
                self.x[i] = squared(self.x[i]) + squared(self.x[i] + 1.0) + square

    x = np.arange(3, dtype=np.float32)
    interpret(Kept.codelet, {"x": x})
    assert x.tolist() == [8, 12, 20]


def test_macro__statements_in_a_loop_condition__are_refused() -> None:
    @macro
    def less(x):
        limit = x + 1
        return limit < 4

    @codelet
    class Loops(Vertex):
        x: InOut[Vector[i32]]

        def compute(self):
            while less(self.x[0]):
                self.x[0] = self.x[0] + 1

    with pytest.raises(CodeletError, match=r"less\(\) has statements, which have no place here"):
        _ = compile_codelet(Loops.codelet).tree


def test_macro__early_return__is_refused() -> None:
    @macro
    def sign(x):
        if x < 0:
            return -1
        return 1

    @codelet
    class Signs(Vertex):
        x: InOut[Vector[i32]]

        def compute(self):
            for i in range(len(self.x)):
                self.x[i] = sign(self.x[i])

    with pytest.raises(CodeletError, match="a macro returns before its end"):
        _ = compile_codelet(Signs.codelet).tree


def test_macro__wrong_number_of_arguments__says_what_it_takes() -> None:
    @codelet
    class Wrong(Vertex):
        x: InOut[Vector[f32]]

        def compute(self):
            halve(self.x)

    with pytest.raises(CodeletError, match=r"halve takes \(x, i\), got 1 arguments"):
        _ = compile_codelet(Wrong.codelet).tree


def test_macro__calls_itself__is_refused() -> None:
    @macro
    def again(x):
        return again(x)

    @codelet
    class Endless(Vertex):
        x: InOut[Vector[f32]]

        def compute(self):
            self.x[0] = again(self.x[0])

    with pytest.raises(CodeletError, match="again calls itself"):
        _ = compile_codelet(Endless.codelet).tree


def test_setting__unknown_part__names_what_there_is() -> None:
    how = How(Op.ADD, f32)

    @codelet
    class Wrong(Vertex):
        x: InOut[Vector[f32]]

        def compute(self):
            if how.wide:
                self.x[0] = 1.0

    with pytest.raises(CodeletError, match="How has no wide that code can be made by") as found:
        _ = compile_codelet(Wrong.codelet).tree
    assert found.value.remedy == "it has op, kind, scaled"
