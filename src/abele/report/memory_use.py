"""Memory of a tile: categories, state and code by operation, and what keeps temporaries alive.

A temporary lies on the tile at its peak because a step reads it then or later. The last of these readers is the one
that keeps it: without that step, or with the value computed again before it, the room would be free. A value that a
loop carries is read by the next trip; one that no step reads is there for the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.arrays import Int64
from abele.report.code import CODE, code_on
from abele.report.relations import flat_ranges
from abele.report.text import aligned_lines, bytes_text, category_text, full_name, percent_text
from abele.words import counted, visible

if TYPE_CHECKING:
    from abele.report.report import Report

TOP = 10
"""Operations of each kind, and variables, that the text lists."""


@dataclass(frozen=True)
class OpCode:
    """State and code of an operation on a tile.

    Attributes:
        op: Row in the ops table.
        operation: Its name with its path.
        vertex_state: Bytes of its vertices' records.
        vertex_code: Bytes of codelets that no operation before it needs on the tile.
        control_code: Bytes of control code.
        exchange_code: Bytes of exchange instructions.
    """

    op: int
    operation: str
    vertex_state: int
    vertex_code: int
    control_code: int
    exchange_code: int


@dataclass(frozen=True)
class HeldVariable:
    """A variable that lies on a tile when it is fullest.

    Attributes:
        variable: Row in the variables table.
        name: Its name.
        bytes: Bytes on the tile, with what alignment adds.
        always_live: True if it lives through the whole program.
        made_by: Operation that writes the value, or that writes the variable first; empty for none.
        kept_for: The last operation that reads the value; empty where none does, and for what always lives.
        steps_later: Steps from the peak to that reader; 0 where it reads at the peak.
        why: Both in words.
    """

    variable: int
    name: str
    bytes: int
    always_live: bool
    made_by: str
    kept_for: str
    steps_later: int
    why: str


@dataclass(frozen=True)
class MemoryUse:
    """Contents of a tile when it is fullest.

    Attributes:
        tile: The tile.
        bytes: Bytes that it needs.
        available_bytes: Bytes that it has.
        mean_bytes: Bytes of the mean tile.
        categories: Bytes by category, largest first.
        code: State and code by operation, most bytes first.
        peak_step: Row of the step at which temporaries take most, -1 for none.
        peak: Name of that step.
        moving_bytes: Bytes in motion at that step, part of the temporaries.
        variables: Variables that lie there then, largest first.
    """

    tile: int
    bytes: int
    available_bytes: int
    mean_bytes: int
    categories: dict[str, int]
    code: tuple[OpCode, ...]
    peak_step: int
    peak: str
    moving_bytes: int
    variables: tuple[HeldVariable, ...]

    @property
    def temporaries(self) -> tuple[HeldVariable, ...]:
        """Variables that do not always live, largest first."""
        return tuple(v for v in self.variables if not v.always_live)

    def largest(self, category: str) -> tuple[OpCode, ...]:
        """Operations with bytes of one kind of state or code, most bytes first."""
        some = [each for each in self.code if getattr(each, category)]
        return tuple(sorted(some, key=lambda each: -int(getattr(each, category))))

    def to_json(self) -> dict[str, Any]:
        """All as plain data."""
        return asdict(self)

    def text(self, count: int = TOP) -> str:
        """Categories, the ``count`` largest operations by each kind of code, and the ``count`` largest variables."""
        part = percent_text(self.bytes / max(self.available_bytes, 1))
        lines = [
            f"tile {self.tile:,} needs {bytes_text(self.bytes)} of {bytes_text(self.available_bytes)} ({part}); "
            f"the mean tile {bytes_text(self.mean_bytes)}",
            *aligned_lines(
                [("", f"{size:,}", category_text(name)) for name, size in self.categories.items()] or [("", "", "")],
                "<><",
            ),
        ]
        for category in CODE:
            lines += self._code_lines(category, count)
        if self.peak_step >= 0:
            lines += ["", f"temporaries at its peak, step {self.peak_step:,}: {self.peak}"]
            rows = [(f"{v.bytes:,}", v.name, v.why) for v in self.temporaries[:count]]
            if self.moving_bytes:
                rows.append((f"{self.moving_bytes:,}", "data in motion", "buffers of that step"))
            rows.sort(key=lambda row: -int(row[0].replace(",", "")))
            lines += aligned_lines([("bytes", "variable", "why"), *rows, *_more(self.temporaries, count)], "><<")
        always = [v for v in self.variables if v.always_live]
        if always:
            rows = [(f"{v.bytes:,}", v.name, v.why) for v in always[:count]]
            lines += ["", "always live"]
            lines += aligned_lines([("bytes", "variable", "why"), *rows, *_more(always, count)], "><<")
        return "\n".join(lines)

    def _code_lines(self, category: str, count: int) -> Iterator[str]:
        found = self.largest(category)
        if not found:
            return
        # Operations of one name, such as those of equal layers, are one line.
        sizes: dict[str, list[int]] = {}
        for each in found:
            sizes.setdefault(each.operation, []).append(int(getattr(each, category)))
        named = sorted(sizes.items(), key=lambda item: -sum(item[1]))
        total = sum(map(sum, sizes.values()))
        yield ""
        yield f"{category_text(category)}: {bytes_text(total)} of {counted(len(found), 'operation')}"
        rows = [(f"{sum(s):,}", f"{name} ({len(s):,} of them)" if len(s) > 1 else name) for name, s in named[:count]]
        if len(named) > count:
            rest = named[count:]
            rows.append((f"{sum(sum(s) for _, s in rest):,}", f"in {sum(len(s) for _, s in rest):,} more"))
        yield from aligned_lines(rows, "><")


def _more(held: tuple[HeldVariable, ...] | list[HeldVariable], count: int) -> list[tuple[str, str, str]]:
    rest = held[count:]
    return [(f"{sum(v.bytes for v in rest):,}", f"in {len(rest):,} more", "")] if rest else []


def memory_use(report: Report, tile: int | None = None) -> MemoryUse:
    """Contents of a tile when it is fullest.

    Args:
        report: The report.
        tile: The tile; the fullest by default.

    Raises:
        InvalidOptionError: There is no such tile.
    """
    from abele.report.insights.tile_contents import TileContents

    memory = report.memory
    tile = memory.fullest_tile if tile is None else tile
    categories = sorted(memory.of_tile(tile).items(), key=lambda item: -item[1])
    found = TileContents(report, tile)
    peak = found.peak_step
    names = _OpNames(report)
    code = [
        OpCode(row["op"], names[row["op"]], **{name: row[name] for name in CODE})
        for row in code_on(report, tile).rows()
    ]
    return MemoryUse(
        tile=tile,
        bytes=int(memory.by_tile[tile]),
        available_bytes=memory.available_bytes,
        mean_bytes=int(memory.by_tile.mean()),
        categories={name: size for name, size in categories if size},
        code=tuple(code),
        peak_step=peak,
        peak=visible(str(report.steps["name"][peak])) if peak >= 0 else "",
        moving_bytes=found.moving_bytes,
        variables=tuple(_held_variables(report, peak, found.variables, names)),
    )


class _OpNames:
    """Names of operations with their paths, each made when it is asked for."""

    def __init__(self, report: Report) -> None:
        self._ops = report.ops
        self._names, self._paths = report.ops["name"], report.ops["path"]

    def __getitem__(self, op: int) -> str:
        if not 0 <= op < len(self._ops):
            return ""
        return visible(full_name(str(self._paths[op]), str(self._names[op])))


def _held_variables(report: Report, peak: int, held: list[tuple[int, int]], names: _OpNames) -> Iterator[HeldVariable]:
    """Variables on a tile with what made and what keeps them, in order."""
    if not held:
        return
    rows = np.array([row for row, _ in held], dtype=np.int64)
    variables, op_of_step = report.variables.select(rows), report.steps["op"]
    first, last, reader, before = _lives(report, peak, rows)
    number = _step_numbers(report)
    # A column of texts is decoded whole each time that it is asked for.
    ops, always_live, roles, labels = (variables[name] for name in ("op", "always_live", "role", "name"))
    for place, (row, size) in enumerate(held):
        always = bool(always_live[place])
        life = int(first[place]), int(last[place])
        made = int(ops[place]) if always or life[0] < 0 else int(op_of_step[life[0]])
        kept = -1 if always or reader[place] < 0 else int(op_of_step[reader[place]])
        later = int(number[reader[place]] - number[peak]) if kept >= 0 else 0
        if always:
            role = str(roles[place])
            why = role or "always live"
        elif not len(report.superstep_variables):
            why = f"live from step {life[0]:,} to {life[1]:,}"
        elif kept >= 0:
            why = f"read by {names[kept]}" if not later else f"kept for {names[kept]}, {counted(later, 'step')} later"
        elif before[place]:
            why = "carried around a loop: read before in each trip"
        elif life[0] >= 0 and number[life[0]] == number[peak]:
            why = f"written by {names[made]}"
        else:
            why = "no step reads it: for the host, or another program"
        yield HeldVariable(
            variable=row,
            name=visible(str(labels[place])),
            bytes=size,
            always_live=always,
            made_by=names[made],
            kept_for=names[kept],
            steps_later=later,
            why=why,
        )


def _lives(report: Report, peak: int, rows: Int64) -> tuple[Int64, Int64, Int64, Int64]:
    """Life at the peak and readers of some variables.

    Returns:
        First and last row of the steps table of the life that is on at the peak (-1 for none), the last step that reads
        the value from the peak on (-1 for none), and the number of steps that read it in that life before, int64[n]
        each.
    """
    first, last = np.full((2, len(rows)), -1, dtype=np.int64)
    place_of = np.full(max(len(report.variables), 1), -1, dtype=np.int64)
    place_of[rows] = np.arange(len(rows))
    life = report.lifetimes
    now = (life["first_step"] <= peak) & (peak <= life["last_step"]) & (place_of[life["variable"]] >= 0)
    at = place_of[life["variable"][now]]
    first[at], last[at] = life["first_step"][now], life["last_step"][now]
    # Steps that read one of the variables: uses of its supersteps, put beside the rows of the steps table.
    uses, superstep = report.superstep_variables, report.steps["superstep"]
    read = np.flatnonzero((place_of[uses["variable"]] >= 0) & (uses["read_bytes"] > 0))
    order = np.argsort(superstep, kind="stable")
    ordered, wanted = superstep[order], uses["superstep"][read]
    begin = np.searchsorted(ordered, wanted, side="left")
    runs, use = flat_ranges(begin, np.searchsorted(ordered, wanted, side="right") - begin)
    step, place = order[runs], place_of[uses["variable"][read[use]]]
    # A step that reads right after the last one of the life writes a result at the same place.
    number = _step_numbers(report)
    inside = (last[place] >= 0) & (step >= first[place]) & (number[step] <= number[last[place]] + 1)
    step, place = step[inside], place[inside]
    reader = np.full(len(rows), -1, dtype=np.int64)
    # All rows of the step at the peak read what it reads, those before the peak too.
    after = number[step] >= number[peak] if len(step) else np.zeros(0, dtype=bool)
    np.maximum.at(reader, place[after], step[after])
    return first, last, reader, np.bincount(place[~after], minlength=len(rows)).astype(np.int64)


def _step_numbers(report: Report) -> Int64:
    """Number of the step that each row of the steps table is part of, int64[rows]; rows of one follow each other."""
    steps = report.steps
    superstep, op = steps["superstep"], steps["op"]
    begins = np.append(True, (superstep[1:] != superstep[:-1]) | (op[1:] != op[:-1]))[: len(superstep)]
    return np.cumsum(begins).astype(np.int64)
