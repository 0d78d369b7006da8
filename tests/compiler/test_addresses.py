"""Addresses on tiles: packing of lifetimes, and what a program that does not pack says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.codelet import SPAN, InOut, Input, Output, Vector, Vertex, codelet
from abele.compiler import Executable, compile_program
from abele.compiler.addresses import Items, pack
from abele.errors import OutOfMemoryError
from abele.graph import Copy, Execute, Graph
from abele.graph import Sequence as Steps
from abele.machine import TileMemory
from abele.numerics import f32
from compiler.support import small_system

MEMORY = small_system().ipu.tile
STEPS = 12
Piece = tuple[int, int, int]


@codelet
class Wide(Vertex):
    x: InOut[Vector[f32, SPAN, 8, True]]

    def compute(self):
        for i in range(len(self.x)):
            self.x[i] += 1.0


@codelet
class FarApart(Vertex):
    constraints = "elem(*a) != elem(*b)"
    a: Input[Vector[f32]]
    b: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.b)):
            self.b[i] = self.a[i]


def items_of(pieces: Sequence[Piece], **others: object) -> Items:
    """Items of one lifetime each: bytes, first step, end."""
    size, begin, end = np.array(pieces, dtype=np.int64).reshape(-1, 3).T.copy()
    given = {
        "alignment": np.full(len(size), 8),
        "lowest": np.zeros(len(size), dtype=np.int64),
        "ptr": np.arange(len(size) + 1),
        "apart": {},
    }
    return Items(size=size, begin=begin, end=end, **{**given, **others})  # type: ignore[arg-type]


def most_live(items: Items) -> int:
    """Bytes that live together at the worst step, counted one by one."""
    live = [0] * STEPS
    for item, size in enumerate(items.size.tolist()):
        for piece in range(items.ptr[item], items.ptr[item + 1]):
            for step in range(items.begin[piece], items.end[piece]):
                live[step] += size
    return max(live)


lives = st.sets(st.integers(0, STEPS - 1), min_size=1).map(sorted)
pairs_of_items = st.tuples(st.integers(0, 13), st.integers(0, 13))
wishes = st.tuples(st.integers(1, 60), lives, st.sampled_from([8, 16, 32]), st.booleans())


@given(
    st.lists(wishes, max_size=14),
    st.integers(0, 5).map(lambda n: 8 * n),
    st.lists(st.tuples(*[st.integers(0, 13)] * 2)),
)
def test_pack__any_items__lie_apart_while_they_live_and_where_they_want_to(
    wanted: list[tuple[int, list[int], int, bool]], floor: int, pairs: list[tuple[int, int]]
) -> None:
    memory = TileMemory(
        total_bytes=4096, base_address=0, plain_bytes=512, executable_bytes=512, reserved_bytes=0, element_bytes=64
    )
    steps = [live for _, live, _, _ in wanted]
    apart: dict[int, list[int]] = {}
    for one, other in {(a, b) for a, b in pairs if a < b < len(wanted)}:
        apart.setdefault(one, []).append(other)
        apart.setdefault(other, []).append(one)
    items = Items(
        size=np.array([8 * n for n, *_ in wanted], dtype=np.int64),
        alignment=np.array([a for _, _, a, _ in wanted], dtype=np.int64),
        lowest=np.array([512 * up for *_, up in wanted], dtype=np.int64),
        ptr=np.cumsum([0, *map(len, steps)]),
        begin=np.array([s for live in steps for s in live], dtype=np.int64),
        end=np.array([s + 1 for live in steps for s in live], dtype=np.int64),
        apart=apart,
    )
    found = pack(items, floor, 4096, memory)
    low, high = found.address, found.address + items.size
    assert found.top == max([floor, *high.tolist()])
    assert (low >= np.maximum(items.lowest, floor)).all()
    assert (low % items.alignment == 0).all()
    elements = [
        {b // 64 if b < 512 else 8 + (b - 512) // 128 for b in range(begin, end)}
        for begin, end in zip(low, high, strict=True)
    ]
    for one in range(len(wanted)):
        for other in range(one):
            if set(steps[one]) & set(steps[other]):
                assert high[one] <= low[other] or high[other] <= low[one]
            if other in apart.get(one, []):
                assert not elements[one] & elements[other]
    if not apart:
        assert found.top >= floor + most_live(items) * (len(items.size) > 0)


@pytest.mark.parametrize("seed", range(4))
def test_pack__memory_cut_into_pieces__is_filled_to_a_fifth(seed: int) -> None:
    """Pieces that a rectangle of bytes and steps was cut into can be packed without loss."""
    rng = np.random.default_rng(seed)
    whole: list[tuple[int, int, int, int]] = [(0, 1 << 16, 0, 400)]
    cut: list[Piece] = []
    while whole:
        low, high, begin, end = whole.pop()
        if len(cut) + len(whole) > 150:
            cut.append((high - low, begin, end))
        elif rng.random() < 0.5 and end - begin > 1:
            at = int(rng.integers(begin + 1, end))
            whole += [(low, high, begin, at), (low, high, at, end)]
        elif high - low > 8:
            at = low + 8 * int(rng.integers(1, (high - low) // 8))
            whole += [(low, at, begin, end), (at, high, begin, end)]
        else:
            cut.append((high - low, begin, end))
    found = pack(items_of(cut), 0, 1 << 16, MEMORY)
    assert 1 << 16 <= found.top <= 1.2 * (1 << 16)


def chain(graph: Graph, sizes: Sequence[int]) -> Executable:
    """Variables on tile 0 of which each is made from the one before."""
    first = graph.variable(f32, (sizes[0],), "v0").map(0)
    program = []
    for number, size in enumerate(sizes[1:], 1):
        following = graph.variable(f32, (size,), f"v{number}").map(0)
        common = min(size, first.size)
        program += [Copy(first[:common], following[:common])]
        first = following
    return compile_program(graph, Steps(*program), allow_out_of_memory=True)


def test_addresses__of_a_compiled_chain__overlay_what_does_not_live_together(graph: Graph) -> None:
    memory = chain(graph, [100] * 8).memory
    (placed,) = [each for each in memory.addresses if 0 in each.tiles]
    assert len(placed.variable) == 8
    lives = memory.liveness
    spans = {}
    for candidate, variable in enumerate(lives.candidates.tolist()):
        pieces = range(lives.ptr[candidate], lives.ptr[candidate + 1])
        spans[variable] = {s for p in pieces for s in range(lives.begin[p], lives.end[p])}
    every = set(range(lives.num_steps))
    for one, at, size in zip(placed.variable.tolist(), placed.address.tolist(), placed.bytes.tolist(), strict=True):
        for other, low, more in zip(placed.variable.tolist(), placed.address, placed.bytes, strict=True):
            if one < other and spans.get(one, every) & spans.get(other, every):
                assert at + size <= low or low + more <= at
    assert placed.needed_bytes == memory.total[0] == placed.top
    assert placed.top < sum(placed.bytes.tolist())


def test_addresses__like_tiles__are_packed_once() -> None:
    graph = Graph("bow")
    x, y = (graph.variable(f32, (1472, 10), name).map_rows(range(1472)) for name in "xy")
    memory = compile_program(graph, Copy(x, y)).memory
    assert [len(each.tiles) for each in memory.addresses] == [1472]
    assert len(set(memory.total_bytes.tolist())) == 1


def test_addresses__interleaved_variables__begin_where_that_memory_does(graph: Graph) -> None:
    x, y = (graph.variable(f32, (n,), name).map(0) for n, name in ((100, "x"), (50, "y")))
    cs = graph.compute_set("step")
    cs.vertex(Wide, tile=0, x=x)
    found = compile_program(graph, Steps(Execute(cs), Copy(x[:50], y)))
    placed = found.memory.addresses_of(0)
    assert placed is not None
    tile = graph.system.ipu.tile
    assert dict(zip(placed.variable.tolist(), placed.address.tolist(), strict=True))[0] == tile.plain_bytes
    assert placed.top == tile.plain_bytes + 400
    # What lies below them is free, not lost.
    assert found.memory.by_category["gaps"][0] < 16
    assert f"{tile.plain_bytes:>9,}       400 B  x" in found.memory_text(0)


def test_addresses__fields_that_must_be_apart__lie_in_different_elements(graph: Graph) -> None:
    a, b = (graph.variable(f32, (10,), name).map(0) for name in "ab")
    cs = graph.compute_set("step")
    cs.vertex(FarApart, tile=0, a=a, b=b)
    found = compile_program(graph, Execute(cs)).memory.addresses_of(0)
    assert found is not None
    one, other = found.address // MEMORY.element_bytes
    assert one != other


def tight(total: int, plain: int) -> Graph:
    """A graph on one tile with so many bytes, the first of which are not interleaved."""
    sizes = {"total_bytes": total, "plain_bytes": plain, "executable_bytes": total, "reserved_bytes": 0}
    return Graph(small_system(1).evolve(ipu={"tile": sizes}))


def test_fit__elements_that_must_be_apart__do_not_fit_where_all_bytes_would() -> None:
    """Both fields and the program are smaller than two elements, but no field and the program than one."""
    size = 2 * MEMORY.element_bytes
    graph = tight(size, size)
    count = MEMORY.element_bytes // 4 - 600
    a, b = (graph.variable(f32, (count,), name).map(0) for name in "ab")
    cs = graph.compute_set("step")
    cs.vertex(FarApart, tile=0, a=a, b=b)
    with pytest.raises(OutOfMemoryError, match="Cannot fit all variable data") as caught:
        compile_program(graph, Execute(cs))
    error = caught.value
    assert error.tiles[0]["needed_bytes"] - error.tiles[0]["gaps"] < size < error.tiles[0]["needed_bytes"]
    assert "would fit without gaps" in str(error)
    report = error.report
    assert report is not None
    assert not report.memory.fits


def test_fit__interleaved_data_that_ends_beyond_the_memory__is_refused() -> None:
    graph = tight(16384, 8192)
    wide = [graph.variable(f32, (1000,), f"x{n}").map(0) for n in range(2)]
    cs = graph.compute_set("step")
    for x in wide:
        cs.vertex(Wide, tile=0, x=x)
    compile_program(graph, Execute(cs))
    more = graph.variable(f32, (100,), "more").map(0)
    other = graph.compute_set("other")
    other.vertex(Wide, tile=0, x=more)
    with pytest.raises(OutOfMemoryError, match="needs 8,400 B of interleaved memory, has 8,192 B"):
        compile_program(graph, Steps(Execute(cs), Execute(other)))


def test_fit__more_code_than_can_be_fetched__is_refused_and_says_so() -> None:
    graph = Graph(small_system(1).evolve(ipu={"tile": {"plain_bytes": 2048, "executable_bytes": 400}}))
    x, y = (graph.variable(f32, (40,), name).map(0) for name in "xy")
    program = []
    for number in range(30):
        cs = graph.compute_set(f"step {number}")
        cs.vertex(FarApart, tile=0, a=x, b=y)
        program.append(Execute(cs))
    with pytest.raises(OutOfMemoryError, match="of code, but instructions run only from the first 400 B"):
        compile_program(graph, Steps(*program))


@pytest.mark.parametrize("plain", [0, 2048, 4096])
def test_fit__tiny_tile_with_or_without_interleaved_memory__is_filled_to_the_end(plain: int) -> None:
    def compiled(count: int) -> Executable:
        graph = tight(4096, plain)
        x, y = (graph.variable(f32, (n,), name).map(0) for n, name in ((count, "x"), (4, "y")))
        return compile_program(graph, Copy(x[:4], y))

    rest = 4096 - (compiled(4).memory.total[0] - 16)
    assert compiled(rest // 4).memory.total[0] <= 4096
    with pytest.raises(OutOfMemoryError):
        compiled(rest // 4 + 8)


def test_fit__no_packing_needed__agrees_with_packing(graph: Graph) -> None:
    memory = chain(graph, [64] * 5).memory
    assert memory.total.max() <= memory.unshared.max() <= memory.available_bytes
