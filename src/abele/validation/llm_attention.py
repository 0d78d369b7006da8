"""Attention of one query over a cache on a Bow IPU, against published times: keys and values in tiles, or off the chip.

Rows of a CSV of language models' figures. Each is built of library functions, compiled, and its modelled time compared:
on tiles two grouped products and a softmax over a cache that is spread in order, off the chip chunks that are loaded
one after the other, and SparQ attention. Settings are read by name, so that other sizes are compared as well.

Example: batch=1 heads=32 head_dim=128 seq=4096 r=32 k=128 loads 10.5 MB in f16: 1.54 ms at the memory's rate, and 0.11
ms to choose components and positions; 1.64 ms are published.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from abele.compiler import compile_program
from abele.errors import AbeleError, FileFormatError
from abele.graph import Graph, Sequence, Tensor
from abele.machine import System, systems
from abele.numerics import ElementType, f16, f32
from abele.poplibs.popnn.attention.streamed import (
    SparqCache,
    SparqParams,
    attention_over_tiles,
    sparq_attention,
    streamed_attention,
)
from abele.validation.figures import Bars, Comparison, Figure

SYSTEM = "bow-2000:1"
"""The machine: one IPU beside the streaming memory of its IPU-M."""
BARS = Bars(None, median=0.10, high=0.25)
"""Largest median and 90th percentile of errors of each class."""
_TYPES = {"fp16": f16, "fp32": f32}
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_LOCAL = 4
"""One in so many of SparQ's positions is among the last, which always count; it changes no time. Chosen."""


@dataclass(frozen=True)
class AttentionRow:
    """A published time.

    Attributes:
        workload: Class of the figure.
        batch: Sequences.
        heads: Heads of each.
        width: Width of a head.
        positions: Positions of keys and values.
        chunk: Positions of a chunk, where keys and values are streamed.
        components: Components that SparQ attention reads.
        best: Positions that it attends to.
        dtype: Element type.
        seconds: Published time of a call.
        source: Source of the figure.
    """

    workload: str
    batch: int
    heads: int
    width: int
    positions: int
    chunk: int
    components: int
    best: int
    dtype: ElementType
    seconds: float
    source: str

    @property
    def name(self) -> str:
        """Name of the figure."""
        read = f", r {self.components} k {self.best}" if self.components else ""
        return f"batch {self.batch}, {self.positions:,} positions{read}"


def _queries(graph: Graph, row: AttentionRow) -> Tensor:
    return graph.map_linear(graph.variable(row.dtype, (row.batch * row.heads, 1, row.width), name="q"))


def _on_tiles(graph: Graph, row: AttentionRow, prog: Sequence) -> None:
    shape = row.batch * row.heads, row.positions, row.width
    keys, values = (graph.map_linear(graph.variable(row.dtype, shape, name=name)) for name in ("keys", "values"))
    attention_over_tiles(graph, _queries(graph, row), keys, values, prog)


def _streamed(graph: Graph, row: AttentionRow, prog: Sequence) -> None:
    chunk = min(row.chunk or row.positions, row.positions)
    size, count = row.batch * row.heads * chunk * row.width, -(-row.positions // chunk)
    keys, values = (graph.remote_buffer(name, row.dtype, size, count) for name in ("keys", "values"))
    streamed_attention(graph, _queries(graph, row), keys, values, prog, chunk=chunk)


def _sparq(graph: Graph, row: AttentionRow, prog: Sequence) -> None:
    groups, size = row.batch * row.heads, row.positions
    mean = graph.map_linear(graph.variable(row.dtype, (groups, row.width), name="mean"))
    stored = SparqCache(
        graph.remote_buffer("by_component", row.dtype, size, groups * row.width),
        graph.remote_buffer("keys", row.dtype, row.width, groups * size),
        graph.remote_buffer("values", row.dtype, row.width, groups * size),
        mean,
    )
    params = SparqParams(row.components, min(row.best, size), min(row.best, size) // _LOCAL)
    sparq_attention(graph, _queries(graph, row), stored, params, prog)


_PROGRAMS: dict[str, tuple[str, Callable[[Graph, AttentionRow, Sequence], None]]] = {
    "attention, KV in SRAM": ("llm_attention_tiles", _on_tiles),
    "attention, KV in DDR": ("llm_attention_streamed", _streamed),
    "SparQ attention, KV in DDR": ("llm_attention_sparq", _sparq),
}
"""Key of the comparison, and the program, of each class of figures."""


def modelled_seconds(row: AttentionRow, system: System) -> float:
    """Seconds of a row's program.

    Raises:
        OutOfMemoryError: It fits no tile.
    """
    graph, prog = Graph(system), Sequence()
    _PROGRAMS[row.workload][1](graph, row, prog)
    report = compile_program(graph, prog).report
    return float(report.seconds(report.cycles().total))


def attention_rows(table: Iterable[Mapping[str, str]], file: str = "rows") -> list[AttentionRow]:
    """Rows about attention on Bow IPUs, of the rows of a table by column; others are left out.

    Raises:
        FileFormatError: A figure or a size is no number above 0, or one is missing.
    """
    return [_row(file, number, fields) for number, fields in enumerate(table, 2) if is_attention(fields)]


def is_attention(fields: Mapping[str, str]) -> bool:
    """True for a row about attention on Bow IPUs."""
    is_known = fields.get("workload", "") in _PROGRAMS and fields.get("metric") == "time per call"
    return is_known and fields.get("chip", "").startswith("Bow")


def _row(file: str, line: int, given: Mapping[str, str]) -> AttentionRow:
    workload = given["workload"]
    sizes = {name: int(number) for name, number in re.findall(r"(\w+)\s*=\s*(\d+)", given.get("setting", ""))}
    dtype, unit = _TYPES.get(given.get("dtype", "")), _UNITS.get(given.get("unit", ""))
    wanted = ["batch", "heads", "head_dim", "seq", *(("r", "k") if "SparQ" in workload else ())]
    missing = [name for name in wanted if not sizes.get(name)]
    if missing or dtype is None or unit is None:
        what = f"{', '.join(missing) or 'a known dtype and unit'} missing in {given.get('setting')!r}"
        raise FileFormatError(f"{file}: {what}", at=f"line {line}")
    try:
        seconds = float(given.get("value", "")) * unit
    except ValueError as wrong:
        raise FileFormatError(f"{file}: {wrong}", at=f"line {line}") from None
    if not 0 < seconds < float("inf"):
        raise FileFormatError(f"{file}: a time of {given['value']} {given['unit']}", at=f"line {line}")
    return AttentionRow(
        workload,
        batch=sizes["batch"],
        heads=sizes["heads"],
        width=sizes["head_dim"],
        positions=sizes["seq"],
        chunk=sizes.get("chunk", 0),
        components=sizes.get("r", 0),
        best=sizes.get("k", 0),
        dtype=dtype,
        seconds=seconds,
        source=given.get("source", ""),
    )


_ABOUT = (
    "One query for each sequence and head on one Bow IPU, built of library functions; the host is not in it. The rate "
    "of streaming memory is the machine's own 6.8 GB/s, which is known from such figures and is no constant of a row."
)
_CAUSES = {
    "llm_attention_tiles": (
        "The published program is not public. Its time grows by 1.4 cycles for each byte of a tile's keys and values, "
        "where reading them takes 1/8: it moves and arranges them. So does this one, which takes them as they are "
        "spread, and is faster throughout by about the same factor. Laid out as the products want them, they would "
        "take a fifth of the published time; :func:`abele.poplibs.popnn.attention.cached_attention` takes a third."
    ),
}
"""Likely causes of what is furthest off, by comparison."""


def compare(
    rows: Iterable[AttentionRow], *, progress: Callable[[str], None] | None = None
) -> tuple[list[Comparison], tuple[str, ...]]:
    """A comparison for each class of figures, and the rows that could not be built.

    Args:
        rows: Published times.
        progress: Called with the name of each row before it is compiled.
    """
    system, failures = systems.get(SYSTEM), list[str]()
    figures: dict[str, list[Figure]] = {workload: [] for workload in _PROGRAMS}
    for row in rows:
        if progress is not None:
            progress(f"{row.workload}: {row.name}")
        try:
            seconds = modelled_seconds(row, system)
        except AbeleError as error:
            failures.append(f"{row.workload}: {row.name}: {type(error).__name__}: {error.message}")
            continue
        kind = f"{row.positions:,} positions"
        figures[row.workload].append(Figure(row.name, kind, seconds * 1e6, row.seconds * 1e6, "us", row.source))
    made = [
        Comparison(key, workload, _ABOUT, tuple(found), BARS, _CAUSES.get(key, ""))
        for workload, (key, _) in _PROGRAMS.items()
        if (found := figures[workload])
    ]
    return made, tuple(failures)
