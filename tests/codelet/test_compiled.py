from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from both_ways import arrays

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, compile_codelet
from abele.codelet import compiled as module
from abele.codelet.compiled import content_key
from abele.codelet.tables import build_tables
from abele.llvm import cache, jit
from abele.numerics import f32, i32
from support.vertices import AddOne


def vertices(num: int) -> list[dict[str, np.ndarray]]:
    return [arrays(AddOne, {"x": np.full(n % 70, n), "y": np.zeros(n % 70)}) for n in range(num)]


def test_run__many_vertices_on_several_threads__each_does_its_part() -> None:
    all_vertices = vertices(200)
    table, code = build_tables(AddOne.codelet, all_vertices), compile_codelet(AddOne.codelet)
    parts = [(b, min(b + 37, 200)) for b in range(0, 200, 37)]
    threads = [threading.Thread(target=table.run, args=(code.run, *part)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((v["y"] == n + 1).all() for n, v in enumerate(all_vertices))


def test_run__part_of_the_vertices__leaves_the_others() -> None:
    some = vertices(10)
    build_tables(AddOne.codelet, some).run(compile_codelet(AddOne.codelet).run, 3, 5)
    assert [bool(v["y"].any()) for v in some] == [n in (3, 4) for n in range(10)]


def test_compile_codelet__same_definition__same_object() -> None:
    assert compile_codelet(AddOne.codelet) is compile_codelet(AddOne.codelet)


def test_compile_codelet__second_process__neither_reads_nor_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    monkeypatch.setattr(jit, "_loaded", {})
    monkeypatch.setattr(jit, "_built", {})
    first = module.CompiledCodelet(AddOne.codelet)
    made = (first.code_bytes, first.data_dependent, bool(first.run), bool(first.slots))
    monkeypatch.setattr(jit, "_loaded", {})
    monkeypatch.setattr(jit, "_built", {})
    monkeypatch.setattr(module, "read_compute", lambda _: pytest.fail("read again"))
    second = module.CompiledCodelet(AddOne.codelet)
    assert (second.code_bytes, second.data_dependent, bool(second.run), bool(second.slots)) == made


HELPED = 1


def helper(x):
    return x + HELPED


def with_helper(function, n):
    @codelet
    class Uses(Vertex):
        y: InOut[Vector[i32]]

        def compute(self):
            self.y[0] = function(self.y[0]) * n

    return Uses.codelet


def test_content_key__constants_helpers_and_their_constants__count(monkeypatch: pytest.MonkeyPatch) -> None:
    key = content_key(with_helper(helper, 2))
    assert content_key(with_helper(helper, 2)) == key
    assert content_key(with_helper(helper, 3)) != key
    assert content_key(with_helper(helper, 2.0)) != key
    assert content_key(with_helper(abs, 2)) != key
    monkeypatch.setitem(globals(), "HELPED", 5)
    assert content_key(with_helper(helper, 2)) != key


@codelet
class Reversed(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self):
        n = len(self.x)
        for i in range(n):
            self.y[i] = self.x[n - 1 - i]


def test_run_aliasing__output_on_top_of_input__goes_one_by_one() -> None:
    x = np.arange(100, dtype=np.float32)
    want = x.copy()
    for i in range(100):
        want[i] = want[99 - i]
    table = build_tables(Reversed.codelet, [{"x": x, "y": x}])
    table.run(compile_codelet(Reversed.codelet).run_aliasing)
    assert np.array_equal(x, want)


def test_choice__of_values_at_hand__is_marked_as_one_that_no_processor_guesses() -> None:
    @codelet
    class Steps(Vertex):
        x: Input[Vector[f32]]
        out: Output[i32]

        def compute(self):
            place = i32(0)
            for _ in range(len(self.x)):
                place = place + (1 if self.x[place] > 0.0 else 2)
            self.out = place

    text = compile_codelet(Steps.codelet)._value_text()
    assert any("select" in line and "!unpredictable" in line for line in text.splitlines())


def test_formula__is_the_cycles_function() -> None:
    @codelet
    class Costed(Vertex):
        x: Input[Vector[f32]]

        def compute(self):
            pass

        @staticmethod
        def cycles(v, ipu):
            return 10 + v.x

    assert Costed.codelet.formula is not None
    assert AddOne.codelet.formula is None
    assert Costed.codelet.field_by_name["x"].rank == 1


def test_inherited_fields__come_first() -> None:
    class Base(Vertex):
        x: InOut[Vector[f32]]
        scale = 3

    @codelet
    class Derived(Base):
        n: i32

        def compute(self):
            self.x[0] = self.scale * self.n

    assert [f.name for f in Derived.codelet.fields] == ["x", "n"]
    fields = arrays(Derived, {"x": [0], "n": 5})
    build_tables(Derived.codelet, [fields]).run(compile_codelet(Derived.codelet).run)
    assert fields["x"][0] == 15
