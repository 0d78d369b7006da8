"""Switches, aborts, timers, printed formats and host functions, in every mode."""

from __future__ import annotations

import io

import numpy as np
import pytest

from abele.codelet import InOut, Vector, Vertex, codelet
from abele.errors import ApplicationRuntimeError, EngineError, StreamConnectionError
from abele.graph import (
    Abort,
    AbortOnCondition,
    Call,
    Copy,
    CycleCount,
    CycleStamp,
    ErrorProgram,
    Execute,
    Graph,
    HostCall,
    If,
    PrintTensor,
    PrintTensorFmt,
    Repeat,
    Sequence,
    Switch,
    Sync,
)
from abele.numerics import f32
from abele.runtime import Engine
from abele.runtime.host.tensor_prints import tensor_text

REST = [pytest.mark.slow, pytest.mark.rest]
"""Marks of ways of which plain runs have each mode and each number of threads already."""
WAYS = [
    pytest.param(
        {**way, "threads": threads}, id=f"{next(iter(way.values()))}-{threads}", marks=REST * (threads != usual)
    )
    for way, usual in (({"mode": "native"}, 1), ({"mode": "tiles"}, 2), ({"debug": True}, 1))
    for threads in (1, 2)
]


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


@codelet
class Halve(Vertex):
    x: InOut[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            self.x[i] = self.x[i] * 0.5


def _numbers(graph: Graph, name: str, values, dtype: str = "i32"):
    return graph.variable(dtype, np.shape(values), name, initial=values).map(0)


# Switch


@pytest.mark.parametrize("dtype", ["i32", "u32"])
def test_switch__on_any_value__runs_its_case_or_the_default(way, dtype):
    graph = Graph("bow-2000")
    control, out = _numbers(graph, "control", 0, dtype), _numbers(graph, "out", 0)
    results = {n: graph.constant("i32", (), n) for n in (10, 11, 12, 13)}
    cases = {0: Copy(results[10], out), -1: Copy(results[11], out), 4_000_000_000: Copy(results[12], out)}
    program = Switch(control, cases, Copy(results[13], out))
    table = {0: 10, 1: 13, 7: 13} | ({-1: 11} if dtype == "i32" else {4_000_000_000: 12, 2**32 - 1: 13})
    with Engine(graph, program, **way) as engine:
        for value, expected in table.items():
            engine["control"] = value
            engine.run()
            assert engine["out"] == expected, value


def test_switch__at_an_unreachable_default__ends_the_run(way):
    graph = Graph("bow-2000")
    control, out = _numbers(graph, "control", 3), _numbers(graph, "out", 0)
    one = graph.constant("i32", (), 1)
    program = Switch(control, {1: Copy(one, out)}, unreachable_default=True)
    with Engine(graph, program, **way) as engine:
        with pytest.raises(ApplicationRuntimeError, match=r"unreachable default: .*control.* is 3") as caught:
            engine.run()
        assert "test_nodes.py" in caught.value.at
        engine["control"] = 1
        engine.run()
        assert engine["out"] == 1


# Aborts


def test_abort__ends_the_run_with_its_message_and_leaves_what_was_done(way):
    graph = Graph("bow-2000")
    a, b = _numbers(graph, "a", [1, 2]), _numbers(graph, "b", [0, 0])
    program = Sequence(Copy(a, b), Abort("out of cheese"), Copy(b[:1], a[1:]))
    with Engine(graph, [program, Copy(a, b)], **way) as engine:
        for _ in range(2):
            with pytest.raises(ApplicationRuntimeError, match="out of cheese") as caught:
                engine.run()
            assert "test_nodes.py" in caught.value.at
        assert engine["b"].tolist() == [1, 2]
        assert engine["a"].tolist() == [1, 2]
        engine.run(1)


def test_abort_on_condition__ends_the_run_only_when_it_is_true(way):
    graph = Graph("bow-2000")
    flag, a, b = _numbers(graph, "flag", False, "bool"), _numbers(graph, "a", [1, 2]), _numbers(graph, "b", [0, 0])
    program = Sequence(AbortOnCondition(flag, "no more"), Copy(a, b))
    with Engine(graph, program, **way) as engine:
        engine.run()
        assert engine["b"].tolist() == [1, 2]
        engine["flag"] = True
        with pytest.raises(ApplicationRuntimeError, match="no more") as caught:
            engine.run()
        assert "is true" in caught.value.because


def test_abort_on_condition__in_some_replicas__names_them():
    graph = Graph("bow-2000", replicas=4)
    flag = _numbers(graph, "flag", 0)
    with Engine(graph, AbortOnCondition(flag)) as engine:
        engine.run()
        engine["flag"] = [0, 0, 5, 1]
        with pytest.raises(ApplicationRuntimeError, match="the program aborted") as caught:
            engine.run()
        assert "in replica 2, 3" in caught.value.because


def test_error_program__prints_its_tensor_and_ends_the_run(way):
    graph = Graph("bow-2000")
    x = _numbers(graph, "x", [1.5, 2.0], "f32")
    with Engine(graph, ErrorProgram("x is wrong", x), **way) as engine:
        engine.print_stream = text = io.StringIO()
        with pytest.raises(ApplicationRuntimeError, match="x is wrong"):
            engine.run()
    assert text.getvalue() == "x: [1.5000000 2.0000000]\n"


@pytest.mark.parametrize("kind", ["internal", "external", "global"])
def test_sync__of_any_kind__does_nothing_to_data(kind):
    graph = Graph("bow-2000")
    a, b = _numbers(graph, "a", [1, 2]), _numbers(graph, "b", [0, 0])
    with Engine(graph, Sequence(Sync(kind), Copy(a, b), Sync(kind))) as engine:
        engine.run()
        assert engine["b"].tolist() == [1, 2]


# Timers


def _cycles(words) -> int:
    return int(words[0]) + (int(words[1]) << 32)


def test_cycle_count__of_loops_and_branches__counts_what_ran(way):
    graph = Graph("bow-2000")
    x = graph.variable("f32", (4, 8), "x", initial=1.0).map_rows(range(4))
    taken = _numbers(graph, "taken", True, "bool")
    compute_set = graph.compute_set("halve")
    compute_set.vertices(Halve, tile=range(4), x=x)
    names = ("one", "three", "maybe", "nothing")
    counts = {n: graph.variable("u32", 2, n, initial=0).map(0) for n in names}
    program = Sequence(
        CycleCount(Execute(compute_set), counts["one"]),
        CycleCount(Repeat(3, Execute(compute_set)), counts["three"]),
        CycleCount(If(taken, Repeat(2, Execute(compute_set))), counts["maybe"]),
        CycleCount(Sequence(), counts["nothing"]),
    )
    with Engine(graph, program, **way) as engine:
        engine.run()
        one, three, both, nothing = (_cycles(engine[n]) for n in names)
        engine["taken"] = False
        engine.run()
        neither = _cycles(engine["maybe"])
    # A raw reading holds 45 cycles of its own; what is left is what the report says of the superstep.
    assert nothing == 45
    steps = engine.report.steps
    execute = next(c for c, kind in zip(steps["cycles"], steps["kind"], strict=True) if kind == "compute")
    assert one - 45 == execute > 0
    assert three - 45 == 3 * (one - 45)
    assert both - neither == 2 * (one - 45)


def test_cycle_stamp__advances_with_what_runs_and_starts_again_at_load(way):
    graph = Graph("bow-2000")
    a, b = _numbers(graph, "a", [1, 2]), _numbers(graph, "b", [0, 0])
    before, after = (graph.variable("u32", 2, n, initial=7).map(0) for n in ("before", "after"))
    program = Sequence(CycleStamp(before), Repeat(1000, Copy(a, b)), CycleStamp(after))
    with Engine(graph, program, **way) as engine:
        engine.run()
        assert _cycles(engine["before"]) == 0
        elapsed = _cycles(engine["after"])
        engine.run()
        assert _cycles(engine["after"]) >= 2 * elapsed > 0
        engine.load()
        engine.run()
        assert _cycles(engine["after"]) == elapsed


# Functions


def test_call_with_arguments__copies_in_and_out_for_each_call(way):
    graph = Graph("bow-2000")
    x, y = (_numbers(graph, n, v, "f32") for n, v in (("x", [8.0, 4.0]), ("y", [2.0, 2.0])))
    parameter = graph.variable("f32", 2, "parameter").map(0)
    compute_set = graph.compute_set()
    compute_set.vertex(Halve, tile=0, x=parameter)
    half = graph.function(Execute(compute_set), "half", parameters=[parameter], results=[parameter])
    program = Sequence(Call(half, [x], [y]), Call(half, [y], [x]))
    with Engine(graph, program, **way) as engine:
        engine.run()
        assert engine["y"].tolist() == [4.0, 2.0]
        assert engine["x"].tolist() == [2.0, 1.0]


# Host functions


def test_host_call__gives_inputs_and_takes_outputs(way):
    graph = Graph("bow-2000")
    x, y = _numbers(graph, "x", [[1, 2], [3, 4]]), _numbers(graph, "y", [0.0, 0.0], "f32")
    count = _numbers(graph, "count", 0, "u32")
    function = graph.host_function("sums", [("i32", (2, 2))], [("f32", 2), ("u32", ())])
    body = Sequence(HostCall(function, (x.T,), (y, count)), Copy(x[0].reverse(0), x[0]))
    calls = []

    def sums(values):
        calls.append(values.copy())
        return values.sum(axis=0) * np.float32(0.5), np.uint32(len(calls))

    with Engine(graph, Repeat(2, body), **way) as engine:
        engine.connect_function("sums", sums)
        engine.run()
        np.testing.assert_array_equal(calls, [[[1, 3], [2, 4]], [[2, 3], [1, 4]]])
        assert engine["y"].tolist() == [1.5, 3.5]
        assert engine["count"] == 2


def test_host_call__of_replicas__is_made_for_each_in_order():
    graph = Graph("bow-2000", replicas=2)
    x, y = _numbers(graph, "x", 0), _numbers(graph, "y", 0)
    function = graph.host_function("f", [("i32", ())], [("i32", ())])
    with Engine(graph, HostCall(function, (x,), (y,))) as engine:
        engine["x"] = [5, 6]
        engine.connect_function(function, lambda value, replica: 10 * value + replica)
        engine.run()
        assert engine["y"].tolist() == [50, 61]
        engine.connect_function(function, lambda value: value)
        engine.run()
        assert engine["y"].tolist() == [5, 6]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (lambda x: None, "gave 0 results, it has 1 outputs"),
        (lambda x: (x, x), "gave 2 results, it has 1 outputs"),
        (lambda x: x[:1], r"gave an array of shape \[1\] for output 0, \[2\] fits"),
        (lambda x: x * 0.5, "gave elements of float64 for output 0, which is i32"),
    ],
)
def test_host_call__whose_results_do_not_fit__ends_the_run(result, text):
    graph = Graph("bow-2000")
    x = _numbers(graph, "x", [1, 2])
    function = graph.host_function("f", [("i32", 2)], [("i32", 2)])
    with Engine(graph, HostCall(function, (x,), (x,))) as engine:
        engine.connect_function("f", result)
        with pytest.raises(StreamConnectionError, match=text):
            engine.run()
        engine.connect_function("f", lambda x: x + 1)
        engine.run()
        assert engine["x"].tolist() == [2, 3]


def test_host_call__that_raises__ends_the_run_with_what_it_raised(way):
    class OddError(Exception):
        pass

    def odd(values):
        raise OddError("seven")

    graph = Graph("bow-2000")
    x = _numbers(graph, "x", [1, 2])
    function = graph.host_function("f", [("i32", 2)], [])
    with Engine(graph, HostCall(function, (x,), ()), **way) as engine:
        engine.connect_function("f", odd)
        with pytest.raises(OddError, match="seven"):
            engine.run()


def test_host_call__not_connected__is_named_before_the_run():
    graph = Graph("bow-2000")
    x = _numbers(graph, "x", [1, 2])
    function = graph.host_function("f", [("i32", 2)], [])
    with Engine(graph, [HostCall(function, (x,), ()), Sequence()]) as engine:
        engine.run(1)
        with pytest.raises(StreamConnectionError, match="host function 'f' is not connected"):
            engine.run()
        with pytest.raises(EngineError, match="no host function 'g'"):
            engine.connect_function("g", print)
        with pytest.raises(StreamConnectionError, match="cannot be connected to int"):
            engine.connect_function("f", 3)


# Printed tensors


@pytest.mark.parametrize(
    ("values", "options", "text"),
    [
        ([1.0, 2.5], {}, "[1.0000000 2.5000000]"),
        ([[1, -20], [300, 4]], {}, "[[  1 -20]\n [300   4]]"),
        ([1.0, 2.5], {"digits": 2, "separator": ", ", "open_bracket": "{", "close_bracket": "}"}, "{1.0, 2.5}"),
        ([1e-6, 1.0], {"digits": 1}, "[1.0e-06 1.0e+00]"),
        ([1e-6, 1.0], {"digits": 1, "float_format": "fixed"}, "[0.0 1.0]"),
        ([1.0, 20.0], {"digits": 3, "float_format": "scientific"}, "[1.00e+00 2.00e+01]"),
        ([-100.25, 2.0], {"digits": 5}, "[-100.25    2.00]"),
        ([0.1, 20.0], {"float_format": "none"}, "[ 0.1 20.0]"),
        (range(10), {"summarise_threshold": 9, "edge_items": 2}, "[0 1 ... 8 9]"),
        (
            np.arange(20).reshape(5, 4),
            {"summarise_threshold": 9, "edge_items": 1},
            "[[ 0 ...  3]\n ...\n [16 ... 19]]",
        ),
        (range(6), {"max_line_width": 6}, "[0 1 2\n 3 4 5]"),
        (range(6), {"max_line_width": 0}, "[0 1 2 3 4 5]"),
        ([np.nan, np.inf], {"digits": 1}, "[nan inf]"),
        (7, {}, "7"),
    ],
)
def test_print__with_a_format__looks_like_this(values, options, text):
    array = np.asarray(values)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    assert tensor_text("t", array, PrintTensorFmt(**options)) == f"t: {text}"


def test_print_tensor__of_replicas__says_which():
    graph = Graph("bow-2000", replicas=2)
    index = graph.replica_index()
    with Engine(graph, PrintTensor(index, "me")) as engine:
        engine.print_stream = text = io.StringIO()
        engine.run()
    assert text.getvalue() == "me (replica 0): 0\nme (replica 1): 1\n"


def test_print_tensor__with_a_format__prints_in_the_given_order():
    graph = Graph("bow-2000")
    x = _numbers(graph, "x", [1.0, 2.5], "f32")
    with Engine(graph, PrintTensor("title", x, PrintTensorFmt(digits=1))) as engine:
        engine.print_stream = text = io.StringIO()
        engine.run()
    assert text.getvalue() == "title: [1.0 2.5]\n"
