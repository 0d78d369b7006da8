"""``print`` in codelets: compiled and in debug mode, alone and through an engine."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
from both_ways import arrays

import abele as ab
from abele.codelet import InOut, Input, MultiVertex, Output, Vector, Vertex, codelet, compile_codelet, interpret
from abele.codelet.printing import printing_to
from abele.codelet.tables import build_tables
from abele.errors import CodeletError
from abele.numerics import bf16, bool_, f8_143, f16, f32, i8, i32, i64, u8, u32, u64


@codelet
class Kinds(Vertex):
    a: f32
    b: f16
    c: bf16
    d: f8_143
    e: i8
    f: u8
    g: i32
    h: u32
    i: i64
    j: u64
    k: bool_

    def compute(self):
        print(self.a, self.b, self.c, self.d)
        print(self.e, self.f, self.g, self.h, self.i, self.j, self.k, sep=",")
        print(f"{self.a:8.3f}|{self.b:.2e}|{self.c}|{self.g:5d}|{self.h:x}|{self.i:+}", "end", end=".\n")
        print("constants", 1, 2.5, True, math.pi, f"{3:03d}")
        print()
        print("a", end="")
        print("b", flush=True)


VALUES: dict[str, Any] = {"a": -0.1, "b": 0.1, "c": 3.14, "d": 1.3, "e": -5, "f": 200, "g": -70000, "h": 3 << 30}
VALUES |= {"i": -(1 << 40), "j": (1 << 63) + 5, "k": True}
EXPECTED = """\
-0.1 0.1 3.14062 1.25
-5,200,-70000,3221225472,-1099511627776,9223372036854775813,True
  -0.100|1.00e-01|3.14062|-70000|c0000000|-1099511627776 end.
constants 1 2.5 True 3.141592653589793 003

ab
"""


def compiled_text(cls: type, fields: dict[str, Any]) -> str:
    code = compile_codelet(cls.codelet)
    table = build_tables(cls.codelet, [arrays(cls, fields)])
    texts = []
    for run in (code.run, code.run_aliasing):
        table.run(run)
        texts.append(table.sink.take())
    table.count(code.run_counted)
    assert len({*texts, table.sink.take()}) == 1
    return texts[0]


def test_print__of_every_type__says_what_python_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = compiled_text(Kinds, VALUES)
    interpret(Kinds.codelet, arrays(Kinds, VALUES))
    assert capsys.readouterr().out == text == EXPECTED


@codelet
class Talks(Vertex):
    x: InOut[Vector[f32]]
    number: i32

    def compute(self):
        total = 0.0
        x = self.x
        for i in range(len(x)):
            total += x[i]
            if x[i] < 0.0:
                print(f"vertex {self.number}: x[{i}] = {x[i]}")
                x[i] = helper(x[i])
        print("total", total)


def helper(value):
    if value < -1.0:
        print("helped", value)
    return -value


def talking(vertices: int = 12) -> tuple[ab.Graph, ab.Program, str]:
    graph = ab.Graph("bow")
    values = np.ones((vertices, 3), np.float32)
    values[:, 1] = -np.arange(vertices) / 4
    x = graph.variable(f32, values.shape, "x", initial=values).map_rows(range(vertices))
    step = graph.compute_set("talk")
    step.vertices(Talks, tile=range(vertices), x=x, number=np.arange(vertices))
    lines = []
    for v in range(vertices):
        if v:
            lines.append(f"vertex {v}: x[1] = {-v / 4}")
        if v > 4:
            lines.append(f"helped {-v / 4}")
        lines.append(f"total {2 - v / 4}")
    return graph, ab.Execute(step), "\n".join(lines) + "\n"


@pytest.mark.parametrize("way", [{"threads": 1}, {"threads": 2}, {"debug": True}, {"checks": "vertex_order"}], ids=str)
def test_print__through_an_engine__comes_in_the_order_of_vertices(way: dict[str, Any]) -> None:
    graph, program, expected = talking()
    engine = ab.Engine(graph, program, **way)
    engine.print_stream = io.StringIO()
    engine.run()
    text = engine.print_stream.getvalue()
    if "checks" in way:
        assert sorted(text.splitlines()) == sorted(expected.splitlines())
    else:
        assert text == expected
    assert (engine["x"] >= 0).all()
    engine.run()
    assert engine.print_stream.getvalue().count("\n") == expected.count("\n") + 12


def test_print__in_a_loop__does_not_change_its_sum() -> None:
    def summing(loud: bool) -> type:
        @codelet
        class Sum(Vertex):
            x: Input[Vector[f32]]
            total: Output[f32]

            def compute(self):
                total = 0.0
                for i in range(len(self.x)):
                    total += self.x[i]
                    if loud:
                        print(total)
                self.total = total

        return Sum

    x = np.random.default_rng(0).random(1000, np.float32)
    totals = []
    for loud in (False, True):
        fields = {"x": x, "total": np.zeros(1, np.float32)}
        build_tables(summing(loud).codelet, [fields]).run(compile_codelet(summing(loud).codelet).run)
        totals.append(fields["total"][0])
    assert totals[0] == totals[1]
    heard: list[str] = []
    fields = {"x": x[:70], "total": np.zeros(1, np.float32)}
    table = build_tables(summing(True).codelet, [fields])
    table.run(compile_codelet(summing(True).codelet).run)
    with printing_to(heard.append):
        interpret(summing(True).codelet, fields)
    assert table.sink.take().splitlines() == heard


def test_print__of_workers__comes_in_their_order() -> None:
    @codelet
    class Roll(MultiVertex):
        def compute(self, worker_id):
            print("worker", worker_id)

    assert compiled_text(Roll, {}) == "".join(f"worker {n}\n" for n in range(6))


def test_print__that_runs__costs_slots_and_one_that_does_not__none() -> None:
    def speaking(times: int) -> type:
        @codelet
        class Speak(Vertex):
            y: Output[f32]

            def compute(self):
                for _ in range(times):
                    print("hello")
                self.y = 1.0

        return Speak

    costs = []
    for times in (0, 1, 3):
        cls = speaking(times)
        table = build_tables(cls.codelet, [arrays(cls, {})])
        costs.append(int(table.count(compile_codelet(cls.codelet).slots)[0]))
    assert costs[1] - costs[0] >= 400
    assert costs[2] - costs[1] == 2 * (costs[1] - costs[0])


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("print(self.x)", "x is printed as a whole"),
        ("print(*self.x)", "starred arguments of print"),
        ("print(1, file=2)", "print with file"),
        ("print(f'{1:{2}}')", "a format that is computed"),
        ("print(f'{self.x[0]:d}')", "a f32 written by format 'd'"),
        ("print(f'{self.x[0]:100000f}')", "is no format of numbers"),
    ],
)
def test_print__of_what_native_code_cannot_show__is_refused(tmp_path: Any, statement: str, message: str) -> None:
    source = f"""
from abele.codelet import Input, Vector, Vertex, codelet
from abele.numerics import f32

@codelet
class Bad(Vertex):
    x: Input[Vector[f32]]

    def compute(self):
        {statement}
"""
    file = tmp_path / "bad.py"
    file.write_text(source)
    names: dict[str, Any] = {"__name__": "bad"}
    exec(compile(source, str(file), "exec"), names)
    with pytest.raises(CodeletError, match=message) as caught:
        _ = compile_codelet(names["Bad"].codelet).run
    assert "bad.py:10" in (caught.value.at or "")


def test_print__in_a_codelet_from_a_file__comes_too(tmp_path: Any) -> None:
    graph, program, expected = talking(3)
    path = tmp_path / "talk.abele"
    ab.compile_program(graph, program).save(path)
    engine = ab.Engine(ab.Executable.load(path))
    engine.print_stream = io.StringIO()
    engine.run()
    assert engine.print_stream.getvalue() == expected
