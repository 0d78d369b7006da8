"""Text forms, held to golden files; ``pytest tests/compiler --update-golden`` writes them anew."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from abele.compiler import Executable, compile_program, mapping_text, program_text
from abele.compiler.text.words import WIDTH
from abele.errors import TileMappingError
from abele.graph import (
    AbortOnCondition,
    AssumeEqualAcrossReplicas,
    Block,
    Call,
    Copy,
    CrossReplicaCopy,
    CycleCount,
    CycleStamp,
    ErrorProgram,
    Execute,
    GetHwSeeds,
    Graph,
    HostCall,
    If,
    PrintTensor,
    Program,
    Repeat,
    RepeatWhileTrue,
    Sequence,
    SetFloatingPointBehaviour,
    SetHwSeeds,
    Switch,
    Sync,
    WriteUndef,
    shared,
)
from abele.numerics import bool_, f32, i32, u32
from abele.words import tiles_text
from compiler.support import Multi, Reader, Update, Writer, small_system
from support.vertices import Increment

Golden = Callable[[str, str], None]


class Example:
    """A program with every kind of node."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.x = graph.variable(f32, (80,), "x").map(0)
        self.y = graph.variable(f32, (8, 5), "y").map_rows(range(8))
        self.b = graph.variable(f32, (40,), "b").map(2)
        self.flag = graph.variable(bool_, (), "flag").map(3)
        self.control = graph.variable(i32, (), "control").map(3)
        self.cycles = graph.variable(u32, (2,), "cycles").map(1)
        self.seeds = graph.variable(u32, (8, 6, 4), "seeds").map(0)
        self.cs = graph.compute_set("step")
        self.cs.vertices(Update, tile=range(8), x=self.x.reshape(10, 8).T[:, :5], y=self.y)
        self.cs.vertex(Writer, tile=5, y=self.x[41:44])
        self.function = graph.function(Execute(self.cs), "step twice")

    def program(self) -> Sequence:
        graph, y, b = self.graph, self.y, self.b
        into, out = graph.host_stream_in("in", f32, (8, 5)), graph.host_stream_out("out", f32, (8, 5))
        weights, rows = graph.remote_buffer("weights", f32, 40, 4), graph.variable(u32, (1,), "rows").map(0)
        ask = graph.host_function("ask", [(f32, (8, 5))], [(f32, (40,))])
        main = Sequence(
            Copy(into, y),
            Copy(weights, b, offset=rows),
            Repeat(10, Sequence(Call(self.function), Copy(y.T.flatten(), b))),
            RepeatWhileTrue(Sequence(), self.flag, Call(self.function)),
            Block(If(self.flag, Copy(b[:39], b[1:])), "shift"),
            Switch(self.control, {1: Sync("external"), 2: AbortOnCondition(self.flag, "stop")}),
            CycleCount(Call(self.function), self.cycles),
            CycleStamp(self.cycles, tile=7),
            HostCall(ask, (y,), (b,)),
            GetHwSeeds(self.seeds),
            SetHwSeeds(self.seeds),
            SetFloatingPointBehaviour(stochastic_rounding=True, invalid=False),
            AssumeEqualAcrossReplicas(self.flag),
            CrossReplicaCopy(b, b, {0: 0}),
            PrintTensor(b, "b now"),
            Copy(y, out),
            WriteUndef(b),
            If(self.flag, ErrorProgram("flag is set", self.flag)),
        )
        with graph.library_call(main, "popops.map", inputs=(y,), outputs=(y,)) as body:
            body.add(Execute(self.cs))
        return main


@pytest.fixture
def example(graph: Graph) -> Example:
    return Example(graph)


def test_program_text__every_node__reads_as_a_tree(example: Example, golden: Golden) -> None:
    golden("program", program_text(example.program()))


def test_program_text__with_lines__names_file_and_line(example: Example) -> None:
    text = program_text(Sequence(Call(example.function), Copy(example.b, example.x[:40])), lines=True)
    assert re.search(r"^call step twice  \(test_text\.py:\d+\)$", text, re.MULTILINE)
    assert re.search(r"^copy b f32\[40\] → x f32\[40\]  \(test_text\.py:\d+\)$", text, re.MULTILINE)


def test_program_text__long_program__is_bounded(graph: Graph) -> None:
    b = graph.variable(f32, (40,), "b").map(2)
    text = program_text(Sequence(*(WriteUndef(b) for _ in range(50))), most=10).splitlines()
    assert len(text) == 11
    assert text[-1] == "… 40 more"


def test_program_text__empty_program__says_nothing() -> None:
    assert program_text(Sequence()) == "nothing"


def test_listing__every_step__with_cycles_and_reasons(example: Example, golden: Golden) -> None:
    golden("listing", compile_program(example.graph, example.program()).listing())


def test_listing__several_programs__are_listed_apart(example: Example) -> None:
    found = compile_program(example.graph, {"first": Call(example.function), "second": Sync()})
    text = found.listing(reasons=False)
    assert text.count("program '") == 2
    assert "program 'second': 1 step, 64 cycles per run" in text


def test_listing__after_a_run__marks_no_step_as_assumed(example: Example) -> None:
    found = compile_program(example.graph, RepeatWhileTrue(Sequence(), example.flag, Call(example.function)))
    assert found.listing().count("~1") == 2
    assert found.report.graph["num_assumed_steps"] == 2
    account = found.account_of([6, 5])
    assert "~" not in found.listing(account=account)
    assert f"{found.cycles_of(0, account):,} cycles per run" in found.listing(account=account)
    assert found.report_of(account).graph["num_assumed_steps"] == 0


def test_mapping_text__variables__with_tiles_and_bytes(example: Example, golden: Golden) -> None:
    graph = example.graph
    spread = graph.variable(f32, (100,), "spread").map_linear(min_elements=7)
    assert spread.size == 100
    graph.variable(f32, (4, 4), "half")[:2].map(6)
    graph.variable(f32, (3,), "nowhere")
    graph.variable(f32, (0,), "empty")
    graph.variable(f32, (8, 2), "alternating").map_rows([0, 1] * 4)
    graph.constant(f32, (), 1.0, "one")
    golden("mapping", mapping_text(graph))


def test_mapping_text__many_variables__is_bounded(graph: Graph) -> None:
    for number in range(30):
        graph.variable(f32, (1,), f"v{number}").map(0)
    assert mapping_text(graph, most=10).splitlines()[-1] == "… 20 more"


def test_plan_text__superstep__shows_pieces_of_each_field(example: Example, golden: Golden) -> None:
    golden("plan", compile_program(example.graph, Execute(example.cs)).plan_text(0))


def test_plan_text__pieces__are_those_of_the_wiring(graph: Graph) -> None:
    x = graph.variable(f32, (4, 10), "x").map_rows([1, 2, 3, 4])
    cs = graph.compute_set("step")
    cs.vertex(Reader, tile=0, x=x[:, 3:5].flatten())
    text = compile_program(graph, Execute(cs)).plan_text(0)
    assert "vertex Reader.x on tile 0: 4 pieces gathered from tiles 1 to 4, 32 B" in text
    for row in range(4):
        assert re.search(rf"tile +0 ← tile +{row + 1}  x\[{10 * row + 3}:{10 * row + 5}\) +8 B", text)


def test_plan_text__step_that_moves_nothing__says_so(graph: Graph) -> None:
    x = graph.variable(f32, (8, 5), "x").map_rows(range(8))
    cs = graph.compute_set("step")
    cs.vertices(Increment, tile=range(8), y=x)
    found = compile_program(graph, Execute(cs))
    assert found.plan_text(found.steps[0]).splitlines()[1:] == ["  nothing moves"]


def test_memory_text__tile__shows_what_fills_it(example: Example, golden: Golden) -> None:
    found = compile_program(example.graph, example.program())
    golden("memory", found.memory_text(0) + "\n\n" + found.memory_text(5))


def test_memory_text__amounts__add_up(example: Example) -> None:
    found = compile_program(example.graph, example.program())
    for tile in range(8):
        first, *rest = found.memory_text(tile).splitlines()
        parts = [int(m[1].replace(",", "")) for line in rest if (m := re.match(r"  \w[\w ]+? +([\d,]+) B", line))]
        assert sum(parts) == int(found.memory.total_bytes[tile])
        assert f"{sum(parts):,} B of" in first


def test_memory_text__many_variables__shows_the_largest_and_sums_up_the_rest(graph: Graph) -> None:
    cs = graph.compute_set("step")
    for number in range(20):
        cs.vertex(Increment, tile=0, y=graph.variable(f32, (number + 1,), f"v{number}").map(0))
    text = compile_program(graph, Execute(cs)).memory_text(0)
    assert re.search(r"v19 +80 B\n +v18 +76 B", text)
    assert re.search(r"\n +v8 +36 B\n +8 more +144 B\n", text)
    assert "20 × Increment" in text


def test_memory_text__tile_that_is_too_full__says_by_how_much(graph: Graph) -> None:
    x = graph.variable(f32, (200_000,), "x").map(3)
    cs = graph.compute_set("step")
    cs.vertex(Increment, tile=3, y=x)
    found = compile_program(graph, Execute(cs), allow_out_of_memory=True)
    over = int(found.memory.total_bytes[3]) - found.memory.available_bytes
    assert f"{over:,} B too much" in found.memory_text(3)


def test_memory_text__tile_that_is_not_there__is_refused(example: Example) -> None:
    found = compile_program(example.graph, Call(example.function))
    with pytest.raises(TileMappingError, match="there is no tile 8: small-8 has 8 tiles"):
        found.memory_text(8)


def test_texts__of_a_large_program__fit_the_page() -> None:
    graph = Graph(small_system(64))
    x = graph.variable(f32, (640, 100), "a variable with a name that is rather long for a table").map_rows(
        np.arange(640) % 64
    )
    steps: list[Program] = []
    for number in range(20):
        cs = graph.compute_set(f"a compute set with a name that is rather long, number {number}")
        cs.vertices(Multi, tile=np.arange(640) % 64, x=x)
        cs.vertices(Reader, tile=np.arange(64), x=shared(x[5]))
        steps.append(Repeat(3, Execute(cs)))
    found = compile_program(graph, Sequence(*steps))
    for text in (
        program_text(Sequence(*steps)),
        found.listing(),
        mapping_text(graph),
        found.plan_text(0),
        found.memory_text(3),
    ):
        lines = text.splitlines()
        assert max(map(len, lines)) <= WIDTH
        assert len(lines) < 200


@pytest.mark.parametrize(
    ("tiles", "text"),
    [
        ([], "no tile"),
        ([3, 3], "tile 3"),
        ([0, 1, 2, 3], "tiles 0 to 3"),
        ([0, 1], "tiles 0, 1"),
        ([1, 4, 9], "tiles 1, 4, 9"),
        (range(0, 3000, 2), "1,500 tiles, 0 to 2,998"),
    ],
)
def test_tiles_text__of_each_form(tiles: list[int], text: str) -> None:
    assert tiles_text(np.array(tiles, dtype=np.int32)) == text


def test_steps_of__nodes__are_found_quickly_and_in_order(example: Example) -> None:
    body = example.function.body
    found: Executable = compile_program(example.graph, Sequence(Call(example.function), Sync(), Call(example.function)))
    assert [s.index for s in found.steps_of(body)] == [0, 2]
    assert found.steps_of(Sync()) == []
