"""Contents of a tile when it is fullest: state and code by operation, and what keeps temporaries alive."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import abele as ab
from abele.errors import InvalidOptionError
from abele.poplibs import popops
from abele.report import Report
from compiler.support import small_system


@cache
def program() -> Report:
    """``kept`` is made first and read last; between them a loop carries ``sum``, and works on ``large``."""
    graph, prog = ab.Graph(small_system(8)), ab.Sequence()
    x = graph.variable("f32", (8, 64), name="x").map_rows(range(8))
    prog.add(ab.Copy(graph.host_stream_in("in", ab.f32, x.shape), x))
    kept = popops.tanh(graph, x, prog, name="keep")
    total = popops.exp(graph, x, prog, name="start")
    body = ab.Sequence()
    large = popops.square(graph, ab.concat([x, x, x, x, x, x], 1), body, name="widen")
    popops.add_in_place(graph, total, large[:, :64], body, name="collect")
    prog.add(ab.Repeat(3, body))
    out = popops.mul(graph, total, kept, prog, name="scale")
    prog.add(ab.Copy(out, graph.host_stream_out("out", ab.f32, out.shape)))
    return ab.compile_program(graph, prog).report


def test_memory_use__temporaries_and_data_in_motion__are_the_category() -> None:
    report = program()
    for tile in range(report.memory.num_tiles):
        use = report.memory_use(tile)
        held = sum(v.bytes for v in use.temporaries) + use.moving_bytes
        assert held == report.memory.of_tile(tile)["temporaries"]
        assert sum(use.categories.values()) == use.bytes == int(report.memory.by_tile[tile])
        for name in ("vertex_state", "vertex_code", "control_code", "exchange_code"):
            assert sum(getattr(each, name) for each in use.code) == report.memory.of_tile(tile)[name]


def test_memory_use__temporaries_at_the_peak__say_which_operation_reads_them_last() -> None:
    use = program().memory_use()
    assert use.tile == program().memory.fullest_tile
    why = {v.name: v.why for v in use.temporaries}
    # The peak is where the largest variable is there.
    assert why["widen/out"] in ("read by collect", "kept for collect, 1 step later")
    kept = next(v for v in use.temporaries if v.name == "keep/out")
    assert (kept.made_by, kept.kept_for) == ("keep", "scale")
    assert kept.why == f"kept for scale, {kept.steps_later} step{'s' * (kept.steps_later > 1)} later"
    assert next(v for v in use.temporaries if v.name == "start/out").kept_for == "scale"


def test_memory_use__text__has_the_largest_of_each_kind() -> None:
    report = program()
    text = report.memory_use().text(3)
    assert f"{report.memory.of_tile(report.memory_use().tile)['vertex_state']:,} B" in text
    assert "vertex state" in text
    assert "kept for scale" in text
    assert "more" in text


def test_memory_use__tile_that_there_is_not__is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="no tile 8"):
        program().memory_use(8)


def test_memory_use__file__answers_the_same(tmp_path: Path) -> None:
    program().save(tmp_path / "r")
    assert Report.load(tmp_path / "r").memory_use() == program().memory_use()
