"""Half steps: operands end when inputs are there, results begin with the vertices."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import Executable, compile_program
from abele.graph import Copy, Execute, Graph, Tensor
from abele.graph import Sequence as Steps
from abele.graph.variable import Variable
from abele.numerics import f32
from abele.poplibs import popops
from abele.poplibs.popops.expr import PlaceHolder
from abele.report import Report
from abele.report.tiles import memory_at
from compiler.support import Move, Reader, Writer, small_system
from support.examples import examples

SIZE = 64
BYTES = SIZE * 4


class Machine:
    """A program over vectors; ``x`` is written on tile 0 first, and a step then reads it on ``tile``."""

    def __init__(self, tile: int, *, again: bool = False, own: bool = False) -> None:
        self.graph = Graph(small_system(2))
        places = {"x": 0, "y": tile, "z": 0}
        x, y, z = (self.graph.variable(f32, (SIZE,), name=name).map(on) for name, on in places.items())
        first, step = self.graph.compute_set("first"), self.graph.compute_set("step")
        first.vertex(Writer, tile=0, y=x)
        step.vertex(Move, tile=tile, x=x, y=y)
        step.vertex(Writer, tile=0, y=z)
        if own:
            step.vertex(Reader, tile=0, x=x[:4])
        self.prog = Steps(Execute(first), Execute(step))
        for tensor in (y, z, *([x] if again else [])):
            self.prog.add(Copy(tensor[0], self.graph.variable(f32, (), name=f"{tensor.name}/read").map(1)))

    def temporaries(self) -> list[int]:
        found: list[int] = compile_program(self.graph, self.prog).memory.by_category["temporaries"].tolist()
        return found


def test_half_steps__operand_that_is_only_sent__makes_room_for_a_result() -> None:
    # The other tile holds what arrived, and the result that its vertex makes of it.
    assert Machine(1).temporaries() == [BYTES, 2 * BYTES]


@pytest.mark.parametrize(
    ("tile", "again", "own"),
    [(1, True, False), (1, False, True), (0, False, False)],
    ids=["read again later", "read on its own tile too", "nothing is exchanged"],
)
def test_half_steps__operand_that_stays__lies_beside_the_results(tile: int, again: bool, own: bool) -> None:
    results = 2 if tile == 0 else 1
    assert Machine(tile, again=again, own=own).temporaries()[0] == (1 + results) * BYTES


def test_half_steps__operand_that_is_only_sent__gives_its_address_to_a_result() -> None:
    machine = Machine(1)
    placed = compile_program(machine.graph, machine.prog).memory.addresses_of(0)
    assert placed is not None
    where = {machine.graph.variables[int(v)].name: a for v, a in zip(placed.variable, placed.address, strict=True)}
    assert where["x"] == where["z"]


def test_half_steps__result_in_the_place_of_an_operand__is_there_in_both_halves() -> None:
    graph = Graph(small_system(2))
    x, other, out = (graph.variable(f32, (SIZE,), name=n).map(on) for n, on in (("x", 0), ("other", 1), ("out", 0)))
    first, prog = graph.compute_set("first"), Steps()
    first.vertex(Writer, tile=0, y=x)
    prog.add(Execute(first))
    popops.map_with_output(graph, PlaceHolder(1) + PlaceHolder(2), [x, other], out, prog)
    prog.add(Copy(out[0], graph.variable(f32, (), name="read").map(1)))
    executable = compile_program(graph, prog)
    assert executable.memory.liveness.place.tolist() != list(range(len(executable.memory.liveness.place)))
    # What arrives of the other operand, and one vector that is first the operand, then the result.
    assert executable.memory.half_max_bytes[2:4].tolist() == [2 * BYTES] * 2


def test_half_steps__report__says_which_tiles_only_send() -> None:
    machine = Machine(1)
    report = compile_program(machine.graph, machine.prog).report
    rows = report.sent_tiles.to_lists()
    steps = report.steps["name"].tolist()
    assert [report.variables["name"][v] for v in rows["variable"]] == ["x"]
    assert (rows["first_tile"], rows["num_tiles"], rows["bytes"]) == ([0], [1], [BYTES])
    assert [steps[row] for row in rows["first_step"]] == ["step"]
    first = {report.variables["name"][row["variable"]]: steps[row["first_step"]] for row in report.lifetimes.rows()}
    assert first["y"] == first["z"] == "step"
    use = report.memory_use(tile=0)
    assert sum(v.bytes for v in use.temporaries) + use.moving_bytes == use.categories["temporaries"] == BYTES


# Any program against the definition.


def random_program(seed: int) -> tuple[Graph, Steps]:
    """Steps whose vertices copy pieces of variables from and to any tiles."""
    rng, graph = random.Random(seed), Graph(small_system(4))

    def variable(name: str) -> Tensor:
        made, at = graph.variable(f32, (SIZE,), name=name), 0
        for tile in rng.sample(range(4), rng.randint(1, 4)):
            until = rng.randint(at, SIZE)
            made[at:until].map(tile)
            at = until
        made[at:].map(tile)
        return made

    prog, known = Steps(), [variable("given")]
    for number in range(rng.randint(1, 6)):
        step, out = graph.compute_set(f"step{number}"), variable(f"v{number}")
        whole = rng.random() < 0.8
        for part in range(4):
            begin = part * SIZE // 4
            source = rng.choice(known)[begin : begin + SIZE // 4]
            target = out[begin : begin + SIZE // 4] if whole or part else out[begin : begin + SIZE // 8]
            step.vertex(Move, tile=rng.randrange(4), x=source[: target.size], y=target)
        prog.add(Execute(step))
        known = [*known[-2:], out]
    prog.add(Copy(known[-1], variable("end")))
    return graph, prog


def expected(executable: Executable) -> np.ndarray:
    """Temporaries of each half step on each tile, int64[2 steps, tiles], by the definition."""
    memory, lives = executable.memory, executable.memory.liveness
    graph, tiles = executable.graph, executable.graph.num_tiles
    held = np.zeros((len(graph.variables), tiles), dtype=np.int64)
    held[memory.shares.variable, memory.shares.tile] = memory.shares.padded_bytes
    found = np.zeros((2 * lives.num_steps, tiles), dtype=np.int64)
    for row, candidate in enumerate(lives.owner.tolist()):
        number = int(lives.candidates[candidate])
        found[2 * lives.begin[row] : 2 * lives.end[row]] += held[number]
    for step in executable.lowered.steps:
        superstep = executable.plan[step.superstep]
        halves = slice(2 * step.index, 2 * step.index + 2)
        if superstep.buffer_bytes is not None:
            found[halves] += superstep.buffer_bytes.dense()
        if superstep.rows_before_vertices == 0 or superstep.compute is None:
            continue
        assert isinstance(step.node, Execute)
        access, groups = superstep.access, step.node.compute_set.groups
        for row, candidate in enumerate(lives.owner.tolist()):
            number = int(lives.candidates[candidate])
            if lives.begin[row] == step.index and number in access.complete and number not in access.reads:
                found[2 * step.index] -= held[number]
            if lives.end[row] == step.index + 1 and number in access.reads and number not in access.writes:
                here = set[int]()
                for group in groups:
                    edge = group.edges["x"]
                    for vertex, region in zip(edge.vertex_of_row.tolist(), edge.index.tolist(), strict=True):
                        begin, length = (getattr(edge.regions, name)[region] for name in ("begin", "length"))
                        places = [graph.locate(int(at)) for at in range(begin, begin + length)]
                        on = {(owner.id, _tile_of(owner, element)) for owner, element in places}
                        # These regions are one interval each, which lies on one tile in one piece or on several tiles.
                        if on == {(number, int(group.tile[vertex]))}:
                            here.add(int(group.tile[vertex]))
                for tile in set(range(tiles)) - here:
                    found[2 * step.index + 1, tile] -= held[number, tile]
    return found


def _tile_of(variable: Variable, element: int) -> int:
    mapping = variable.mapping
    return int(mapping.tile[np.searchsorted(mapping.begin, element, side="right") - 1])


@examples(30)
@given(st.integers(0, 1 << 30))
def test_half_steps__any_program__is_as_defined(seed: int) -> None:
    graph, prog = random_program(seed)
    executable = compile_program(graph, prog)
    memory, wanted = executable.memory, expected(executable)
    assert memory.half_bytes.tolist() == wanted.sum(axis=1).tolist()
    assert memory.half_max_bytes.tolist() == wanted.max(axis=1).tolist()
    assert memory.by_category["temporaries"].tolist() == wanted.max(axis=0).tolist()
    check_report(executable.report, wanted)


def check_report(report: Report, wanted: np.ndarray) -> None:
    """Hold the report's rows against the half steps: tile by tile where the liveness table has a row."""
    temporaries = report.memory.bytes[report.memory.categories.index("temporaries")]
    others = report.memory.by_tile - temporaries
    halves = {tuple(row) for row in wanted.tolist()}
    for step in report.liveness["step"].tolist():
        assert tuple((memory_at(report, step) - others).tolist()) in halves
    for tile in range(report.memory.num_tiles):
        use = report.memory_use(tile=tile)
        assert sum(v.bytes for v in use.temporaries) + use.moving_bytes == temporaries[tile]


@examples(30)
@given(st.integers(0, 1 << 30))
def test_half_steps__addresses__what_is_there_at_once_lies_apart(seed: int) -> None:
    graph, prog = random_program(seed)
    memory = compile_program(graph, prog).memory
    lives, shares = memory.liveness, memory.shares
    for placed in memory.addresses:
        tile = int(placed.tiles[0])
        taken = np.zeros((2 * lives.num_steps, placed.top), dtype=np.int64)
        for variable, address, size in zip(placed.variable, placed.address, placed.bytes, strict=True):
            rows = np.flatnonzero(lives.candidates[lives.owner] == variable)
            place = int(np.flatnonzero(shares.tile[shares.of_variable(variable)] == tile)[0])
            for row in rows.tolist():
                early = row in lives.stays and not lives.stays[row][place]
                taken[lives.half_begin[row] : 2 * lives.end[row] - early, address : address + size] += 1
        for step, address, size in zip(placed.step, placed.step_address, placed.step_bytes, strict=True):
            taken[2 * step : 2 * step + 2, address : address + size] += 1
        assert taken.max(initial=0) <= 1
