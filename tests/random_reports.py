"""Small reports of random content for tests of what is worked out from them, with the same content as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.machine import systems
from abele.report import Memory, Report
from abele.report.memory import CATEGORIES
from abele.report.schema import TABLES
from abele.report.tiles import dense_runs

TYPES = ("f32", "f16", "i32")
FILES = ("model.py", "train.py", "")


@dataclass(frozen=True)
class RandomReport:
    """A report and what it was made of.

    Attributes:
        report: The report.
        held: Bytes of each variable on each tile, int64[variables, tiles].
        padded: The same with gaps.
        lives: True where a variable lives at a step and not always, bool[variables, steps].
        moving: Bytes for data in motion, int64[steps, tiles].
        sent: Bytes of shares that are free before their variables' lives end, int64[steps, tiles].
        always: bool[variables].
    """

    report: Report
    held: Int64
    padded: Int64
    lives: npt.NDArray[np.bool_]
    moving: Int64
    sent: Int64
    always: npt.NDArray[np.bool_]


def random_report(
    seed: int, num_ipus: int = 2, tiles_per_ipu: int = 32, variables: int = 30, steps: int = 40, room: int = 10**6
) -> RandomReport:
    """A report whose relations agree with each other; the same for each seed."""
    rng = np.random.default_rng(seed)
    tiles = num_ipus * tiles_per_ipu
    present = rng.random((variables, tiles)) < rng.random((variables, 1))
    held = np.where(present, rng.integers(1, 400, (variables, tiles)), 0)
    padded = np.where(present, -(-held // 8) * 8, 0)
    always = rng.random(variables) < 0.3
    # Every third step is of the kind that the curve leaves out: a further row of the superstep before it.
    superstep = np.cumsum(np.arange(steps) % 3 != 2) - 1
    shown = np.flatnonzero(np.diff(superstep, prepend=-1) > 0)
    lives = np.zeros((variables, steps), dtype=bool)
    lifetimes: list[tuple[int, int, int]] = []
    for variable in np.flatnonzero(~always).tolist():
        ends = np.sort(rng.choice(steps, 4, replace=False)).tolist()
        for first, last in (ends[:2], ends[2:]) if rng.random() < 0.4 else (ends[1:3],):
            lives[variable, first : last + 1] = True
            lifetimes.append((variable, first, last))
    moving = np.where(rng.random((steps, tiles)) < 0.2, rng.integers(1, 300, (steps, tiles)), 0)
    moving = moving[np.flatnonzero(np.diff(superstep, prepend=-1) > 0)][superstep]
    sent = np.zeros((steps, tiles), dtype=np.int64)
    free: list[tuple[int, int, int, Int64]] = []
    for variable, first, last in lifetimes:
        if last > first and rng.random() < 0.5:
            begin = last - int(rng.integers(0, 2))
            shares = np.where(rng.random(tiles) < 0.5, padded[variable], 0)
            sent[begin : last + 1] += shares
            free.append((variable, begin, last, shares))
    live = np.einsum("vs,vt->st", lives, padded) + moving - sent
    memory = {name: rng.integers(0, 500, tiles) for name in CATEGORIES}
    memory["variables"] = held[always].sum(axis=0)
    memory["temporaries"] = live[shown].max(axis=0)
    memory["gaps"] = (padded - held)[always].sum(axis=0)
    any_lives = lives.any(axis=1)
    first = np.where(any_lives, lives.argmax(axis=1), -1)
    last = np.where(any_lives, steps - 1 - lives[:, ::-1].argmax(axis=1), -1)
    made: dict[str, Any] = {name: schema.empty() for name, schema in TABLES.items()}
    made["steps"] = TABLES["steps"].table(
        name=[f"step {i}" for i in range(steps)],
        kind=["compute"] * steps,
        program=[0] * steps,
        op=rng.integers(-1, 5, steps),
        superstep=superstep,
        phase=superstep,
        cycles=rng.integers(1, 1000, steps),
    )
    made["ops"] = TABLES["ops"].table(
        name=[f"op{i}" for i in range(5)],
        file=[FILES[i % 3] for i in range(5)],
        line=[i * 10 for i in range(5)],
    )
    made["variables"] = TABLES["variables"].table(
        name=[f"layer{i % 4}/part{i % 7}/v{i}" for i in range(variables)],
        type=[TYPES[i % 3] for i in range(variables)],
        bytes=held.sum(axis=1),
        tiles=present.sum(axis=1),
        always_live=always,
        first_step=first,
        last_step=last,
    )
    made["lifetimes"] = TABLES["lifetimes"].table(
        **{name: [row[at] for row in lifetimes] for at, name in enumerate(("variable", "first_step", "last_step"))}
    )
    made["sent_tiles"] = _sent(free)
    made["variable_tiles"] = _relation("variable_tiles", "variable", {"bytes": held, "padded_bytes": padded})
    firsts = np.flatnonzero(np.diff(superstep, prepend=-1) > 0)
    made["buffer_tiles"] = _relation("buffer_tiles", "superstep", {"bytes": moving[firsts]})
    traffic = {
        name: np.where(rng.random((len(firsts), tiles)) < 0.5, rng.integers(1, 900, (len(firsts), tiles)), 0)
        for name in ("compute_cycles", "sent_bytes", "received_bytes")
    }
    made["phase_tiles"] = _relation("phase_tiles", "phase", traffic)
    made["liveness"] = TABLES["liveness"].table(
        step=shown, live_bytes=live[shown].sum(axis=1), max_tile_bytes=live[shown].max(axis=1)
    )
    target = {**systems.bow_2000().with_ipus(1).figures(), "num_tiles": tiles, "tiles_per_ipu": tiles_per_ipu}
    report = Report(
        target={**target, "num_ipus": num_ipus},
        graph={},
        memory=Memory.of(tiles, room, **memory),
        meta={"name": "random", "programs": ["main"]},
        **made,
    )
    return RandomReport(report, held, padded, lives, moving, sent, always)


def _sent(free: list[tuple[int, int, int, Int64]]) -> Any:
    """The relation of variables, the first and last row on which shares are free, and their bytes on each tile."""
    columns: dict[str, list[Any]] = {name: [] for name in TABLES["sent_tiles"].columns}
    for variable, begin, last, shares in free:
        first, count, found = dense_runs(bytes=shares)
        columns["first_tile"] += first.tolist()
        columns["num_tiles"] += count.tolist()
        columns["bytes"] += found["bytes"].tolist()
        for name, value in (("variable", variable), ("first_step", begin), ("last_step", last)):
            columns[name] += [value] * len(first)
    return TABLES["sent_tiles"].table(**columns)


def _relation(name: str, owner: str, values: dict[str, Int64]) -> Any:
    """A relation with tiles of dense values, int64[owners, tiles] by name."""
    columns: dict[str, list[Any]] = {owner: [], "first_tile": [], "num_tiles": [], **{each: [] for each in values}}
    for row in range(len(next(iter(values.values())))):
        first, count, found = dense_runs(**{each: dense[row] for each, dense in values.items()})
        columns[owner] += [row] * len(first)
        columns["first_tile"] += first.tolist()
        columns["num_tiles"] += count.tolist()
        for each, runs in found.items():
            columns[each] += runs.tolist()
    return TABLES[name].table(**columns)
