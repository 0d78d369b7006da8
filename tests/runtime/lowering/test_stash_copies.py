"""Rows of stashes, which hosts save and restore in place of other steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import abele as ab
from abele.errors import ControlProgramError
from abele.graph import Copy, Graph, Repeat, Sequence, StashCopy
from abele.graph.tensor import Tensor
from abele.poplibs import popops
from abele.poplibs.popops.expr import _1, select
from abele.runtime import Engine

ROWS = 3


def _delayed(rows: int = ROWS) -> tuple[Graph, Sequence, Tensor, Tensor]:
    """A loop that counts x up and restores it as it was ``rows`` rounds before; on tiles y is -x instead."""
    graph = Graph("bow-2000:1")
    x, y = (graph.variable("f32", (4, 6), name=v).map(0) for v in ("x", "y"))
    stash = graph.variable("f32", (rows, 32), name="stash").map(0)
    row = graph.map(graph.variable("u32", (1,), name="row", initial=0), 0)
    step, restored, saved = Sequence(), Sequence(), Sequence()
    popops.map_in_place(graph, -_1, [y], restored, name="negate")
    step.add(restored)
    popops.map_in_place(graph, _1 + 1, [x], step, name="count")
    step.add(saved)
    restored.host_body = Sequence(StashCopy(y.T, stash, row if rows > 1 else None, saves=False))
    saved.host_body = Sequence(StashCopy(x.T, stash, row if rows > 1 else None, saves=True))
    popops.map_in_place(graph, select(0, _1 + 1, _1 + 1 == rows), [row], step, name="next")
    return graph, step, x, y


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, 2, ROWS])
def test_stash__rows_in_turn__each_round_finds_what_was_saved_so_many_rounds_before(rows: int, threads: int) -> None:
    graph, step, x, y = _delayed(rows)
    start = np.arange(24, dtype=np.float32).reshape(4, 6)
    with Engine(graph, Repeat(7, step), threads=threads, keep=[x, y]) as engine:
        engine[x] = start
        engine.run()
        np.testing.assert_array_equal(engine[x], start + 7)
        np.testing.assert_array_equal(engine[y], start + 7 - rows)
        # Seven rounds leave the index in the middle of the rows, where the next run goes on.
        engine.run()
        np.testing.assert_array_equal(engine[y], start + 14 - rows)


@pytest.mark.parametrize("checks", [None, "all"])
def test_stash__vertices_as_placed__the_steps_run(checks: str | None) -> None:
    graph, step, x, y = _delayed()
    with Engine(graph, Repeat(3, step), mode="tiles", checks=checks, keep=[x, y]) as engine:
        engine[x], engine[y] = np.zeros((4, 6), np.float32), np.ones((4, 6), np.float32)
        engine.run()
        np.testing.assert_array_equal(engine[y], -np.ones((4, 6)))


def test_stash__in_an_executable__is_saved_with_it(tmp_path: Path) -> None:
    graph, step, _, _ = _delayed()
    ab.compile_program(graph, Repeat(7, step)).save(tmp_path / "delayed")
    with Engine(ab.Executable.load(tmp_path / "delayed"), keep=["x", "y"]) as engine:
        engine["x"] = np.zeros((4, 6), np.float32)
        engine.run()
        np.testing.assert_array_equal(engine["y"], np.full((4, 6), 7 - ROWS))


def test_stash__the_model__knows_nothing_of_it() -> None:
    graph, step, _, _ = _delayed()
    counted = ab.compile_program(graph, step).report.cycles()
    for inner in step:
        if isinstance(inner, Sequence):
            inner.host_body = None
    assert ab.compile_program(graph, step).report.cycles() == counted


def test_stash__with_rows_that_are_too_short__is_refused() -> None:
    graph, _, x, _ = _delayed()
    short = graph.variable("f32", (ROWS, 23), name="short").map(0)
    with pytest.raises(ControlProgramError, match=r"is no stash of .*") as caught:
        StashCopy(x, short, None, saves=True)
    assert "shape [rows, 24]" in str(caught.value)


def test_stash__on_the_machine__is_refused() -> None:
    graph, _, x, y = _delayed()
    stash = graph.variable("f32", (1, 24), name="another").map(0)
    with pytest.raises(ControlProgramError, match="StashCopy"):
        ab.compile_program(graph, Sequence(Copy(x, y), StashCopy(x, stash, None, saves=True)))
