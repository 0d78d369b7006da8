"""Memory of tiles, against sums over the report's own arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from abele.errors import InvalidOptionError
from abele.report import Memory
from abele.report.schema import TABLES, VARIABLES
from abele.viewer.answers import answer
from abele.viewer.answers.floor import physical_order, places
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer
from random_reports import RandomReport, random_report


@pytest.fixture(params=[1, 2])
def made(request: pytest.FixtureRequest) -> RandomReport:
    return random_report(request.param)


def ask(made: RandomReport, question: str, **params: Any) -> Answer:
    opened = Opened("random", "random", made.report)
    return answer(opened, question, Params({name: str(value) for name, value in params.items()}))


@pytest.mark.parametrize("by", ["category", "live", "type", "region", "none"])
@pytest.mark.parametrize("order", ["number", "size", "physical"])
def test_memory_tiles__every_division__adds_up_to_the_tile(made: RandomReport, by: str, order: str) -> None:
    found = ask(made, "memory.tiles", by=by, order=order)
    held = made.report.memory.by_tile
    assert found.arrays["values"].sum(axis=0).tolist() == held[found.arrays["tile"]].tolist()
    assert sorted(found.arrays["tile"].tolist()) == list(range(64))
    assert found.head["greatest"] == held.max()


def test_memory_tiles__without_gaps__leaves_them_out(made: RandomReport) -> None:
    found = ask(made, "memory.tiles", gaps=0)
    memory = made.report.memory
    gaps = memory.bytes[memory.categories.index("gaps")]
    assert "gaps" not in found.head["parts"]
    assert found.arrays["values"].sum(axis=0).tolist() == (memory.by_tile - gaps).tolist()


def test_memory_tiles__by_type__has_the_bytes_of_always_live_variables(made: RandomReport) -> None:
    found = ask(made, "memory.tiles", by="type")
    for at, name in enumerate(("f32", "f16", "i32")):
        mine = made.always & (np.arange(len(made.always)) % 3 == at)
        part = found.head["parts"].index(f"variables of {name}")
        assert found.arrays["values"][part].tolist() == made.held[mine].sum(axis=0).tolist()


def test_memory_tiles__by_region__splits_at_what_a_tile_has() -> None:
    made = random_report(4, room=4_000)
    found = ask(made, "memory.tiles", by="region")
    over = np.maximum(made.report.memory.by_tile - 4_000, 0)
    assert over.any()
    assert found.arrays["values"][found.head["parts"].index("too much")].tolist() == over.tolist()


def test_memory_tiles__by_region__has_what_vertices_want_interleaved(made: RandomReport) -> None:
    report = made.report
    wanted = np.arange(30) % 4 == 0
    columns = {name: report.variables[name] for name in report.variables.names}
    variables = VARIABLES.table(**{**columns, "interleaved": wanted})
    opened = Opened("random", "random", replace(report, variables=variables))
    found = answer(opened, "memory.tiles", Params({"by": "region"}))
    told = found.arrays["values"][found.head["parts"].index("interleaved")]
    assert told.tolist() == made.held[wanted & made.always].sum(axis=0).tolist()


def test_memory_tiles__by_size_of_one_ipu__is_that_ipu_fullest_first(made: RandomReport) -> None:
    found = ask(made, "memory.tiles", order="size", ipu=1)
    held = made.report.memory.by_tile[32:]
    assert found.head["length"] == 32
    assert found.arrays["values"].sum(axis=0).tolist() == sorted(held.tolist(), reverse=True)
    assert found.arrays["tile"].tolist() == (32 + np.argsort(-held, kind="stable")).tolist()
    assert ask(made, "memory.order", order="size", ipu=1).arrays["tile"].tolist() == found.arrays["tile"].tolist()


def test_memory_tiles__variables__are_their_bytes_and_not_others(made: RandomReport) -> None:
    found = ask(made, "memory.tiles", by="variables:4,9,4,900,x")
    assert list(found.head["parts"]) == [str(made.report.variables["name"][row]) for row in (4, 9)]
    assert found.arrays["values"].tolist() == made.held[[4, 9]].tolist()
    assert ask(made, "memory.tiles", by="variables:").arrays["values"].shape == (0, 64)


def test_memory_tiles__unknown_words__are_refused(made: RandomReport) -> None:
    with pytest.raises(InvalidOptionError, match="by is 'catgory'\n  try      did you mean 'category'"):
        ask(made, "memory.tiles", by="catgory")
    with pytest.raises(InvalidOptionError, match="order is"):
        ask(made, "memory.tiles", order="-1")


@pytest.mark.parametrize("num_tiles", [1, 3, 32, 64, 1_216, 1_472, 1_000])
def test_places__tiles_of_an_ipu__have_a_place_each(num_tiles: int) -> None:
    column, row = places(num_tiles)
    assert len(set(zip(column.tolist(), row.tolist(), strict=True))) == num_tiles
    assert min(column.min(), row.min()) == 0
    assert sorted(physical_order(2 * num_tiles, num_tiles).tolist()) == list(range(2 * num_tiles))


def test_places__a_bow__has_pairs_beside_each_other_in_16_columns_of_92() -> None:
    column, row = places(1_472)
    assert (column.max(), row.max()) == (31, 45)
    assert (row[::2] == row[1::2]).all()
    assert (column[1::2] - column[::2] == 1).all()
    assert (column // 2 == np.arange(1_472) // 92).all()
    # Neighbouring numbers are neighbours: no jump of more than a place from one pair to the next.
    assert np.abs(np.diff(row[::2])).max() == 1


@pytest.mark.parametrize("text", ["", "5", "3, 10-12", "ipu 0"])
def test_memory_categories__some_tiles__sums_means_and_ends(made: RandomReport, text: str) -> None:
    found = ask(made, "memory.categories", tiles=text)
    tiles = {"": range(64), "5": [5], "3, 10-12": [3, 10, 11, 12], "ipu 0": range(32)}[text]
    memory = made.report.memory
    rows = [row["key"] for row in found.head["rows"]]
    for name in memory.categories:
        key = {"temporaries": "passing"}.get(name, name)
        held = memory.bytes[memory.categories.index(name)][list(tiles)]
        at = rows.index(key)
        told = [found.arrays[each][at] for each in ("sum", "mean", "least", "most")]
        assert told == [held.sum(), held.mean(), held.min(), held.max()]
    total, used, gaps = (found.arrays["sum"][rows.index(key)] for key in ("total", "used", "gaps"))
    assert total == used + gaps == memory.by_tile[list(tiles)].sum()
    assert used == found.arrays["sum"][rows.index("always")] + found.arrays["sum"][rows.index("passing")]
    assert found.arrays["each"].shape == (min(len(list(tiles)), 8), len(rows))
    behind, placed = (found.arrays["sum"][rows.index(key)] for key in ("gaps behind", "gaps placed"))
    assert behind == (made.padded - made.held)[made.always][:, list(tiles)].sum()
    assert behind + placed == gaps
    types = [found.arrays["sum"][at] for at, key in enumerate(rows) if key.startswith("type ")]
    assert sum(types) == made.held[made.always][:, list(tiles)].sum()


def test_memory_categories__no_tile__is_told_as_none(made: RandomReport) -> None:
    found = ask(made, "memory.categories", tiles="900")
    assert (found.head["count"], found.head["fullest"]) == (0, -1)
    assert not found.arrays["sum"].any()


@pytest.mark.parametrize("text", ["", "7", "3, 10-12, 40-50"])
def test_memory_variables__some_tiles__have_the_bytes_that_lie_there(made: RandomReport, text: str) -> None:
    tiles = {"": list(range(64)), "7": [7], "3, 10-12, 40-50": [3, 10, 11, 12, *range(40, 51)]}[text]
    found = ask(made, "memory.variables", tiles=text, sort="-here", count=1_000)
    here = made.held[:, tiles].sum(axis=1)
    rows = found.arrays["row"]
    assert sorted(rows.tolist()) == np.flatnonzero(here).tolist()
    assert found.arrays["here"].tolist() == here[rows].tolist() == sorted(here[here > 0].tolist(), reverse=True)
    assert found.arrays["on"].tolist() == (made.held[:, tiles] > 0).sum(axis=1)[rows].tolist()
    assert found.arrays["gap"].tolist() == (made.padded - made.held)[:, tiles].sum(axis=1)[rows].tolist()


def test_memory_variables__filters__compare_both_kinds_of_columns(made: RandomReport) -> None:
    found = ask(made, "memory.variables", tiles="7", filter="here>100 type=f32", count=1_000)
    wanted = (made.held[:, 7] > 100) & (np.arange(30) % 3 == 0)
    assert found.arrays["row"].tolist() == np.flatnonzero(wanted).tolist()
    assert found.head["found"] == wanted.sum()
    assert found.head["total"] == (made.held[:, 7] > 0).sum()


def test_memory_steps__some_tiles__tell_what_these_do(made: RandomReport) -> None:
    report = made.report
    for of, columns in (("compute", ["compute_cycles"]), ("exchange", ["sent_bytes", "received_bytes"])):
        found = ask(made, "memory.steps", tiles="7, 9", of=of, count=1_000)
        for column in columns:
            per_tile = np.array([report.step_by_tile(column, step)[[7, 9]] for step in range(len(report.steps))])
            told = per_tile.max(axis=1) if column == "compute_cycles" else per_tile.sum(axis=1)
            name = {"compute_cycles": "compute", "sent_bytes": "sent", "received_bytes": "received"}[column] + "_here"
            assert found.arrays[name].tolist() == told[found.arrays["row"]].tolist()
        some = np.array(
            [any(report.step_by_tile(c, s)[[7, 9]].any() for c in columns) for s in range(len(report.steps))]
        )
        assert found.arrays["row"].tolist() == np.flatnonzero(some).tolist()


def test_floor_metric__every_name__is_the_reports_number(made: RandomReport) -> None:
    memory = made.report.memory
    assert ask(made, "floor.metric").arrays["values"].tolist() == memory.by_tile.tolist()
    assert ask(made, "floor.metric", metric="stacks").arrays["values"].tolist() == memory.bytes[6].tolist()
    assert ask(made, "floor.metric", metric="variable:3").arrays["values"].tolist() == made.held[3].tolist()
    free = memory.available_bytes - memory.by_tile
    assert ask(made, "floor.metric", metric="free").arrays["values"].tolist() == free.tolist()
    with pytest.raises(InvalidOptionError, match="'weight' is no number of a tile"):
        ask(made, "floor.metric", metric="weight")
    with pytest.raises(InvalidOptionError, match="no number of a tile"):
        ask(made, "floor.metric", metric="variable:30")


def test_memory_overflow__tiles_that_are_too_full__says_what_would_have_to_go() -> None:
    made = random_report(4, room=4_000)
    found = ask(made, "memory.overflow").head
    held = made.report.memory.by_tile
    failing = np.flatnonzero(held > 4_000)
    assert found["count"] == len(failing) > 0
    assert found["over_bytes"] == (held[failing] - 4_000).sum()
    worst = int(failing[np.argmax(held[failing])])
    assert found["worst"]["tile"] == worst
    live = (made.lives.T[:, :, None] * made.padded[None, :, worst, None]).sum(axis=(1, 2))
    live = live + made.moving[:, worst] - made.sent[:, worst]
    steps = made.report.liveness["step"]
    assert found["worst"]["step"] == steps[np.argmax(live[steps])]
    excess = held[failing] - 4_000
    names = [str(name) for name in made.report.variables["name"]]
    counted = made.always | made.lives[:, found["worst"]["step"]]
    for each in found["contributors"]:
        if each["row"] >= 0:
            mine = made.padded[each["row"], failing]
            assert counted[each["row"]]
            assert each["name"] == names[each["row"]]
            assert each["kind"] == ("variable" if made.always[each["row"]] else "temporary")
        else:
            mine = made.report.memory.bytes[made.report.memory.categories.index(each["name"].replace(" ", "_"))][
                failing
            ]
        assert (each["bytes"], each["each"]) == (mine.sum(), mine.max())
        assert each["would_fit"] == (mine >= excess).sum()
        if each["would_fit"] == len(failing):
            assert each["less"] == pytest.approx((excess / mine).max())
    largest = sorted(np.where(counted, made.padded[:, failing].sum(axis=1), 0).tolist(), reverse=True)[:12]
    assert [each["bytes"] for each in found["contributors"] if each["row"] >= 0] == [b for b in largest if b]
    assert found["advice"]


def test_memory_overflow__one_byte_too_much__a_little_of_anything_is_enough(made: RandomReport) -> None:
    memory = made.report.memory
    short = Memory(memory.run_bytes, int(memory.by_tile.max()) - 1, memory.categories, memory.run_tiles)
    opened = Opened("random", "random", replace(made.report, memory=short))
    found = answer(opened, "memory.overflow", Params({})).head
    assert (found["count"], found["over_bytes"]) == (1, 1)
    assert all(each["less"] == pytest.approx(1 / each["bytes"]) for each in found["contributors"])
    assert found["advice"][0].endswith("would be enough for all of them.")
    assert found["contributors"][0]["name"] in found["advice"][0]


def test_memory_overflow__a_part_just_as_large_as_what_is_too_much__is_enough(made: RandomReport) -> None:
    empty = {
        name: TABLES[name].empty()
        for name in ("variables", "variable_tiles", "lifetimes", "sent_tiles", "buffer_tiles", "liveness")
    }
    memory = Memory.of(2, 1_000, variables=[600, 0], vertex_code=[401, 0], stacks=[99, 0], control_code=[0, 9])
    opened = Opened("random", "random", replace(made.report, memory=memory, **empty))
    found = answer(opened, "memory.overflow", Params({})).head
    assert (found["count"], found["over_bytes"]) == (1, 100)
    assert found["worst"] == {"tile": 0, "bytes": 100, "step": -1}
    assert [(each["name"], each["would_fit"]) for each in found["contributors"]] == [
        ("variables", 1),
        ("vertex code", 1),
        ("stacks", 0),
    ]
    memory = Memory.of(2, 1_000, variables=[600, 0], vertex_code=[400, 0], stacks=[100, 0], control_code=[0, 9])
    opened = Opened("random", "random", replace(made.report, memory=memory, **empty))
    stacks = answer(opened, "memory.overflow", Params({})).head["contributors"][-1]
    assert (stacks["name"], stacks["would_fit"], stacks["less"]) == ("stacks", 1, 1.0)


def test_memory_overflow__a_report_that_fits__has_nothing_to_say(made: RandomReport) -> None:
    assert ask(made, "memory.overflow").head == {"count": 0, "over_bytes": 0, "contributors": [], "advice": []}
