"""State and code of operations on selected tiles, and what keeps temporaries on a tile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

import numpy as np

from abele.arrays import Array, Int64
from abele.report.code import CODE
from abele.report.relations import joined_rows
from abele.viewer.answers.holdings import MOST_ROWS, Overlap, chosen, rows_page, summed_by
from abele.viewer.answers.recent import recent
from abele.viewer.answers.registry import question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer


def _frozen_code(opened: Opened) -> Iterator[Mapping[str, str]]:
    yield {"sort": "-here", "count": str(MOST_ROWS)}
    yield {"tiles": str(opened.report.memory.fullest_tile), "sort": "-here", "count": str(MOST_ROWS)}


@question("memory.code", frozen=_frozen_code, rank=4)
def code(opened: Opened, params: Params) -> Answer:
    """Operations with vertex state or code on selected tiles.

    Parameters: ``tiles``, ``filter``, ``sort``, ``first``, ``count``.

    Answer: as ``table`` of operations, with ``vertex_state``, ``vertex_code``, ``control_code``, ``exchange_code`` and
    ``here``, their sum: bytes on all of the tiles.
    """
    text = params.text("tiles")
    held = recent(opened, "code on tiles", text, lambda: _code_of(opened, text))
    return rows_page(opened, "ops", params, held, held["here"] > 0)


def _code_of(opened: Opened, text: str) -> dict[str, Array]:
    """Bytes of each operation on some tiles, int64[ops] by name."""
    report = opened.report
    uses, table = report.code_uses, report.code_tiles
    rows, use = joined_rows(table, "pattern", uses["pattern"])
    first = table["first_tile"][rows].astype(np.int64) + uses["shift_tiles"][use]
    # What a file puts outside of the machine lies nowhere.
    end = np.clip(first + table["num_tiles"][rows], 0, report.memory.num_tiles)
    first = np.maximum(first, 0)
    covered = Overlap(chosen(opened, text), report.memory.num_tiles).covered(first, np.maximum(end - first, 0))
    op, count = uses["op"][use], len(report.ops)
    found: dict[str, Int64] = {name: summed_by(op, table[name][rows] * covered, count) for name in CODE}
    return {**found, "here": np.stack(list(found.values())).sum(axis=0)}


def _frozen_kept(opened: Opened) -> Iterator[Mapping[str, str]]:
    yield {"tile": str(opened.report.memory.fullest_tile)}


@question("memory.kept", frozen=_frozen_kept, rank=4)
def kept(opened: Opened, params: Params) -> Answer:
    """What lies on a tile when its temporaries take most, and the operations that keep it.

    Parameters: ``tile``.

    Answer: head ``tile``, ``peak_step`` (-1 for none), ``peak`` its name, ``moving_bytes``, ``rows`` with the fields of
    ``HeldVariable``, largest first, MOST_ROWS at most, and ``total``, how many there are.
    """
    tile = params.number("tile", opened.report.memory.fullest_tile)
    use = recent(opened, "memory of a tile", tile, lambda: opened.report.memory_use(tile))
    rows = [asdict(each) for each in use.temporaries[:MOST_ROWS]]
    head = {"tile": tile, "peak_step": use.peak_step, "peak": use.peak, "moving_bytes": use.moving_bytes}
    return Answer(head | {"rows": rows, "total": len(use.temporaries)})
