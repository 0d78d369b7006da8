"""Control flow against a plain interpreter of the program tree."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele import Engine, Graph
from abele.errors import EngineError, InvalidOptionError
from abele.graph import (
    Call,
    Copy,
    If,
    PrintTensor,
    Program,
    Repeat,
    RepeatWhile,
    RepeatWhileFalse,
    RepeatWhileTrue,
    Sequence,
    WriteUndef,
    concat,
)

SIZE = 7


class Rotor:
    """A graph with three rings of numbers; every step turns one of them, and predicates are read from their heads."""

    def __init__(self) -> None:
        self.graph = Graph("bow-2000")
        self.initial = {
            "a": np.array([1, 0, 1, 1, 0, 0, 1], np.int32),
            "b": np.array([1, 1, 0, 1, 0, 1, 0], bool),
            "c": np.arange(SIZE, dtype=np.uint64),
        }
        types = {"a": "i32", "b": "bool", "c": "u64"}
        self.rings = {
            name: self.graph.variable(types[name], SIZE, name, initial=values).map(tile)
            for tile, (name, values) in enumerate(self.initial.items())
        }

    def turn(self, name: str) -> Copy:
        ring = self.rings[name]

        return Copy(concat([ring[1:], ring[:1]]), ring)


def _interpret(step: Program, state: dict[str, np.ndarray]) -> None:
    match step:
        case Copy():
            name = step.destination.name
            state[name][...] = np.roll(state[name], -1)
        case Repeat():
            for _ in range(step.count):
                _interpret(step.body, state)
        case If():
            _interpret(step.then if state[step.predicate.name][0] else step.otherwise, state)
        case RepeatWhile():
            _interpret(step.condition, state)
            while bool(state[step.predicate.name][0]) is step.value:
                _interpret(step.body, state)
                _interpret(step.condition, state)
        case _:
            for child in step.children():
                _interpret(child, state)


def _programs(rotor: Rotor, functions: list):
    turns = st.sampled_from(sorted(rotor.rings)).map(rotor.turn)
    heads = st.sampled_from(sorted(rotor.rings)).map(lambda name: rotor.rings[name][0])

    def extend(inner):
        # A loop that turns the ring it looks at always ends: every ring holds both zero and not zero.
        loops = st.builds(
            lambda name, body, wanted: (RepeatWhileTrue if wanted else RepeatWhileFalse)(
                rotor.turn(name), rotor.rings[name][0], body
            ),
            st.sampled_from(sorted(rotor.rings)),
            turns,
            st.booleans(),
        )
        calls = st.sampled_from(functions).map(Call) if functions else st.nothing()
        return st.one_of(
            st.lists(inner, max_size=4).map(lambda steps: Sequence(*steps)),
            st.builds(Repeat, st.integers(0, 3), inner),
            st.builds(If, heads, inner, inner),
            loops,
            calls,
        )

    return st.recursive(turns, extend, max_leaves=8)


@given(data=st.data(), threads=st.integers(1, 3))
def test_program__any_nesting_of_control__does_what_the_tree_says(data, threads):
    rotor = Rotor()
    functions = [rotor.graph.function(Sequence(rotor.turn("a"), Repeat(2, rotor.turn("c"))))]
    functions.append(rotor.graph.function(Sequence(Call(functions[0]), rotor.turn("b"))))
    program = data.draw(_programs(rotor, functions))
    expected = {name: values.copy() for name, values in rotor.initial.items()}
    _interpret(program, expected)
    with Engine(rotor.graph, program, mode="tiles", threads=threads) as engine:
        engine.run()
        for name, values in expected.items():
            np.testing.assert_array_equal(engine[name], values)


def test_engine__several_programs__run_by_index_and_name():
    rotor = Rotor()
    with Engine(rotor.graph, {"one": rotor.turn("c"), "two": Repeat(2, rotor.turn("c"))}, mode="tiles") as engine:
        engine.run("two")
        engine.run(0)
        assert engine["c"][0] == 3
        with pytest.raises(EngineError, match="did you mean 'one'"):
            engine.run("ones")
        with pytest.raises(EngineError, match="no program 2: the engine has 2"):
            engine.run(2)


def test_engine__state__persists_until_load():
    rotor = Rotor()
    with Engine(rotor.graph, rotor.turn("c"), mode="tiles") as engine:
        engine.run()
        engine.run()
        assert engine["c"][0] == 2
        engine.load()
        assert engine["c"][0] == 0


def test_engine__closed__starts_its_threads_again():
    rotor = Rotor()
    engine = Engine(rotor.graph, rotor.turn("c"), mode="tiles", threads=2)
    for expected in (1, 2):
        engine.run()
        engine.close()
        assert engine["c"][0] == expected


def test_print_tensor__in_a_loop__prints_each_round():
    rotor = Rotor()
    body = Sequence(rotor.turn("c"), PrintTensor(rotor.rings["c"][:2], "head"), WriteUndef(rotor.rings["a"]))
    with Engine(rotor.graph, Repeat(2, body), mode="tiles") as engine:
        engine.setPrintTensorStream(text := io.StringIO())
        engine.run()
    assert text.getvalue() == "head: [1 2]\nhead: [2 3]\n"


def test_print_tensor__of_floats__has_seven_decimals_and_a_line_a_row():
    graph = Graph("bow-2000")
    x = graph.variable("f32", (2, 2), "x", initial=[[1, 2.5], [3, -4]]).map(0)
    with Engine(graph, PrintTensor(x), mode="tiles") as engine:
        engine.print_stream = text = io.StringIO()
        engine.run()
    assert text.getvalue() == "x: [[1.0000000 2.5000000]\n [3.0000000 -4.0000000]]\n"


@pytest.mark.parametrize(
    ("options", "text"),
    [({"mode": "tile"}, "did you mean 'tiles'"), ({"threads": 0}, "cannot run on 0 threads")],
)
def test_engine__wrong_option__is_named(options, text):
    rotor = Rotor()
    with pytest.raises(InvalidOptionError, match=text):
        Engine(rotor.graph, rotor.turn("a"), **options)


def test_engine__graph_without_program__says_what_is_missing():
    with pytest.raises(EngineError, match="an engine needs a program"):
        Engine(Rotor().graph)
