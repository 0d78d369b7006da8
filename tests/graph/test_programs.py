from __future__ import annotations

import pytest

from abele import Graph
from abele.errors import ConstantWriteError, ControlProgramError, TensorError, TypeMismatchError
from abele.graph import Call, Copy, Execute, If, Repeat, RepeatWhileTrue, Sequence, walk
from abele.numerics import bool_, f16, f32, i32


def graph() -> Graph:
    return Graph("gc200")


def test_walk__nested_program__visits_parents_first():
    g = graph()
    cs = g.compute_set("step")
    execute = Execute(cs)
    body = Sequence(execute)
    program = Sequence(Repeat(3, body), Call(g.function(Sequence())))
    kinds = [type(p).__name__ for p in walk(program)]
    assert kinds == ["Sequence", "Repeat", "Sequence", "Execute", "Call", "Sequence"]


def test_library_call__body__is_recorded_with_scope_and_source_line():
    g = graph()
    prog = Sequence()
    x = g.variable(f32, 4, name="x")
    with (
        g.scope("layer1", location=("model.py", 12)),
        g.library_call(prog, "popops.map", inputs=(x,), outputs=(x,)) as body,
    ):
        body.add(Execute(g.compute_set("relu")))
    (call,) = prog.steps
    assert call.debug.full_name == "layer1/map"
    assert call.debug.location == "model.py:12"
    assert g.compute_sets[0].name == "layer1/map/relu"


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda g: Repeat(-1, Sequence()), ControlProgramError, "runs -1 times"),
        (lambda g: Sequence(g.compute_set("a")), ControlProgramError, "takes programs, not ComputeSet"),
        (lambda g: Copy(g.variable(f32, 4), g.variable(f32, 5)), ControlProgramError, "4 elements into 5"),
        (lambda g: Copy(g.variable(f32, 4), g.variable(f16, 4)), TypeMismatchError, "element types differ"),
        (lambda g: Copy(g.variable(f32, 4), g.constant(f32, 4, 0.0)), ConstantWriteError, "which is constant"),
        (
            lambda g: Copy(g.variable(f32, 4), g.variable(f32, 1).broadcast_to((4,))),
            ConstantWriteError,
            "shows an element more than once",
        ),
        (lambda g: Copy(g.variable(f32, 4), g.host_stream_in("s", f32, 4)), ControlProgramError, "runs in"),
        (
            lambda g: Copy(g.host_stream_in("s", f32, 4), g.host_stream_out("t", f32, 4)),
            ControlProgramError,
            "between two streams",
        ),
        (lambda g: If(g.variable(i32, 2), Sequence()), ControlProgramError, "is not one bool or integer"),
        (
            lambda g: RepeatWhileTrue(Sequence(), g.variable(f32, ()), Sequence()),
            ControlProgramError,
            "is not one bool or integer",
        ),
    ],
)
def test_program__wrong_argument__is_refused_with_the_users_line(make, error, text):
    with pytest.raises(error, match=text) as caught:
        make(graph())
    assert "test_programs.py:" in str(caught.value)


def test_stream__same_name_twice__names_the_first():
    g = graph()
    g.host_stream_in("x", f32, 4)
    with pytest.raises(TensorError, match="a stream 'x' exists already"):
        g.host_stream_in("x", f32, 4)


def test_if__bool_predicate__is_taken():
    assert If(graph().variable(bool_, ()), Sequence()).otherwise.children() == ()


def test_cpp_names__same_program__gives_the_same_mapping():
    g = graph()
    t = g.addVariable("float", [4], "t")
    g.setTileMapping(t, 3)
    assert g.getTileMapping(t)[3] == [(0, 4)]
    g.setInitialValue(t, [1.0, 2.0, 3.0, 4.0])
    assert t.variables[0].initial.tolist() == [1.0, 2.0, 3.0, 4.0]
