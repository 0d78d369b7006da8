"""Overlays: results in the places of operands that die; nothing else is overwritten."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import Executable, compile_program
from abele.graph import Copy, Graph, If, Repeat, Tensor
from abele.graph import Sequence as Steps
from abele.numerics import ElementType, bool_, f16, f32
from abele.poplibs import popops
from abele.poplibs.popops.expr import PlaceHolder
from compiler.support import small_system
from support.examples import examples

SIZE = 64
BYTES = SIZE * 4
_1, _2 = PlaceHolder(1), PlaceHolder(2)


class Machine:
    """A program over vectors, on tile 0 unless they say otherwise."""

    def __init__(self) -> None:
        self.graph = Graph(small_system(2))
        self.prog = Steps()

    def new(self, name: str, dtype: ElementType = f32, tile: int = 0) -> Tensor:
        return self.graph.variable(dtype, (SIZE,), name=name).map(tile)

    def read(self, tensor: Tensor) -> None:
        """Let the last reader of a value be here: a sum that the host takes."""
        total = self.graph.variable(tensor.dtype, (), name=f"{tensor.name}/read").map(1)
        self.prog.add(Copy(tensor[0], total))

    def compiled(self, prog: Steps | None = None) -> Executable:
        return compile_program(self.graph, prog or self.prog)


def map_to(m: Machine, out: Tensor, *operands: Tensor, prog: Steps | None = None) -> None:
    expression = _1 * 2.0 if len(operands) == 1 else _1 + _2
    popops.map_with_output(m.graph, expression, operands, out, m.prog if prog is None else prog)


def temporaries(executable: Executable, tile: int = 0) -> int:
    return int(executable.memory.by_category["temporaries"][tile])


def addresses(executable: Executable, tile: int = 0) -> dict[str, int]:
    placed = executable.memory.addresses_of(tile)
    assert placed is not None
    names = [executable.graph.variables[int(v)].name for v in placed.variable]
    return dict(zip(names, placed.address.tolist(), strict=True))


def test_overlays__chain_of_maps__takes_the_memory_of_one() -> None:
    m = Machine()
    a, x, y, z = (m.new(n) for n in "axyz")
    for made, of in ((x, a), (y, x), (z, y)):
        map_to(m, made, of)
    m.read(z)
    found = m.compiled()
    # What nobody wrote before is kept for the next run.
    assert bool(found.memory.liveness.always_live[a.variables[0].id])
    assert temporaries(found) == BYTES
    where = addresses(found)
    assert where["x"] == where["y"] == where["z"] != where["a"]
    assert found.memory.step_max_bytes.max() == BYTES


def test_overlays__operand_that_is_read_again__keeps_its_place() -> None:
    m = Machine()
    a, x, y = (m.new(n) for n in "axy")
    map_to(m, x, a)
    map_to(m, y, x)
    m.read(x)
    m.read(y)
    assert temporaries(m.compiled()) == 2 * BYTES


def test_overlays__both_operands_die__result_takes_the_place_of_one() -> None:
    m = Machine()
    a, x, y, z = (m.new(n) for n in "axyz")
    map_to(m, x, a)
    map_to(m, y, a)
    map_to(m, z, x, y)
    m.read(z)
    assert temporaries(m.compiled()) == 2 * BYTES


def test_overlays__two_results_of_one_operand__one_takes_its_place() -> None:
    m = Machine()
    a, x, y, z = (m.new(n) for n in "axyz")
    map_to(m, x, a)
    popops.map_with_outputs(m.graph, [_1 * 2.0, _1 * 3.0], [x], [y, z], m.prog)
    m.read(y)
    m.read(z)
    found = m.compiled()
    assert temporaries(found) == 2 * BYTES
    assert len({addresses(found)[n] for n in "xyz"}) == 2


@pytest.mark.parametrize(("carried", "places"), [(False, 1), (True, 2)])
def test_overlays__in_a_loop__what_it_carries_keeps_a_place(carried: bool, places: int) -> None:
    m = Machine()
    a, x, y, z = (m.new(n) for n in "axyz")
    turn = Steps()
    if carried:
        map_to(m, x, a)
    for made, of in ((y, x), (z, y)) if carried else ((x, a), (y, x), (z, y)):
        map_to(m, made, of, prog=turn)
    m.prog.add(Repeat(3, turn))
    m.read(z)
    assert temporaries(m.compiled()) == places * BYTES


@pytest.mark.parametrize("case", ["type", "tile", "order", "broadcast", "copy"])
def test_overlays__what_lies_otherwise__keeps_its_place(case: str) -> None:
    m = Machine()
    a, x, y = m.new("a"), m.new("x"), m.new("y", f16 if case == "type" else f32, 1 if case == "tile" else 0)
    map_to(m, x, a)
    match case:
        case "order":
            map_to(m, y, x[::-1])
        case "broadcast":
            map_to(m, y, a, x[0:1])
        case "copy":
            m.prog.add(Copy(x, y))
        case _:
            map_to(m, y, x)
    m.read(y)
    found = m.compiled()
    assert len(found.memory.liveness.place) == len(set(found.memory.liveness.place.tolist()))


def test_overlays__report__says_what_keeps_an_operand_that_is_overlaid() -> None:
    m = Machine()
    a, x, y = (m.new(n) for n in "axy")
    big = m.graph.variable(f32, (4 * SIZE,), name="big").map(0)
    popops.map_with_output(m.graph, _1 * 1.0, [a], x, m.prog, name="first")
    popops.zero(m.graph, big, m.prog, "peak")
    m.read(big[0:SIZE])
    popops.map_with_output(m.graph, _1 * 2.0, [x], y, m.prog, name="last")
    m.read(y)
    report = m.compiled().report
    held = {v.name: v.why for v in report.memory_use(0).temporaries}
    assert held["x"].startswith("kept for last")
    assert "big" in held


# --- any program: memory by address, one write after the other --------------------------------------------------------


@dataclass(frozen=True)
class Do:
    """A step, a loop or a branch over some variables."""

    kind: str
    out: int = 0
    operands: tuple[int, ...] = ()
    bodies: tuple[tuple[Do, ...], ...] = ()
    count: int = 1


NUM = 6
_number = st.integers(0, NUM - 1)
_step = st.one_of(
    st.builds(lambda o, a, b: Do("map", o, (a, b)), _number, _number, _number),
    st.builds(lambda o, a: Do("map", o, (a,)), _number, _number),
    st.builds(lambda o: Do("zero", o), _number),
    st.builds(lambda o, a: Do("copy", o, (a,)), _number, _number).filter(lambda d: d.out != d.operands[0]),
)


def _blocks(inner: Any) -> Any:
    body = st.lists(inner, min_size=1, max_size=4).map(tuple)
    return st.one_of(
        _step,
        _step,
        st.builds(lambda b, n: Do("repeat", bodies=(b,), count=n), body, st.integers(1, 3)),
        st.builds(lambda b, c: Do("if", bodies=(b, c)), body, body),
    )


_programs = st.lists(st.recursive(_step, _blocks, max_leaves=8), min_size=2, max_size=10)


def emitted(m: Machine, vectors: Sequence[Tensor], does: Sequence[Do], condition: Tensor) -> Steps:
    prog = Steps()
    for do in does:
        out = vectors[do.out]
        match do.kind:
            case "map":
                map_to(m, out, *(vectors[n] for n in do.operands), prog=prog)
            case "zero":
                popops.zero(m.graph, out, prog)
            case "copy":
                prog.add(Copy(vectors[do.operands[0]], out))
            case "repeat":
                prog.add(Repeat(do.count, emitted(m, vectors, do.bodies[0], condition)))
            case _:
                prog.add(If(condition, *(emitted(m, vectors, body, condition) for body in do.bodies)))
    return prog


def executed(does: Sequence[Do], ways: Iterator[bool]) -> Iterator[Do]:
    """Steps in the order in which they run; each branch goes the next of some ways."""
    for do in does:
        match do.kind:
            case "repeat":
                for _ in range(do.count):
                    yield from executed(do.bodies[0], ways)
            case "if":
                yield from executed(do.bodies[0 if next(ways) else 1], ways)
            case _:
                yield do


@examples(60)
@given(_programs, st.integers(0, 3), st.integers(0, NUM))
def test_overlays__any_program__reads_what_was_written_last(does: list[Do], seed: int, far: int) -> None:
    m = Machine()
    vectors = [m.new(f"v{n}", tile=1 if n == far else 0) for n in range(NUM)]
    condition = m.graph.variable(bool_, (), name="condition").map(0)
    found = m.compiled(emitted(m, vectors, does, condition))
    placed = [found.memory.addresses_of(tile) for tile in range(2)]
    where: dict[int, tuple[int, int]] = {}
    for tile, each in enumerate(placed):
        if each is not None:
            where |= {int(v): (tile, int(a)) for v, a in zip(each.variable, each.address, strict=True)}
    # Each address says whose value it holds, and which of its values.
    holds: dict[tuple[int, int], tuple[int, int]] = {}
    version = dict.fromkeys(range(NUM), 0)

    def write(number: int) -> None:
        version[number] += 1
        tile, address = where[vectors[number].variables[0].id]
        holds.update({(tile, at): (number, version[number]) for at in range(address, address + BYTES, 8)})

    always = found.memory.liveness.always_live
    for number in range(NUM):
        if always[vectors[number].variables[0].id]:
            write(number)
    ways = random.Random(seed)
    choices = iter(lambda: ways.random() < 0.5, None)
    for do in executed([*does, *does], choices):
        for number in do.operands:
            tile, address = where[vectors[number].variables[0].id]
            read = {holds.get((tile, at)) for at in range(address, address + BYTES, 8)}
            assert read == {(number, version[number])}, (do, number)
        write(do.out)
    # No packing goes below what is live at the worst step.
    for tile, each in enumerate(placed):
        if each is not None:
            assert each.top >= int(found.memory.least_total[tile]) - int(found.memory.categories["gaps"][tile])
