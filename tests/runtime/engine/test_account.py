"""Accounts: a report tells the truth however often it is asked for, whatever ran before and on whichever engine."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.codelet import CodeletDef
from abele.compiler import Executable, compile_program
from abele.graph import Call, Copy, Execute, Graph, If, Program, Repeat, RepeatWhileTrue, Sequence, Switch, TileMapping
from abele.numerics import f32, i32
from abele.report import Report, Table
from abele.runtime import Engine
from abele.runtime.engine import account as account_module
from support.examples import examples
from support.vertices import Down, Increment, Spin


class Deciding:
    """A program with a while loop, a branch, a switch and vertices whose cost depends on data."""

    def __init__(self, *, replicas: int = 1, tiles: int = 3) -> None:
        self.graph = graph = Graph(f"bow-2000:{replicas}", replicas=replicas)
        self.left = graph.variable(i32, 1, "left", initial=[0]).map(0)
        self.flag = graph.variable(i32, 1, "flag", initial=[0]).map(0)
        self.case = graph.variable(i32, 1, "case", initial=[0]).map(0)
        self.trips = graph.variable(i32, tiles, "trips", initial=[0] * tiles).map_rows(range(tiles))
        self.total = graph.variable(i32, tiles, "total", initial=[0] * tiles).map_rows(range(tiles))
        self.rows = graph.variable(f32, (tiles, 8), "rows").map_rows(range(tiles))
        down, spin = graph.compute_set("down"), graph.compute_set("spin")
        down.vertex(Down, tile=0, left=self.left[0])
        for tile in range(tiles):
            spin.vertex(Spin, tile=tile, trips=self.trips[tile], total=self.total[tile])
        wide = [graph.compute_set(name) for name in ("then", "else", "case 0", "case 1", "default")]
        for number, cs in enumerate(wide):
            for tile in range(number + 1 if number < tiles else 1):
                cs.vertex(Increment, tile=tile, y=self.rows[tile, : 1 + number])
        self.down, self.spin = Execute(down), Execute(spin)
        then, otherwise, first, second, default = map(Execute, wide)
        self.loop = RepeatWhileTrue(Sequence(), self.left[0], self.down)
        self.branch = If(self.flag[0], then, otherwise)
        self.switch = Switch(self.case[0], {0: first, 1: second}, default)

    def program(self) -> Program:
        return Sequence(self.loop, self.branch, self.switch, self.spin)

    def give(self, engine: Engine, trips: int = 0, flag: int = 0, case: int = 0, spins: int = 0) -> None:
        """Write the values by which the next run decides."""
        for name, value in (("left", trips), ("flag", flag), ("case", case), ("trips", spins)):
            shape = engine.read(name).shape
            engine.write(name, np.full(shape, value, np.int32))


def figures(report: Report, program: int = 0) -> dict[str, Any]:
    """All that runs may change in a report, of one program."""
    steps = report.steps.where("program", program)
    columns = ("executions", "cycles", "compute_cycles", "start_cycle", "tile_balance")
    return {
        "cycles": report.cycles(program),
        **{name: steps[name].tolist() for name in columns},
        "basis": steps["basis"].tolist(),
        "balance": report.tile_balance if program == 0 else 0,
    }


def fresh(executable: Executable, give: Callable[[Engine], None], program: int | str = 0) -> Report:
    """The report of an engine that has made one run."""
    with Engine(executable, threads=1) as engine:
        give(engine)
        engine.run(program)
        return engine.report


@pytest.fixture(scope="module")
def made() -> tuple[Deciding, Executable]:
    deciding = Deciding()
    return deciding, compile_program(deciding.graph, deciding.program())


decisions = st.fixed_dictionaries(
    {"trips": st.integers(0, 40), "flag": st.integers(0, 1), "case": st.integers(0, 3), "spins": st.integers(0, 60)}
)


@examples(4)
@given(runs=st.lists(decisions, min_size=1, max_size=4))
def test_report__after_any_runs_before__is_that_of_an_engine_that_made_the_last_alone(made, runs):
    deciding, executable = made
    with Engine(executable, threads=1) as engine:
        for run in runs:
            deciding.give(engine, **run)
            engine.run()
            alone = fresh(executable, lambda other, run=run: deciding.give(other, **run))
            assert figures(engine.report) == figures(alone)
        expected = [fresh(executable, lambda other, run=run: deciding.give(other, **run)).total_cycles for run in runs]
        assert engine.report.runs["cycles"].tolist() == expected
        assert engine.report.total_cycles == expected[-1]
        assert "assumed" not in engine.report.steps["basis"].tolist()


def test_report__of_ten_trips_then_ten_thousand__tells_each_run_its_own():
    deciding = Deciding()
    executable = compile_program(deciding.graph, deciding.spin)
    with Engine(executable) as engine:
        deciding.give(engine, spins=10)
        engine.run()
        few = engine.report
        deciding.give(engine, spins=10_000)
        engine.run()
        many = engine.report
    assert few.runs["cycles"].tolist() == [few.total_cycles]
    assert many.runs["cycles"].tolist() == [few.total_cycles, many.total_cycles]
    assert many.total_cycles > 100 * few.total_cycles
    assert fresh(executable, lambda e: deciding.give(e, spins=10_000)).total_cycles == many.total_cycles
    assert fresh(executable, lambda e: deciding.give(e, spins=10)).total_cycles == few.total_cycles


def test_report__asked_for_twice__is_the_same_and_made_once(made):
    deciding, executable = made
    with Engine(executable) as engine:
        deciding.give(engine, trips=3, spins=5)
        engine.run()
        first, second = engine.report, engine.report
        assert first.steps is second.steps
        assert figures(first) == figures(second)
        deciding.give(engine, trips=3, spins=5)
        engine.run()
        assert engine.report.steps is first.steps
        assert engine.report.meta["figures_of"] == ["run 2"]
        assert first.meta["figures_of"] == ["run 1"]


def test_executable__whatever_engines_run__reports_what_it_assumes(made):
    deciding, executable = made
    before = figures(executable.report)
    fresh(executable, lambda e: deciding.give(e, trips=9, flag=1, case=1, spins=30))
    assert figures(executable.report) == before
    assert figures(executable.report_of(executable.assumptions)) == before
    assert executable.report.meta["figures_of"] == ["assumptions"]
    with Engine(executable) as engine:
        assert figures(engine.report) == before
        assert engine.report.meta["figures_of"] == ["assumptions"]


def test_engines__two_on_one_executable__keep_their_accounts_apart(made):
    deciding, executable = made
    with Engine(executable) as one, Engine(executable) as other:
        deciding.give(one, trips=4, flag=1, spins=7)
        deciding.give(other, trips=11, case=5, spins=70)
        one.run()
        other.run()
        expected = [
            fresh(executable, lambda e: deciding.give(e, trips=4, flag=1, spins=7)),
            fresh(executable, lambda e: deciding.give(e, trips=11, case=5, spins=70)),
        ]
        assert figures(one.report) == figures(expected[0])
        assert figures(other.report) == figures(expected[1])
        assert one.account is not other.account


def test_engines__on_many_threads_at_once__tell_what_each_ran(made):
    deciding, executable = made
    expected = [fresh(executable, lambda e, n=n: deciding.give(e, trips=n, spins=3 * n)) for n in range(6)]
    found: dict[int, list[int]] = {}

    def work(number: int) -> None:
        with Engine(executable, threads=1) as engine:
            for _ in range(8):
                deciding.give(engine, trips=number, spins=3 * number)
                engine.run()
                found.setdefault(number, []).append(engine.report.total_cycles)
            found[number] += engine.report.runs["cycles"].tolist()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [expected[n].total_cycles] * 16 for n in range(6)}


def test_report__asked_for_by_another_thread_during_runs__is_of_a_whole_run(made):
    deciding, executable = made
    allowed = {executable.report.total_cycles} | {
        fresh(executable, lambda e, n=n: deciding.give(e, trips=n, spins=n)).total_cycles for n in (2, 30)
    }
    seen, done = set(), threading.Event()
    with Engine(executable, threads=1) as engine:

        def watch() -> None:
            while not done.is_set():
                report = engine.report
                seen.add(report.total_cycles)
                seen.update(report.runs["cycles"].tolist())

        watcher = threading.Thread(target=watch)
        watcher.start()
        for _ in range(20):
            for number in (2, 30):
                deciding.give(engine, trips=number, spins=number)
                engine.run()
        done.set()
        watcher.join()
        assert engine.report.runs["cycles"].tolist() == sorted(allowed - {executable.report.total_cycles}) * 20
    assert seen <= allowed


def test_programs__several__each_have_the_figures_of_their_own_last_run():
    deciding = Deciding()
    executable = compile_program(
        deciding.graph, {"spin": deciding.spin, "twice": Repeat(2, deciding.spin), "loop": deciding.loop}
    )

    def spins(number: int) -> Callable[[Engine], None]:
        return lambda engine: deciding.give(engine, spins=number, trips=number)

    with Engine(executable) as engine:
        for program, number in (("spin", 5), ("twice", 90), ("spin", 40), ("twice", 8)):
            spins(number)(engine)
            engine.run(program)
        report = engine.report
        assert report.meta["figures_of"] == ["run 3", "run 4", "assumptions"]
        assert figures(report, 0) == figures(fresh(executable, spins(40), "spin"), 0)
        assert figures(report, 1) == figures(fresh(executable, spins(8), "twice"), 1)
        assert figures(report, 2) == figures(executable.report, 2)
        costs = [fresh(executable, spins(n), p).cycles(i).total for p, i, n in
                 (("spin", 0, 5), ("twice", 1, 90), ("spin", 0, 40), ("twice", 1, 8))]  # fmt: skip
        assert report.runs["cycles"].tolist() == costs


def test_function__called_at_two_places__shares_its_trips_out_and_keeps_their_sum():
    deciding = Deciding()
    start = deciding.graph.constant(i32, 1, [6], "start").map(0)
    body = Sequence(Copy(start, deciding.left), deciding.loop)
    function = deciding.graph.function(body)
    program = Sequence(Call(function), Repeat(3, Call(function)))
    with Engine(deciding.graph, program) as engine:
        engine.run()
        steps = engine.report.steps.where("name", "down")
        assert sorted(steps["executions"].tolist()) == [6, 18]


def test_loop_that_is_never_entered__counts_as_known():
    deciding = Deciding()
    program = If(deciding.flag[0], RepeatWhileTrue(Sequence(), deciding.left[0], deciding.down), Sequence())
    with Engine(deciding.graph, program) as engine:
        engine.run()
        assert engine.account.assumed.tolist() == [False] * len(engine.executable.steps)
        assert engine.report.steps.where("name", "down")["executions"].tolist() == [0]


def test_run__that_is_stopped_or_fails__leaves_the_account_as_it_was():
    out, fail = Deciding(), False
    stream = out.graph.host_stream_out("out", i32, (1,))
    program = Sequence(Copy(out.case, stream), out.program(), Copy(out.left, stream))

    def take(values: np.ndarray) -> None:
        if fail:
            raise ValueError("enough")

    with Engine(out.graph, program, threads=1) as engine:
        engine.connect("out", take)
        out.give(engine, trips=5, spins=20)
        engine.run()
        before = figures(engine.report)
        fail = True
        out.give(engine, trips=8, spins=33)
        with pytest.raises(ValueError, match="enough"):
            engine.run()
        assert figures(engine.report) == before
        fail = False
        out.give(engine, trips=5, spins=20)
        engine.run()
        assert figures(engine.report) == before
        assert engine.report.runs["cycles"].tolist() == [engine.report.total_cycles] * 2


def test_stopped_run__has_no_cycles_in_the_table():
    deciding = Deciding()
    stream = deciding.graph.host_stream_out("out", i32, (1,))
    endless = Repeat(10**9, Sequence(deciding.down, Copy(deciding.left, stream)))
    with Engine(deciding.graph, {"endless": endless, "loop": deciding.loop}, threads=1) as engine:
        engine.connect("out", lambda values: engine.stop())
        assert not engine.run("endless")
        deciding.give(engine, trips=4)
        engine.run("loop")
        runs = engine.report.runs
        assert runs["cycles"].tolist() == [0, engine.report.cycles(1).total]
        assert engine.report.meta["figures_of"] == ["assumptions", "run 2"]


def test_reset__of_the_profile__forgets_what_runs_counted(made):
    deciding, executable = made
    with Engine(executable) as engine:
        deciding.give(engine, trips=4, spins=9)
        engine.run()
        engine.reset_execution_profile()
        assert figures(engine.report) == figures(executable.report)
        assert engine.account.executions.tolist() == executable.executions.tolist()
        deciding.give(engine, trips=2)
        engine.run()
        assert engine.report.meta["figures_of"] == ["run 1"]
        assert len(engine.report.runs) == 1


def test_runs__that_are_not_recorded__count_all_the_same(made):
    deciding, executable = made
    with Engine(executable, options={"debug.instrument": False}) as engine:
        deciding.give(engine, trips=4, spins=9)
        engine.run()
        assert figures(engine.report) == figures(fresh(executable, lambda e: deciding.give(e, trips=4, spins=9)))
        assert len(engine.report.runs) == 0


def test_many_runs__that_count_much__are_worked_out_before_they_fill_memory(made, monkeypatch):
    deciding, executable = made
    monkeypatch.setattr(account_module, "_MOST_KEPT_BYTES", 200)
    expected = {n: fresh(executable, lambda e, n=n: deciding.give(e, spins=n)).total_cycles for n in range(3)}
    with Engine(executable) as engine:
        for n in range(30):
            deciding.give(engine, spins=n % 3)
            engine.run()
            assert engine._log.account._kept_bytes <= 400
        assert engine.report.runs["cycles"].tolist() == [expected[n % 3] for n in range(30)]


def test_report__after_each_of_many_equal_runs__is_analysed_once(made, monkeypatch):
    deciding, executable = made
    calls = []
    original = Executable.report_of
    monkeypatch.setattr(Executable, "report_of", lambda self, account: calls.append(1) or original(self, account))
    with Engine(executable) as engine:
        for _ in range(20):
            deciding.give(engine, trips=3, spins=4)
            engine.run()
            assert engine.report.total_cycles > 0
    assert len(calls) == 1


def test_loaded_executable__runs_and_counts_as_the_saved_one(made, tmp_path):
    deciding, executable = made
    fresh(executable, lambda e: deciding.give(e, trips=9, spins=3))
    executable.save(tmp_path / "deciding.abele")
    loaded = Executable.load(tmp_path / "deciding.abele", trusted=True)
    assert figures(loaded.report) == figures(executable.report)
    given = {"trips": 6, "flag": 1, "case": 1, "spins": 12}
    assert figures(fresh(loaded, lambda e: deciding.give(e, **given))) == figures(
        fresh(executable, lambda e: deciding.give(e, **given))
    )


def test_replicas__count_once_for_all_and_vertices_by_their_mean():
    deciding = Deciding(replicas=2)
    executable = compile_program(deciding.graph, Sequence(deciding.loop, deciding.spin))
    with Engine(executable) as engine:
        for spins, trips in ((8, 3), (40, 3)):
            deciding.give(engine, trips=trips, spins=spins)
            engine.run()
            assert engine.report.steps.where("name", "down")["executions"].tolist() == [trips]
        cycles = engine.report.runs["cycles"].tolist()
        assert cycles[1] == engine.report.total_cycles
        assert cycles[1] > cycles[0]
        engine.write("trips", np.array([[8] * 3, [72] * 3], np.int32))
        engine.write("left", np.full((2, 1), 3, np.int32))
        engine.run()
        assert engine.report.total_cycles == cycles[1]


def test_debugger__runs_a_program_by_itself__and_the_account_stays(made):
    deciding, executable = made
    with Engine(executable) as engine:
        deciding.give(engine, trips=5, spins=9)
        engine.run()
        before = figures(engine.report)
        deciding.give(engine, trips=2, spins=30)
        debugger = engine.debug()
        debugger.finish()
        assert figures(engine.report) == before
        assert len(engine.report.runs) == 1
        deciding.give(engine, trips=2, spins=30)
        engine.run()
        assert figures(engine.report) == figures(fresh(executable, lambda e: deciding.give(e, trips=2, spins=30)))


def test_account__given_to_the_executable__makes_its_report_and_listing(made):
    deciding, executable = made
    with Engine(executable) as engine:
        deciding.give(engine, trips=7, flag=1, case=1, spins=11)
        engine.run()
        assert figures(executable.report_of(engine.account)) == figures(engine.report)
        assert executable.cycles_of(0, engine.account) == engine.report.total_cycles
        assert executable.start_cycles(engine.account)[1] == engine.report.total_cycles
        assert "~" not in executable.listing(account=engine.account)
        assert "~" in executable.listing()


def test_summary__where_data_decides__says_which_run_it_is_of(made):
    deciding, executable = made
    assert re.search(r"^figures of +assumptions$", executable.report.summary(), re.M)
    with Engine(executable) as engine:
        for _ in range(2):
            deciding.give(engine, trips=3)
            engine.run()
        assert re.search(r"^figures of +run 2, the last whole one$", engine.report.summary(), re.M)


def test_summary__where_it_decides_nothing__does_not_speak_of_runs():
    deciding = Deciding()
    with Engine(deciding.graph, Repeat(3, deciding.down)) as engine:
        engine.run()
        assert "figures of" not in engine.report.summary()


def test_report__saved_and_loaded__still_says_which_run_it_is_of(made, tmp_path):
    deciding, executable = made
    with Engine(executable) as engine:
        deciding.give(engine, trips=3)
        engine.run()
        engine.report.save(tmp_path / "run.abele-report")
        loaded = Report.load(tmp_path / "run.abele-report")
        assert loaded.meta["figures_of"] == ["run 1"]
        assert figures(loaded) == figures(engine.report)
        assert loaded.runs["cycles"].tolist() == [engine.report.total_cycles]


def contents(value: Any, seen: set[int]) -> Any:
    """All that a compiled object holds, down to the bytes of arrays, as plain data."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if is_dataclass(value) and not isinstance(value, type) and type(value).__module__.startswith("abele.compiler"):
        if id(value) in seen:
            return "again"
        seen.add(id(value))
        return {f.name: contents(getattr(value, f.name), seen) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): contents(v, seen) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [contents(v, seen) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else id(value)


def test_executable__after_runs_reports_and_listings__holds_what_it_held(made):
    deciding, executable = made
    before = contents(executable, set())
    for spins in (3, 300):
        with Engine(executable) as engine:
            deciding.give(engine, trips=spins, flag=1, case=1, spins=spins)
            engine.run()
            engine.report.to_json()
            executable.listing(account=engine.account)
            debugger = engine.debug()
            debugger.finish()
    assert contents(executable, set()) == before
    for vector in (executable.plan[-1].compute.by_tile.values, executable.memory.peak_step):
        with pytest.raises(ValueError, match="read-only"):
            vector[0] = 1


OF_THE_USER = (Graph, Program, CodeletDef, TileMapping)
"""Classes that executables refer to, and users go on building with."""


def arrays(value: Any, path: str, seen: dict[int, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """All arrays that can be reached through public attributes, entries and columns, each with its path."""
    if id(value) in seen or isinstance(value, (*OF_THE_USER, type, str)) or inspect.ismodule(value):
        return
    seen[id(value)] = value
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, Table):
        for name in value.names:
            yield from arrays(value[name] if value[name].dtype != object else value.columns[name], path + name, seen)
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from arrays(entry, f"{path}[{key!r}]", seen)
    elif isinstance(value, list | tuple):
        for number, entry in enumerate(value):
            yield from arrays(entry, f"{path}[{number}]", seen)
    elif type(value).__module__.startswith("abele"):
        slots = [name for kind in type(value).__mro__ for name in kind.__dict__.get("__slots__", ())]
        for name in (*getattr(value, "__dict__", ()), *slots):
            if not name.startswith("_"):
                yield from arrays(getattr(value, name), f"{path}.{name}", seen)


def test_executable_and_reports__every_array_in_them__refuses_to_be_written(made, tmp_path):
    deciding, executable = made
    executable.save(tmp_path / "x")
    for each in (executable, Executable.load(tmp_path / "x")):
        with Engine(each) as engine:
            deciding.give(engine, trips=3, flag=1, case=1, spins=4)
            engine.run()
            report = engine.report
            report.save(tmp_path / "r")
            assert report.compute_cycles_by_tile.sum() + report.memory.bytes.sum() + report.memory.by_tile.sum() > 0
            shown = (each, each.layout, each.report, report, Report.load(tmp_path / "r"), engine.account)
            found = list(arrays(shown, "", {}))
            assert len(found) > 250
            assert [path for path, array in found if array.flags.writeable] == []


def test_reports__whatever_is_written_into_one__others_say_what_they_said(made):
    deciding, executable = made
    with Engine(executable) as engine:
        deciding.give(engine, trips=3, spins=5)
        engine.run()
        for ask in (lambda: executable.report, lambda: engine.report):
            before = ask().to_json()
            report = ask()
            for mapping in (report.target, report.graph, report.meta):
                mapping["cycles"] = -1
            report.meta["programs"].append("another")
            report.meta["figures_of"][0] = "nothing"
            with pytest.raises(TypeError):
                report.steps.columns["cycles"] = report.steps.columns["sync_cycles"]
            with pytest.raises(ValueError, match="read-only"):
                report.steps["cycles"] *= 2
            assert ask().to_json() == before


def test_runs__where_ipus_overlap__have_the_cycles_of_the_last_to_end():
    graph = Graph("bow-2000:2")
    first, second = (graph.system.ipu.num_tiles * n for n in range(2))
    trips = graph.variable(i32, 2, "trips", initial=[0, 0]).map_rows([first, second])
    total = graph.variable(i32, 2, "total", initial=[0, 0]).map_rows([first, second])
    steps = []
    for number, tile in enumerate((first, second)):
        cs = graph.compute_set(f"spin {number}")
        cs.vertex(Spin, tile=tile, trips=trips[number], total=total[number])
        steps.append(Execute(cs))
    with Engine(graph, Sequence(*steps)) as engine:
        totals = []
        for given in ([50, 50], [50, 5000], [50, 50]):
            engine["trips"] = np.array(given, np.int32)
            engine.run()
            totals.append(engine.report.total_cycles)
        assert engine.report.runs["cycles"].tolist() == totals
        assert totals[0] == totals[2] < totals[1]
        assert engine.report.cycles().hidden > 0
