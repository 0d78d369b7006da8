"""Figures, text, colour and JSON of a report whose numbers are known."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from abele.errors import InvalidOptionError
from abele.report import Memory, Report, take_waited, waiting_for_data
from abele.report.render import render


def test_cycles__of_a_program__add_up_over_executions(report: Report) -> None:
    cycles = report.cycles()
    assert cycles.total == 2 * 100 + 4 * (50 + 200 + 50)
    assert (cycles.compute, cycles.exchange, cycles.sync, cycles.host) == (4 * 220, 120, 4 * 50, 200)
    assert sum(cycles.shares().values()) == pytest.approx(1.0)
    assert report.cycles(1).total == 7


def test_step_cycles__two_steps_a_run__are_half(report: Report) -> None:
    assert report.step_cycles.total == 700


def test_samples_per_second__from_clock_and_cycles(report: Report) -> None:
    assert report.samples_per_second == pytest.approx(64 * 1.85e9 / 1400)
    assert replace(report, meta={}).samples_per_second is None


def test_tile_balance__mean_tile_over_slowest(report: Report) -> None:
    assert report.tile_balance == pytest.approx(440 / 880)


def test_ops__cycles_by_op__sum_their_steps(report: Report) -> None:
    assert report.ops["cycles"].tolist() == [4 * 250, 200]
    assert report.ops["exchange_cycles"].tolist() == [120, 0]
    assert report.ops["share"].sum() == pytest.approx(1200 / 1400)


def test_memory__fullest_tile__is_the_last(report: Report) -> None:
    memory = report.memory
    assert (memory.fullest_tile, int(memory.by_tile[7]), memory.fits) == (7, 174, True)
    assert memory.of_tile(7)["variables"] == 70
    assert memory.totals()["stacks"] == 800
    assert memory.total_bytes == 280 + 800 + 32


def test_memory__unknown_category_or_shape__is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="no memory category 'heap'"):
        Memory.of(2, 10, heap=1)
    with pytest.raises(InvalidOptionError, match="does not have a row for each of 9 categories"):
        Memory(np.zeros((2, 2), np.int64), 10)


SUMMARY = """\
target        bow-2000:1 (Bow-2000): 1 Bow IPU, 8 tiles at 1.85 GHz
graph         3 variables · 2 compute sets
one step      700 cycles = 378 ns
spent on      compute 63% · exchange 8.6% · sync 14% · host streams 14%
tile balance  50% (mean tile / slowest tile while computing)
throughput    84,571,429 images/s on 1 Bow IPU
limited by    the device: device 98,666,667 · link 592,000,000 images/s · loader not known
memory        fits; fullest tile 7 holds 174 B of 1,000 B (17%)
which holds   stacks 100 B · variables 70 B · gaps 4 B

share  cycles  mostly   operation    source
  71%     500  compute  layer1/conv  model.py:12
  14%     100  compute  loss         model.py:20"""


def test_summary__known_report__reads_as_expected(report: Report) -> None:
    assert report.summary() == SUMMARY


def test_summary__does_not_fit__says_on_how_many_tiles(report: Report) -> None:
    held = report.memory
    tight = replace(report, memory=Memory(held.run_bytes, 150, held.categories, held.run_tiles))
    assert "DOES NOT FIT on 3 tiles" in tight.summary()


def test_summary__after_runs__says_what_they_took(report: Report) -> None:
    text = report.with_run(name="train", mode="native", threads=2, wall_seconds=0.25).summary()
    assert "ran here      1 run in 250 ms (native, 2 threads)" in text


def test_summary__after_calls__says_where_the_host_spent_its_time(report: Report) -> None:
    ran = report.with_run(wall_seconds=0.25, waiting_seconds=1.5, sending_seconds=0.002, reading_seconds=0.001)
    ran = ran.with_run(wall_seconds=0.25, waiting_seconds=0.5)
    assert ran.host_seconds == {"waiting": 2.0, "sending": 0.002, "running": 0.5, "reading": 0.001}
    wanted = "host          waiting for data 2 s · sending inputs 2 ms · device 500 ms · results 1 ms"
    assert wanted in ran.summary()
    assert "waiting for data" not in report.with_run(wall_seconds=0.25).summary()


def test_waiting__in_a_loader_of_a_loader__counts_once() -> None:
    take_waited()
    with waiting_for_data():
        with waiting_for_data():
            time.sleep(0.01)
        time.sleep(0.01)
    assert 0.02 <= take_waited() < 0.5
    assert take_waited() == 0


def test_waiting__in_another_thread__is_that_threads() -> None:
    def wait() -> None:
        with waiting_for_data():
            time.sleep(0.01)

    take_waited()
    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert take_waited() == 0


def test_summary__empty_report__still_reads(report: Report) -> None:
    empty = replace(report, steps=report.steps.select(slice(0)), ops=report.ops.select(slice(0)), meta={})
    assert "one step      0 cycles" in empty.summary()


def test_render__known_report__shows_split_memory_and_operations(report: Report) -> None:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(render(report))
    text = capture.get()
    for part in ("host streams", "bytes of the fullest tile, 7", "layer1/conv", "model.py:12", "images/s"):
        assert part in text


def test_to_json__known_report__is_json_with_the_documented_keys(report: Report) -> None:
    data = json.loads(json.dumps(report.to_json()))
    assert data["step"]["cycles"]["total"] == 700
    assert data["memory"]["fullest_tile"]["categories"]["variables"] == 70
    assert [op["name"] for op in data["ops"]] == ["conv", "loss"]
    assert data["samples_per_second"] == pytest.approx(report.samples_per_second)
    assert len(data["steps"]["cycles"]) == 5


def test_with_meta__new_entry__leaves_the_old_report(report: Report) -> None:
    assert report.with_meta(name="other").meta["name"] == "other"
    assert report.meta["name"] == "toy"
