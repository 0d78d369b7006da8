"""Lowering: steps and their superstep numbers are whole when they are made, and no analysis changes them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import FrozenInstanceError, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import compile_program
from abele.compiler.lower import lower
from abele.errors import ControlProgramError
from abele.graph import Call, Copy, Execute, Graph, If, Program, Repeat, RepeatWhileTrue, Sequence
from abele.numerics import bool_, f32
from compiler.support import Update, small_system

TILES = 4


class Parts:
    """Leaves of programs over one graph, some of which do the same thing as others."""

    def __init__(self, num_ipus: int = 1) -> None:
        self.graph = Graph(small_system(TILES, num_ipus))
        on = range(0, TILES * num_ipus, num_ipus)
        self.x = self.graph.variable(f32, (TILES, 5), "x").map_rows(on)
        self.y = self.graph.variable(f32, (TILES, 5), "y").map_rows(on[::-1])
        self.flag = self.graph.variable(bool_, (), "flag").map(0)
        cs = self.graph.compute_set("step")
        cs.vertices(Update, tile=on, x=self.x, y=self.y)
        stream = self.graph.host_stream_in("in", f32, (5,))
        self.compute_set = cs
        self.function = self.graph.function(Copy(self.y, self.x))
        self.copies = [Copy(self.x, self.y), Copy(self.y, self.x)]
        self.streams = [Copy(stream, self.x[row]) for row in range(TILES)]

    def leaf(self, kind: str, number: int) -> Program:
        match kind:
            case "execute":
                return Execute(self.compute_set)
            case "call":
                return Call(self.function)
            case "copy":
                return self.copies[number % 2]
        return self.streams[number % TILES]


Leaf = st.tuples(st.sampled_from(["execute", "call", "copy", "stream"]), st.integers(0, 3))
Tree = st.recursive(Leaf, lambda inner: st.tuples(st.sampled_from(["repeat", "if", "while"]), st.lists(inner)))


def built(parts: Parts, tree: tuple) -> Program:
    kind, rest = tree
    if not isinstance(rest, list):
        return parts.leaf(kind, rest)
    body = Sequence(*(built(parts, item) for item in rest))
    match kind:
        case "repeat":
            return Repeat(3, body)
        case "if":
            return If(parts.flag, body, Sequence())
    return RepeatWhileTrue(Sequence(), parts.flag, body)


@pytest.mark.parametrize("num_ipus", [1, 2])
@given(tree=Tree)
def test_lower__any_program__numbers_what_differs_once(num_ipus: int, tree: tuple) -> None:
    parts = Parts(num_ipus)
    found = compile_program(parts.graph, built(parts, tree))
    numbers = [s.superstep for s in found.steps]
    assert [s.index for s in found.steps] == list(range(len(numbers)))
    assert list(dict.fromkeys(numbers)) == list(range(len(found.plan)))
    assert [s.superstep for s in found.lowered.distinct] == list(range(len(found.plan)))
    for step in found.steps:
        superstep = found.plan[step.superstep]
        assert (superstep.kind, superstep.joins_previous) == (step.kind, step.joins_previous)
        assert superstep.node is step.node or step.kind == "execute"


def test_steps_and_supersteps__after_compiling__cannot_be_changed() -> None:
    parts = Parts()
    found = compile_program(parts.graph, Sequence(*parts.copies, Repeat(2, Execute(parts.compute_set))))
    moved, computed = found.plan[0], found.plan[-1]
    records = [found, found.lowered, found.steps[0], found.lowered.programs[0], moved, moved.access, moved.before]
    for record in (*records, computed.before, computed.compute):
        assert record is not None
        for name in (f.name for f in fields(record)):
            with pytest.raises(FrozenInstanceError):
                setattr(record, name, getattr(record, name))


def test_lower__twice__leaves_the_first_steps_as_they_are() -> None:
    parts = Parts()
    program = Sequence(*parts.streams, Execute(parts.compute_set), Execute(parts.compute_set))
    first = lower([program])
    before = [tuple(getattr(s, f.name) for f in fields(s)) for s in first.steps]
    compile_program(parts.graph, program)
    assert [tuple(getattr(s, f.name) for f in fields(s)) for s in first.steps] == before
    assert [s.superstep for s in first.steps] == [0, 1, 2, 3, 4, 4]


def other_compute_set() -> Program:
    return Execute(Parts().compute_set)


def other_stream_copy() -> Program:
    return Parts(2).streams[1]


@pytest.mark.parametrize("foreign", [other_compute_set, other_stream_copy])
def test_compile__step_of_another_graph_like_one_of_this__is_refused(foreign: Callable[[], Program]) -> None:
    """Identifiers of compute sets begin anew in each graph, and so do addresses of variables."""
    parts = Parts(2)
    own = [Execute(parts.compute_set), parts.streams[0]]
    with pytest.raises(ControlProgramError, match="belongs to another graph"):
        compile_program(parts.graph, Sequence(*own, foreign()))


@pytest.mark.parametrize(
    ("inside", "scopes", "name"),
    [
        (True, (), "conv/convolve"),
        (True, ("encoder",), "encoder/conv/convolve"),
        (False, (), "conv/convolve"),
        (False, ("conv",), "conv/convolve"),
        (False, ("other",), "other/convolve"),
    ],
)
def test_lower__step_of_a_library_call__has_the_scopes_that_it_was_made_in(
    inside: bool, scopes: tuple[str, ...], name: str
) -> None:
    """A compute set made outside of all scopes gets those of the call, also where its name begins like the call's."""
    parts, program = Parts(), Sequence()

    def made() -> Execute:
        cs = parts.graph.compute_set("convolve")
        cs.vertices(Update, tile=range(TILES), x=parts.x, y=parts.y)
        return Execute(cs)

    with ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(parts.graph.scope(scope))
        outside = made()
        if not inside:
            stack.close()
        with parts.graph.library_call(program, "poplin.convolution", inputs=(), outputs=(), debug_name="conv") as body:
            body.add(made() if inside else outside)
    assert [step.name for step in lower([program]).steps] == [name]
