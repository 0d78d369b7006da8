"""Programs side by side: the same results as one after the other, in fewer supersteps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench

from abele.errors import ControlProgramError
from abele.graph import Copy, Execute, Graph, LibraryCall, Program, Repeat, Sequence, Tensor, walk
from abele.poplibs import popops
from abele.poplibs.popops.programs.side_by_side import zip_programs
from support.examples import examples

Step = Callable[[Graph, Tensor, Sequence, int], Tensor]


def _square(graph: Graph, x: Tensor, prog: Sequence, first: int) -> Tensor:
    return popops.square(graph, x, prog)


def _negate(graph: Graph, x: Tensor, prog: Sequence, first: int) -> Tensor:
    popops.neg_in_place(graph, x, prog)
    return x


def _row_sums(graph: Graph, x: Tensor, prog: Sequence, first: int) -> Tensor:
    total = popops.reduce(graph, x, [0], "ADD", prog)
    return popops.add(graph, x, total.expand_dims(0).broadcast_to(x.shape), prog)


def _moved(graph: Graph, x: Tensor, prog: Sequence, first: int) -> Tensor:
    made = graph.variable(x.dtype, x.shape, name="moved")
    graph.map(made, first)
    prog.add(Copy(x.T.flatten(), made.flatten()))
    return made


STEPS: tuple[Step, ...] = (_square, _negate, _row_sums, _moved)
LANES = st.lists(st.lists(st.sampled_from(STEPS), max_size=4), min_size=1, max_size=4)


def _lanes(bench: Bench, wanted: list[list[Step]], seed: int = 0) -> tuple[list[Sequence], list[Tensor]]:
    """A program for each list of steps, on tiles of its own, and what it gives."""
    rng = np.random.default_rng(seed)
    programs, results = [], []
    for i, steps in enumerate(wanted):
        graph = bench.graph.virtual(8 * i, 8 * i + 8)
        value = bench.tensor(rng.integers(-3, 4, (5, 4 + i)).astype(np.float32), layout=8 * i)
        program = Sequence()
        for step in steps:
            value = step(graph, value, program, i)
        programs.append(program)
        results.append(value)
    return programs, results


def _supersteps(program: Program) -> int:
    return sum(isinstance(step, Execute) for step in walk(program))


@given(wanted=LANES)
@examples(4)
def test_zip_programs__any_programs__gives_what_they_give_one_after_the_other(wanted: list[list[Step]]) -> None:
    serial, zipped = Bench(32), Bench(32)
    programs, one_by_one = _lanes(serial, wanted)
    for program in programs:
        serial.prog.add(program)
    programs, together = _lanes(zipped, wanted)
    zipped.prog.add(zip_programs(zipped.graph, programs))
    most = _supersteps(serial.prog)
    assert _supersteps(zipped.prog) <= most
    for mode in ("tiles", "native"):
        for got, want in zip(zipped.run(*together, mode=mode), serial.run(*one_by_one, mode=mode), strict=True):
            np.testing.assert_array_equal(got, want)


def test_zip_programs__equal_programs__take_the_supersteps_of_one() -> None:
    bench = Bench(32)
    programs, _ = _lanes(bench, [[_square, _row_sums, _negate]] * 4)
    alone = _supersteps(programs[0])
    before = len(bench.graph.compute_sets)
    zipped = zip_programs(bench.graph, programs)
    assert _supersteps(zipped) == alone
    assert len(bench.graph.compute_sets) == before - 3 * alone
    assert [made.id for made in bench.graph.compute_sets] == list(range(before - 3 * alone))


@pytest.mark.parametrize("name", ["square", "neg", "reduce", ""])
def test_zip_programs__steps_that_do_the_same__run_together_whatever_they_are_called(name: str) -> None:
    def named(graph: Graph, x: Tensor, prog: Sequence, first: int) -> Tensor:
        return popops.square(graph, x, prog, name=name)

    bench = Bench(32)
    programs, _ = _lanes(bench, [[_negate, _square, _row_sums], [named]])
    zipped = zip_programs(bench.graph, programs)
    calls = [step for step in zipped if isinstance(step, LibraryCall)]
    assert [len(call.outputs) for call in calls] == [1, 2, 1, 1]


def test_zip_programs__copies__become_one_for_each_type() -> None:
    bench = Bench(32)
    programs, results = _lanes(bench, [[_moved]] * 3)
    half = bench.tensor(np.arange(6), "f16", layout=25)
    copied = bench.graph.variable(half.dtype, half.shape, name="half").map(30)
    zipped = zip_programs(bench.graph, [*programs, Sequence(Copy(half, copied))])
    assert [step.source.dtype.name for step in zipped if isinstance(step, Copy)] == ["f32", "f16"]
    bench.prog.add(zipped)
    got = bench.run(*results, copied)
    for array, source in zip(got, bench.data.values(), strict=True):
        np.testing.assert_array_equal(array.reshape(-1), source.T.reshape(-1))


def test_zip_programs__a_call_without_kernel__runs_vertices_of_all() -> None:
    bench = Bench(32)
    programs, results = _lanes(bench, [[_square], [_square]])
    call = programs[1].steps[0]
    assert isinstance(call, LibraryCall)
    call.kernel = None
    bench.prog.add(zip_programs(bench.graph, programs))
    joined = bench.prog.steps[0]
    assert next(s for s in walk(joined) if isinstance(s, LibraryCall)).kernel is None
    for got, source in zip(bench.run_both(*results), bench.data.values(), strict=True):
        np.testing.assert_array_equal(got, source**2)


def test_zip_programs__one_writes_what_another_reads__is_refused() -> None:
    bench = Bench(8)
    x = bench.tensor(np.ones((4, 4), np.float32))
    one, other = Sequence(), Sequence()
    popops.neg_in_place(bench.graph, x[1:], one)
    popops.square(bench.graph, x[:2], other)
    with pytest.raises(ControlProgramError, match="program 0 writes what program 1 reads or writes"):
        zip_programs(bench.graph, [one, other])


def test_zip_programs__neighbours_of_one_variable__may_run_together() -> None:
    bench = Bench(8)
    x = bench.tensor(np.arange(16, dtype=np.float32).reshape(4, 4))
    one, other = Sequence(), Sequence()
    popops.neg_in_place(bench.graph, x[2:], one)
    made = popops.square(bench.graph, x[:2], other)
    bench.prog.add(zip_programs(bench.graph, [one, other]))
    got, squares = bench.run(x, made)
    np.testing.assert_array_equal(got[2:], -np.arange(8, 16).reshape(2, 4))
    np.testing.assert_array_equal(squares, np.arange(8).reshape(2, 4) ** 2)


@pytest.mark.parametrize("kind", ["loop", "stream"])
def test_zip_programs__other_steps__are_refused(kind: str) -> None:
    bench = Bench(8)
    x = bench.tensor(np.ones(4, np.float32))
    stream = bench.graph.host_stream_in("in", x.dtype, x.shape)
    step = Repeat(2, Sequence()) if kind == "loop" else Copy(stream, x)
    with pytest.raises(ControlProgramError, match="cannot run side by side with other programs"):
        zip_programs(bench.graph, [Sequence(step), Sequence()])


def test_zip_programs__nothing__is_an_empty_program() -> None:
    assert len(zip_programs(Bench(4).graph, [])) == 0
