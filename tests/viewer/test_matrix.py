"""The matrix of tiles and supersteps: every square of every level is the maxima that NumPy finds in the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import abele as ab
from abele.errors import InvalidOptionError
from abele.report import (
    BUFFER_TILES,
    LIFETIMES,
    LIVENESS,
    PHASE_TILES,
    STEPS,
    VARIABLE_TILES,
    VARIABLES,
    Memory,
    Report,
)
from abele.report.tiles import dense_runs
from abele.viewer.answers import answer, matrix, matrix_cells
from abele.viewer.open_reports import Opened, Shelf
from abele.viewer.params import Params

TILES, PHASES, STEPS_ = 150, 40, 700
PER_IPU = 50


def made(seed: int) -> tuple[Report, dict[str, np.ndarray]]:
    """A report of three IPUs whose steps share phases, and what each tile does in each step, int64[tiles, steps]."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[np.ndarray]] = {name: [] for name in PHASE_TILES.columns}
    dense = {name: np.zeros((TILES, PHASES), np.int64) for name in ("compute_cycles", "sent_bytes", "received_bytes")}
    for phase in range(PHASES):
        ipu = phase % 4
        low, high = (0, TILES) if ipu == 3 else (ipu * PER_IPU, (ipu + 1) * PER_IPU)
        for name, values in dense.items():
            some = rng.random(high - low) < rng.choice([0.02, 0.5, 1.0])
            values[low:high, phase] = np.where(
                some, rng.integers(0, 4, high - low) * (3 if name == "sent_bytes" else 1), 0
            )
        first, count, found = dense_runs(**{name: values[:, phase] for name, values in dense.items()})
        columns["phase"].append(np.full(len(first), phase))
        columns["first_tile"].append(first)
        columns["num_tiles"].append(count)
        for name in dense:
            columns[name].append(found[name])
    phase = rng.integers(-1, PHASES, STEPS_)
    compute = np.where(phase >= 0, dense["compute_cycles"].max(axis=0)[phase], 0)
    base = ab.compile_program(ab.Graph("bow-2000:1"), ab.Sequence()).report
    num_variables = 30
    lives = np.sort(rng.integers(0, STEPS_, (num_variables, 2)), axis=1)
    place = rng.integers(0, TILES - 20, num_variables)
    report = replace(
        base,
        target={**base.target, "num_tiles": TILES, "tiles_per_ipu": PER_IPU},
        memory=Memory.of(TILES, 10_000, variables=rng.integers(0, 500, TILES), temporaries=np.full(TILES, 700)),
        steps=STEPS.table(
            name="step", kind="compute", program=[*[0] * (STEPS_ - 50), *[1] * 50], phase=phase, cycles=compute,
            compute_cycles=compute, superstep=np.where(phase >= 0, phase, -1), executions=rng.integers(1, 4, STEPS_),
        ),
        phase_tiles=PHASE_TILES.table(**{name: np.concatenate(each) for name, each in columns.items()}),
        variables=VARIABLES.table(name="v", type="f32", bytes=np.full(num_variables, 64), always_live=False),
        variable_tiles=VARIABLE_TILES.table(
            variable=np.arange(num_variables), first_tile=place, num_tiles=rng.integers(1, 20, num_variables), bytes=10,
            padded_bytes=rng.integers(10, 90, num_variables),
        ),
        lifetimes=LIFETIMES.table(variable=np.arange(num_variables), first_step=lives[:, 0], last_step=lives[:, 1]),
        buffer_tiles=BUFFER_TILES.table(
            superstep=[0, 3, 3], first_tile=[5, 0, 100], num_tiles=[10, 5, 50], bytes=[7, 8, 9]
        ),
        liveness=LIVENESS.table(step=np.arange(STEPS_), live_bytes=rng.integers(0, 1000, STEPS_)),
    )  # fmt: skip
    full = {name: np.where(phase >= 0, values[:, phase], 0) for name, values in dense.items()}
    busy = np.array([[
        any(int(full[n][ipu * PER_IPU : (ipu + 1) * PER_IPU, s].max()) > 0 for n in dense) for s in range(STEPS_)]
        for ipu in range(TILES // PER_IPU)
    ])  # fmt: skip
    full["idle_cycles"] = (compute - full["compute_cycles"]) * np.repeat(busy, PER_IPU, axis=0)
    return report, full


def brute(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The greatest of each group of rows and columns, with plain slices."""
    return np.array([
        [values[i : i + rows, j : j + columns].max() for j in range(0, values.shape[1], columns)]
        for i in range(0, values.shape[0], rows)
    ])  # fmt: skip


def squares(
    opened: Opened, metric: str, order: str, program: int, row_level: int, column_level: int, shape
) -> np.ndarray:
    """All squares of a level, put together."""
    rows = []
    for r in range(-(-shape[0] // (matrix.SIDE << row_level))):
        line = []
        for c in range(-(-shape[1] // (matrix.SIDE << column_level))):
            asked = {
                "metric": metric,
                "order": order,
                "program": program,
                "rl": row_level,
                "cl": column_level,
                "r": r,
                "c": c,
            }
            line.append(answer(opened, "matrix", Params({k: str(v) for k, v in asked.items()})).arrays["values"])
        rows.append(np.concatenate(line, axis=1))
    return np.concatenate(rows, axis=0)


@pytest.mark.parametrize("metric", ["compute_cycles", "sent_bytes", "received_bytes", "idle_cycles"])
@pytest.mark.parametrize(
    "limits", [(4_096, 8_000_000), (4_096, 3_000), (40, 3_000)], ids=["small", "many steps", "many tiles"]
)
def test_matrix__every_level__is_the_maxima_of_the_whole(metric: str, limits: tuple[int, int], monkeypatch) -> None:
    monkeypatch.setattr(matrix_cells, "MOST_UNITS", limits[0])
    monkeypatch.setattr(matrix_cells, "MOST_CELLS", limits[1])
    monkeypatch.setattr(matrix_cells, "_CHUNK_PAIRS", 1_000)
    monkeypatch.setattr(matrix, "SIDE", 64)
    report, full = made(1)
    opened = next(iter(Shelf([report])))
    mine = full[metric][:, : STEPS_ - 50]
    for row_level in range(5):
        for column_level in range(8):
            found = squares(opened, metric, "number", 0, row_level, column_level, mine.shape)
            assert found.tolist() == brute(mine, 1 << row_level, 1 << column_level).tolist(), (row_level, column_level)


@pytest.mark.parametrize("metric", ["compute_cycles", "sent_bytes", "idle_cycles", "memory_bytes"])
def test_matrix__tiles_by_size__rows_descend_and_are_those_of_their_tiles(metric: str) -> None:
    report, full = made(2)
    opened = next(iter(Shelf([report])))
    axes = answer(opened, "matrix.axes", Params({"metric": metric, "order": "size", "program": "1"}))
    sums, tile = axes.arrays["row_sums"], axes.arrays["tile"]
    assert (np.diff(sums) <= 0).all()
    assert sorted(tile.tolist()) == list(range(TILES))
    if metric != "memory_bytes":
        mine = full[metric][:, STEPS_ - 50 :]
        found = squares(opened, metric, "size", 1, 0, 0, mine.shape)
        assert found.tolist() == mine[tile].tolist()


def test_matrix__memory__is_what_the_report_says_of_each_step() -> None:
    report, _ = made(3)
    opened = next(iter(Shelf([report])))
    found = squares(opened, "memory_bytes", "number", 0, 0, 0, (TILES, STEPS_ - 50))
    for step in range(0, STEPS_ - 50, 37):
        assert found[:, step].tolist() == report.memory_at(step).tolist(), step


def test_matrix__memory_of_groups_of_steps__is_that_of_the_fullest_step() -> None:
    report, _ = made(4)
    opened = next(iter(Shelf([report])))
    found = squares(opened, "memory_bytes", "number", 0, 0, 3, (TILES, STEPS_ - 50))
    live = report.liveness["live_bytes"]
    for group in range(0, found.shape[1], 9):
        steps = range(group * 8, min(group * 8 + 8, STEPS_ - 50))
        fullest = max(steps, key=lambda s: (live[s], -s))
        assert found[:, group].tolist() == report.memory_at(fullest).tolist()


def test_axes__sums_of_columns__are_those_of_all_tiles() -> None:
    report, full = made(5)
    opened = next(iter(Shelf([report])))
    for metric in ("compute_cycles", "sent_bytes", "received_bytes"):
        axes = answer(opened, "matrix.axes", Params({"metric": metric}))
        assert axes.arrays["column_sums"].tolist() == full[metric][:, : STEPS_ - 50].sum(axis=0).tolist()
        assert axes.head["most"] == full[metric][:, : STEPS_ - 50].max()


def test_matrix__sorted_tiles_finer_than_units__is_refused(monkeypatch) -> None:
    monkeypatch.setattr(matrix_cells, "MOST_UNITS", 40)
    opened = next(iter(Shelf([made(6)[0]])))
    with pytest.raises(InvalidOptionError, match="4 at a time"):
        answer(opened, "matrix", Params({"order": "size", "rl": "0"}))


@pytest.mark.parametrize("wrong", [{"metric": "heat"}, {"order": "colour"}, {"cl": "nan"}])
def test_matrix__wrong_parameters__are_refused(wrong: dict[str, str]) -> None:
    opened = next(iter(Shelf([made(7)[0]])))
    with pytest.raises(InvalidOptionError):
        answer(opened, "matrix", Params(wrong))


def test_matrix__squares_beyond_the_axes__are_empty() -> None:
    opened = next(iter(Shelf([made(8)[0]])))
    found = answer(opened, "matrix", Params({"c": "99", "r": "99", "cl": "3", "rl": "40"})).arrays["values"]
    assert found.size == 0


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 20), st.integers(1, 20))
def test_grouped_maxima__any_sizes__are_those_of_plain_slices(rows: int, columns: int, high: int, wide: int) -> None:
    values = np.random.default_rng(high * 100 + wide).random((high, wide)).astype(np.float32)
    assert matrix_cells.grouped_maxima(values, rows, columns).tolist() == brute(values, rows, columns).tolist()


def test_matrix__runs_that_overlap_or_leave_the_machine__are_shown_as_far_as_they_go() -> None:
    report, _ = made(9)
    table = PHASE_TILES.table(
        phase=[0, 0, 0], first_tile=[10, 5, 140], num_tiles=[10, 8, 2_000_000_000], compute_cycles=[3, 4, 5]
    )
    opened = next(iter(Shelf([replace(report, phase_tiles=table)])))
    mine = report.steps["phase"][: STEPS_ - 50] == 0
    for level in (0, 2):
        found = squares(opened, "compute_cycles", "number", 0, level, 0, (TILES, STEPS_ - 50))
        assert (found[:, ~mine] == 0).all()
        assert (found[-1, mine] == 5).all()
        assert set(np.unique(found[:, mine])) == {0, 3, 4, 5}
