"""Cost of libpva's questions on a report of a million variables and the 94,208 tiles of a Pod64.

    python benchmarks/queries.py [--json] [--variables 1000000] [--tiles 94208] [--rounds 3]

The report is made up, saved and opened again, so that columns are read from the file as those of a real one. Each
question is asked in three ways: with one object per variable or tile, as programs written for libpva do; with the
arrays beside them; and in SQL. Times are processor time of the process, the best of some rounds, with columns that were
read before; ``first`` is the first answer from arrays on a report just opened, which reads and checks its columns. The
three answers are compared. With --json one object is printed: {"rows": [...]}.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from abele import pva
from abele.machine import systems
from abele.report import LIFETIMES, LIVENESS, OPS, STEPS, VARIABLE_TILES, VARIABLES, Memory, Report

NUM_STEPS = 50_000


@dataclass(frozen=True)
class Question:
    """A question in three forms.

    Attributes:
        name: The question in words.
        objects: Asks it of one object after the other.
        arrays: Asks it of arrays.
        sql: Asks it in SQL; its answer is one number.
    """

    name: str
    objects: Callable[[pva.Report], float]
    arrays: Callable[[pva.Report], float]
    sql: str


def peak_of_objects(report: pva.Report) -> float:
    compilation = report.compilation
    always = sum(var.size for var in compilation.alwaysLiveVariables)
    return always + max(step.notAlwaysLiveMemory.bytes for step in compilation.livenessProgramSteps)


def peak_of_arrays(report: pva.Report) -> float:
    compilation = report.compilation
    return int(compilation.alwaysLiveVariables.bytes.sum() + compilation.livenessProgramSteps.bytes.max())


def largest_of_objects(report: pva.Report) -> float:
    return max((var.size, var.name) for var in report.compilation.alwaysLiveVariables)[0]


def largest_of_arrays(report: pva.Report) -> float:
    variables = report.compilation.alwaysLiveVariables
    return variables[int(np.argmax(variables.bytes))].size


def weights_of_objects(report: pva.Report) -> float:
    return sum(var.size for var in report.compilation.alwaysLiveVariables if "weight" in var.name)


def weights_of_arrays(report: pva.Report) -> float:
    return int(report.compilation.alwaysLiveVariables.named("weight").bytes.sum())


def memory_of_objects(report: pva.Report) -> float:
    return sum(tile.memory.total.excludingGaps for tile in report.compilation.tiles)


def memory_of_arrays(report: pva.Report) -> float:
    return int(report.compilation.tiles.excludingGaps.sum())


def code_of_objects(report: pva.Report) -> float:
    return max(tile.memory.category.vertexCode.total for tile in report.compilation.tiles)


def code_of_arrays(report: pva.Report) -> float:
    return int(report.compilation.tiles.category("vertexCode").max())


def exchanges_of_objects(report: pva.Report) -> float:
    return sum(program.type == pva.Program.Type.DoExchange for program in report.compilation.programs)


def exchanges_of_arrays(report: pva.Report) -> float:
    return len(report.compilation.programs.of_type(pva.Program.Type.DoExchange))


_ALWAYS = "from variables where always_live"
QUESTIONS = (
    Question(
        "peak: always-live + most of the others",
        peak_of_objects,
        peak_of_arrays,
        f"select (select sum(bytes) {_ALWAYS}) + (select max(live_bytes) from liveness)",
    ),
    Question("largest always-live variable", largest_of_objects, largest_of_arrays, f"select max(bytes) {_ALWAYS}"),
    Question(
        "bytes of always-live weights, by name",
        weights_of_objects,
        weights_of_arrays,
        f"select sum(bytes) {_ALWAYS} and name like '%weight%'",
    ),
    Question(
        "bytes of all tiles without gaps",
        memory_of_objects,
        memory_of_arrays,
        "select sum(total_bytes - gaps) from memory",
    ),
    Question("most vertex code on a tile", code_of_objects, code_of_arrays, "select max(vertex_code) from memory"),
    Question(
        "exchanges of the program",
        exchanges_of_objects,
        exchanges_of_arrays,
        "select count(*) from steps where kind = 'exchange'",
    ),
)


def made_up(num_variables: int, num_tiles: int) -> Report:
    """A report of so many variables, half of them always live, on tiles that all differ."""
    random = np.random.default_rng(0)
    place = np.arange(num_variables)
    kinds = ("weight", "bias", "activation", "gradient")
    always = place % 2 == 0
    size = random.integers(4, 1 << 16, num_variables)
    first = np.sort(random.integers(0, NUM_STEPS - 100, num_variables))
    last = first + random.integers(0, 100, num_variables)
    rest = np.flatnonzero(~always)
    live = np.zeros(NUM_STEPS + 1, np.int64)
    np.add.at(live, first[rest], size[rest])
    np.subtract.at(live, last[rest] + 1, size[rest])
    live_bytes = np.cumsum(live[:-1])
    return Report(
        target={**systems.bow_2000().figures(), "num_ipus": 64, "num_tiles": num_tiles},
        graph={"num_variables": num_variables},
        steps=STEPS.table(
            name=[f"layer{k // 8}/step{k}" for k in range(NUM_STEPS)],
            kind=[("exchange", "compute")[k % 2] for k in range(NUM_STEPS)],
            block=[f"stage{k * 8 // NUM_STEPS}" for k in range(NUM_STEPS)],
            cycles=random.integers(100, 10_000, NUM_STEPS),
        ),
        ops=OPS.empty(),
        memory=Memory.of(
            num_tiles,
            638_976,
            variables=random.integers(0, 200_000, num_tiles),
            temporaries=random.integers(0, 200_000, num_tiles),
            vertex_code=random.integers(0, 50_000, num_tiles),
            gaps=random.integers(0, 1000, num_tiles),
        ),
        variables=VARIABLES.table(
            name=[f"layer{k // 4}/{kinds[k * 7 % 4]}{k}" for k in range(num_variables)],
            type="f16",
            bytes=size,
            tiles=1,
            always_live=always,
            first_step=np.where(always, -1, first),
            last_step=np.where(always, -1, last),
        ),
        liveness=LIVENESS.table(
            step=np.arange(NUM_STEPS), live_bytes=live_bytes, max_tile_bytes=live_bytes // num_tiles
        ),
        variable_tiles=VARIABLE_TILES.table(
            variable=place, first_tile=place % num_tiles, num_tiles=1, bytes=size, padded_bytes=size
        ),
        lifetimes=LIFETIMES.table(variable=rest, first_step=first[rest], last_step=last[rest]),
        meta={"name": "made up", "programs": ["main"]},
    )


def seconds(answer: Callable[[], float], rounds: int) -> tuple[float, float]:
    """The answer, and the least processor time that it took."""
    best, found = float("inf"), 0.0
    for _ in range(rounds):
        begin = time.process_time()
        found = answer()
        best = min(best, time.process_time() - begin)
    return found, best


def asked(report: Report, query: str) -> float:
    answer = report.sql(query)
    return float(answer[answer.names[0]][0])


def rows(num_variables: int, num_tiles: int, rounds: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.abele-report"
        made_up(num_variables, num_tiles).save(path)
        opening = seconds(lambda: len(pva.openReport(path).columns.variables), rounds)[1]
        yield {"question": f"open, {path.stat().st_size / 1e6:.0f} MB", "first": opening}
        for question in QUESTIONS:
            opened = pva.openReport(path)
            begin = time.process_time()
            first = question.arrays(opened)
            first_seconds = time.process_time() - begin
            by_objects, objects = seconds(lambda q=question, r=opened: q.objects(r), rounds)
            by_arrays, arrays = seconds(lambda q=question, r=opened: q.arrays(r), rounds)
            by_sql, sql = seconds(lambda q=question, r=opened: asked(r.columns, q.sql), rounds)
            if not first == by_objects == by_arrays == by_sql:
                raise SystemExit(f"{question.name}: {by_objects} by objects, {by_arrays} by arrays, {by_sql} by SQL")
            yield {"question": question.name, "first": first_seconds, "objects": objects, "arrays": arrays, "sql": sql}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--variables", type=int, default=1_000_000)
    parser.add_argument("--tiles", type=int, default=94_208)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    found = list(rows(wanted.variables, wanted.tiles, wanted.rounds))
    if wanted.json:
        print(json.dumps({"rows": found}))
        return
    grid = Table(title=f"{wanted.variables:,} variables, {wanted.tiles:,} tiles: ms of processor time", box=None)
    names = ("first", "objects", "arrays", "sql")
    grid.add_column("question")
    for name in names:
        grid.add_column(name, justify="right")
    for row in found:
        grid.add_row(row["question"], *(f"{row[name] * 1e3:,.1f}" if name in row else "" for name in names))
    Console(width=110).print(grid)


if __name__ == "__main__":
    main()
