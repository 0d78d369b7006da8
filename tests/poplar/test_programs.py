"""Programs by Poplar's names, run by an engine, against NumPy."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from abele import graph as g
from abele import poplar
from abele.poplar import BOOL, FLOAT, INT, UNSIGNED_INT, Graph
from abele.poplar.program import (
    Abort,
    AbortOnCondition,
    AssumeEqualAcrossReplicas,
    Block,
    Call,
    Copy,
    CrossReplicaCopy,
    ErrorProgram,
    Execute,
    If,
    PrintTensor,
    Program,
    Repeat,
    RepeatWhileFalse,
    RepeatWhileTrue,
    Sequence,
    Switch,
    Sync,
    SyncType,
    WriteUndef,
)

Array = np.ndarray[Any, Any]


@poplar.codelet
class Increment(poplar.Vertex):
    x: poplar.InOut[INT]
    by: INT

    def compute(self):
        self.x = self.x + self.by


@poplar.codelet
class Less(poplar.Vertex):
    x: poplar.Input[INT]
    limit: INT
    out: poplar.Output[BOOL]

    def compute(self):
        self.out = self.x < self.limit


class Bench:
    """A graph with a counter and what changes it."""

    def __init__(self, replicas: int = 1) -> None:
        model = poplar.IPUModel()
        model.tilesPerIPU, model.numIPUs = 4, replicas
        self.device = model.createDevice()
        self.graph = Graph(self.device, poplar.replication_factor(replicas))
        self.graph.addCodelets([Increment, Less])
        self.count = self.scalar(INT, "count")
        self.graph.createHostRead("count", self.count)
        self.graph.createHostWrite("count", self.count)

    def scalar(self, dtype: Any, name: str, value: float = 0) -> g.Tensor:
        t = self.graph.addVariable(dtype, [], name)
        self.graph.setTileMapping(t, 0)
        self.graph.setInitialValue(t, value)
        return t

    def add(self, by: int) -> Program:
        cs = self.graph.addComputeSet("add")
        v = self.graph.addVertex(cs, "Increment", {"x": self.count, "by": by})
        self.graph.setTileMapping(v, 0)
        return Execute(cs)

    def less(self, limit: int, out: g.Tensor) -> Program:
        cs = self.graph.addComputeSet("less")
        v = self.graph.addVertex(cs, "Less", {"x": self.count, "limit": limit, "out": out})
        self.graph.setTileMapping(v, 0)
        return Execute(cs)

    def run(self, *programs: Program) -> Array:
        with poplar.Engine(self.graph, list(programs)) as engine:
            engine.load(self.device)
            for i in range(len(programs)):
                engine.run(i)
            return engine.readTensor("count")


def test_sequence__list_braces_and_add__run_in_order() -> None:
    b = Bench()
    prog = Sequence([b.add(1), b.add(2)], "steps")
    prog.add(b.add(4))
    assert prog.debug.name == "steps"
    assert b.run(Sequence(prog, Sequence(), Sequence([])), b.add(8)) == 15


def test_program__made_by_default__does_nothing() -> None:
    b = Bench()
    assert isinstance(Program(), Program)
    assert isinstance(b.add(1), Program)
    assert not isinstance(b.count, Program)
    assert b.run(Program(), Sequence([Program(), b.add(3)])) == 3


def test_repeat__any_count__runs_so_often() -> None:
    b = Bench()
    assert b.run(Sequence([Repeat(5, b.add(3), "r"), Repeat(0, b.add(100))])) == 15


@pytest.mark.parametrize(("make", "value"), [(RepeatWhileTrue, 10), (RepeatWhileFalse, 0)])
def test_repeat_while__condition_first__leaves_by_its_predicate(make: Any, value: int) -> None:
    b = Bench()
    small = b.scalar(BOOL, "small")
    assert b.run(make(b.less(10, small), small, b.add(5))) == value


def test_if__by_predicate__runs_one_branch() -> None:
    b = Bench()
    small = b.scalar(BOOL, "small")
    body = Sequence([b.less(1, small), If(small, b.add(7), b.add(100))])
    assert b.run(Sequence([body, body])) == 107


def test_switch__cases_default_and_bounds__run_what_they_say() -> None:
    b = Bench()
    cases = {0: b.add(1), 1: b.add(10)}
    assert b.run(Repeat(3, Switch(b.count, cases, b.add(100)))) == 111
    c = Bench()
    switch = Switch(c.count, {0: c.add(2)})
    switch.add(2, c.add(3))
    assert c.run(Repeat(4, switch)) == 5
    with pytest.raises(poplar.control_program_error, match="a Switch has two cases for 2"):
        switch.add(2, c.add(3))


def test_switch_with_bounds_checking__value_without_case__stops_the_program() -> None:
    b = Bench()
    prog = Repeat(2, Switch.switchWithBoundsChecking(b.count, [(0, b.add(5))]))
    with pytest.raises(poplar.application_runtime_error, match="switch on 'count': no case for this value"):
        b.run(prog)


def test_switch_with_unreachable_default__value_without_case__stops_the_program() -> None:
    b = Bench()
    assert b.run(Switch.switchWithUnreachableDefault(b.count, {0: b.add(5)})) == 5
    with pytest.raises(poplar.application_runtime_error):
        b.run(Sequence([b.add(1), Switch.switchWithUnreachableDefault(b.count, {0: b.add(5)})]))


def test_call__function_of_the_graph__runs_its_body_each_time() -> None:
    b = Bench()
    function = b.graph.addFunction(b.add(4), "four")
    assert function.debug.name == "four"
    assert b.run(Sequence([Call(function), Call(function), Call(function, "third")])) == 12


def test_call__host_function__waits_for_its_result() -> None:
    b = Bench()
    result = b.scalar(INT, "result")
    b.graph.createHostRead("result", result)
    function = b.graph.addHostFunction("square", [(INT, 1)], [(INT, 1)])
    prog = Sequence([b.add(6), Call(function, [b.count], [result])])
    with poplar.Engine(b.graph, prog) as engine:
        engine.connectHostFunction("square", lambda x: x * x)
        engine.loadAndRun(b.device)
        assert engine.readTensor("result") == 36


def test_copy__views_streams_and_remote_rows__move_elements() -> None:
    b = Bench()
    graph = b.graph
    x, y = (graph.addVariable(FLOAT, [2, 3], n) for n in "xy")
    row = b.scalar(UNSIGNED_INT, "row", 1)
    for t in (x, y):
        graph.setTileMapping(t, 1)
    source = graph.addHostToDeviceFIFO("in", FLOAT, 6)
    sink = graph.addDeviceToHostFIFO("out", FLOAT, 6)
    buffer = graph.addRemoteBuffer("rb", FLOAT, 6, 2)
    prog = Sequence(
        [
            Copy(source, x, "fetch"),
            Copy(x, y.reverse(1), False, "turn"),
            Copy(y.flatten(), buffer, row),
            WriteUndef(y),
            Copy(buffer, y.flatten(), row),
            Copy(y, sink),
        ]
    )
    data = np.arange(6, dtype=np.float32)
    got = np.zeros(6, np.float32)
    with poplar.Engine(graph, prog) as engine:
        engine.connectStream("in", data, data.size)
        engine.connectStreamToCallback("out", lambda values: got.__setitem__(slice(None), values.reshape(-1)))
        engine.loadAndRun(b.device)
        expected = data.reshape(2, 3)[:, ::-1].reshape(-1)
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(engine.copyFromRemoteBuffer("rb", np.zeros(6, np.float32), 1), expected)
        engine.copyToRemoteBuffer(2 * data, "rb", 0)
        np.testing.assert_array_equal(engine.copyFromRemoteBuffer("rb"), 2 * data)


def test_stream_callback__function_that_fills_the_buffer__is_asked_for_every_copy() -> None:
    b = Bench()
    x = b.graph.addVariable(FLOAT, [2], poplar.VariableMappingMethod.LINEAR, "x")
    b.graph.createHostRead("x", x)
    calls = []

    def fill(buffer: Array) -> None:
        calls.append(1)
        buffer[...] = len(calls)

    prog = Repeat(3, Copy(b.graph.addHostToDeviceFIFO("in", FLOAT, 2), x))
    with poplar.Engine(b.graph, prog) as engine:
        engine.connectStreamToCallback("in", fill)
        engine.load()
        engine.run()
        assert engine.readTensor("x").tolist() == [3, 3]
        engine.connectStreamToCallback("in", lambda: np.full(2, 9, np.float32))
        engine.run()
        assert engine.readTensor("x").tolist() == [9, 9]
        with pytest.raises(poplar.stream_connection_error, match="cannot be connected for replica 0 alone"):
            engine.connectStreamToCallback("in", 0, fill)


def test_print_tensor__titles_in_either_order__are_printed() -> None:
    b = Bench()
    out = io.StringIO()
    prog = Sequence([PrintTensor("title", b.count), PrintTensor(b.count)])
    with poplar.Engine(b.graph, prog) as engine:
        engine.setPrintTensorStream(out)
        engine.setPrintStream(out)
        engine.loadAndRun(0)
    assert [line.split(":")[0] for line in out.getvalue().splitlines()] == ["title", "count"]


def test_abort__always_or_on_a_condition__stops_with_its_message() -> None:
    b = Bench()
    yes = b.scalar(BOOL, "yes", 1)
    no = b.scalar(BOOL, "no", 0)
    assert b.run(Sequence([AbortOnCondition(no, "never"), b.add(1)])) == 1
    with pytest.raises(poplar.application_runtime_error, match="enough"):
        b.run(Abort("enough"))
    with pytest.raises(poplar.application_runtime_error, match="too much"):
        b.run(AbortOnCondition(yes, "too much"))
    with pytest.raises(poplar.runtime_error, match="it went wrong"):
        b.run(ErrorProgram("it went wrong", b.count))


def test_execute__with_an_output_tensor__is_refused_with_a_way_out() -> None:
    b = Bench()
    cs = b.graph.addComputeSet("cs")
    assert Execute(cs, "named").debug.name == "named"
    with pytest.raises(poplar.control_program_error, match="Execute does not collect what the vertices return"):
        Execute(cs, b.count)


def test_cycle_count__of_a_sequence__counts_what_was_in_it() -> None:
    b = Bench()
    short, long = Sequence([b.add(1)]), Sequence([Repeat(100, b.add(1))])
    times = [poplar.cycleCount(b.graph, p, 0, SyncType.INTERNAL) for p in (short, long)]
    stamp = poplar.cycleStamp(b.graph, long, 0)
    for name, t in zip(("short", "long", "stamp"), (*times, stamp), strict=True):
        b.graph.createHostRead(name, t)
    prog = Sequence([short, long, Block(Sync(SyncType.INTERNAL), "barrier")])
    with poplar.Engine(b.graph, prog) as engine:
        engine.loadAndRun()
        cycles = {n: engine.readTensor(n).view(np.uint64).item() for n in ("short", "long", "stamp")}
        assert engine.readTensor("count") == 101
    assert 0 < cycles["short"] < cycles["long"] < cycles["stamp"]
    assert cycles["long"] > 50 * cycles["short"] / 2


def test_floating_point_behaviour__set_modified_and_reset__is_appended() -> None:
    b = Bench()
    prog = Sequence()
    mine = poplar.FloatingPointBehaviour(inv=False, div0=True, oflo=False, esr=False, nanoo=True)
    poplar.setFloatingPointBehaviour(b.graph, prog, mine)
    poplar.setStochasticRounding(b.graph, prog, True)
    none = poplar.FloatingPointBehaviour(False, False, False, False, False)
    clear = poplar.FloatingPointBehaviour(False, True, False, True, False)
    before = poplar.getAndModifyFloatingPointBehaviour(b.graph, prog, clear, none)
    poplar.resetFloatingPointBehaviour(b.graph, prog, before)
    assert [before.inv, before.div0, before.oflo, before.esr, before.nanoo] == [False, True, False, True, True]
    set_ = [step.fields for step in prog if isinstance(step, g.SetFloatingPointBehaviour)]
    assert set_[1] == {"stochastic_rounding": True}
    assert (set_[2]["divide_by_zero"], set_[2]["stochastic_rounding"]) == (False, False)
    assert set_[3]["stochastic_rounding"]
    assert b.run(Sequence([prog, b.add(1)])) == 1


def test_hw_seeds__read_and_written_back__are_steps_of_the_program() -> None:
    b = Bench()
    prog = Sequence()
    seeds = poplar.getHwSeeds(b.graph, prog)
    assert seeds.shape == (4, 6, 4)
    poplar.setHwSeeds(b.graph, seeds, prog)
    assert [type(step) for step in prog] == [g.GetHwSeeds, g.SetHwSeeds]
    assert b.run(Sequence([prog, b.add(1)])) == 1
    assert b.graph.getTileMapping(seeds)[3] == [(72, 96)]
    with pytest.raises(poplar.control_program_error, match=r"hardware seeds are u32\[4, 6, 4\]"):
        poplar.setHwSeeds(b.graph, b.count, prog)


def test_cross_replica_copy__ring__moves_to_the_next_replica() -> None:
    b = Bench(replicas=2)
    index = b.graph.addReplicationIndexConstant()
    mine, other = (b.scalar(UNSIGNED_INT, n) for n in ("mine", "other"))
    b.graph.createHostRead("other", other)
    prog = Sequence(
        [Copy(index, mine), CrossReplicaCopy(mine, other, {0: 1, 1: 0}), AssumeEqualAcrossReplicas(b.count)]
    )
    with poplar.Engine(b.graph, prog) as engine:
        engine.loadAndRun(b.device)
        assert engine.readTensor("other").reshape(-1).tolist() == [1, 0]


# --- engine ---------------------------------------------------------------------------------------------------------


def test_engine__every_form_of_the_constructor__runs() -> None:
    b = Bench()
    prog = b.add(1)
    seen: list[tuple[int, int]] = []
    executable = poplar.compileGraph(b.graph, [prog], {"debug.instrument": "true"}, lambda i, n: seen.append((i, n)))
    assert seen[-1] == (100, 100)
    forms = [(b.graph, prog), (b.graph, [prog], {}), (b.device, b.graph, [prog]), (executable,)]
    for form in [*forms, (executable, poplar.OptionFlags())]:
        with poplar.Engine(*form) as engine:
            engine.prepare(b.device)
            engine.deploy()
            engine.run()
            assert engine.readTensor("count") == 1


def test_engine__flat_memory_in_and_out__is_reshaped() -> None:
    b = Bench()
    x = b.graph.addVariable(FLOAT, [2, 3], poplar.VariableMappingMethod.LINEAR, "x")
    b.graph.createHostWrite("w", x)
    b.graph.createHostRead("r", x)
    data = np.arange(8, dtype=np.float32)
    out = np.zeros(6, np.float32)
    with poplar.Engine(b.graph, b.add(1)) as engine:
        engine.load(b.device)
        engine.writeTensor("w", data, 6)
        assert engine.readTensor("r", out, out.size) is out
        np.testing.assert_array_equal(out, data[:6])
        with pytest.raises(poplar.tensor_io_state_error, match="has 6 elements, it was given 8"):
            engine.writeTensor("w", data)
        with pytest.raises(poplar.tensor_io_state_error, match="has 6 elements, there is room for 8"):
            engine.readTensor("r", data)
        with pytest.raises(poplar.tensor_io_state_error, match="no host handle is called 'q'"):
            engine.readTensor("q")
        with pytest.raises(poplar.tensor_io_state_error, match="the host cannot write 'r'"):
            engine.writeTensor("r", out)


def test_engine__profile_and_timing__are_told() -> None:
    b = Bench()
    out = io.StringIO()
    with poplar.Engine(b.graph, b.add(1)) as engine:
        engine.load(b.device)
        start = engine.getTimeStamp()
        engine.run(0, "first")
        assert "s on the host" in engine.reportTiming(start)
        assert engine.getTileClockFrequency() == 1.33e9
        engine.printProfileSummary(out, {"showExecutionSteps": "true"})
        assert len(engine.getProfile().runs) == 1
        engine.resetExecutionProfile()
        engine.disableExecutionProfiling()
        engine.run()
        assert len(engine.getReport().runs) == 0
        with pytest.raises(poplar.profiling_disabled, match="there is no execution profile"):
            engine.getProfile()
        engine.enableExecutionProfiling()
    assert "one step" in out.getvalue()
    assert "first" in out.getvalue()


def test_engine__device_of_another_size__is_refused() -> None:
    b = Bench()
    other = poplar.IPUModel().createDevice()
    with pytest.raises(poplar.poplar_error, match="was made for 1 × 4 tiles of GC200, the device has 1 × 1472 tiles"):
        poplar.Engine(other, b.graph, b.add(1))
    with poplar.Engine(b.graph, b.add(1)) as engine, pytest.raises(poplar.poplar_error, match="was made for"):
        engine.load(other)


def test_tensor_functions__concat_and_append__join_views() -> None:
    b = Bench()
    x, y = (b.graph.addVariable(FLOAT, [2, 3], n) for n in "xy")
    assert poplar.concat(x, y).shape == (4, 3)
    assert poplar.concat(x, y, 1).shape == (2, 6)
    assert poplar.concat([x, y, x], 1).shape == (2, 9)
    assert poplar.append(x, y[0]).shape == (3, 3)
    assert poplar.append(x, y[:, 0], 1).shape == (2, 4)


def test_types__names_and_conversions__are_the_devices() -> None:
    assert [t.toString() for t in (FLOAT, poplar.HALF, UNSIGNED_INT, poplar.UNSIGNED_SHORT, poplar.CHAR)] == [
        "float",
        "half",
        "unsigned int",
        "unsigned short",
        "signed char",
    ]
    assert poplar.equivalent_device_type(float).value is FLOAT
    assert poplar.equivalent_device_type(np.uint16).value is poplar.UNSIGNED_SHORT
    with pytest.raises(poplar.type_error, match="no 64-bit floating point"):
        _ = poplar.equivalent_device_type(np.float64).value
    values = np.array([1.0, 0.1, -65504.0], np.float32)
    bits = np.zeros(3, np.uint16)
    poplar.copyFloatToDeviceHalf(None, values, bits)
    np.testing.assert_array_equal(bits.view(np.float16), values.astype(np.float16))
    np.testing.assert_array_equal(poplar.copyDeviceHalfToFloat(None, bits), values.astype(np.float16))
    np.testing.assert_array_equal(
        poplar.convertFromDeviceType("half", poplar.convertToDeviceType("half", values)), values.astype(np.float16)
    )
    with pytest.raises(poplar.type_error, match="float32 holds no half-precision numbers"):
        poplar.copyDeviceHalfToFloat(None, values)
