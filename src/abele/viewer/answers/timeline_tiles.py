"""Work of tiles over time, as rows of a picture."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Array, Int64
from abele.viewer.answers.registry import Frozen, question
from abele.viewer.answers.timeline_asked import is_beyond_held, step_names, window_asked
from abele.viewer.bars import COLUMNS, edges_of, window
from abele.viewer.lanes import GroupLanes, looped_covered, loops_of, stepped_shares
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.tile_lanes import (
    KINDS,
    ROWS,
    Stretch,
    fine_by_tile,
    looped_shares_by_tile,
    owners_of,
    row_edges,
    shares_by_tile,
    stretches,
    vertices_for_workers,
)
from abele.viewer.wire import Answer

_MOST_FINE = 320
"""Spans of which each tile's own part is told."""


def _frozen_rows(opened: Opened) -> Frozen:
    """All tiles in one map tile's rows."""
    height = max((max(opened.report.memory.num_tiles, 1) - 1) // ROWS, 0).bit_length()
    for level in range(3):
        for index in range(1 << level):
            yield {"program": "0", "level": str(level), "index": str(index), "height": str(height), "chunk": "0"}


@question("timeline.tiles", frozen=_frozen_rows, rank=5)
def tiles(opened: Opened, params: Params) -> Answer:
    """Work of tiles over time, in a map tile of 512 columns and 128 rows of 2^``height`` tiles.

    Parameters: ``program``, ``level``, ``index``, ``height``, ``chunk`` (which 128 rows).

    Answer: array ``edges``, first tile of each row and the end of the last. Head ``mode``: ``shares`` has array
    ``shares`` uint8[rows, 512, kinds]; ``spans`` has ``stretches`` of rows of one lane, each with its numbers of
    ``rows`` and ``spans``, and after each other ``start``, ``cuts``, ``step``, ``part`` of their spans and
    ``compute``, ``most``, ``exchange`` float32[spans, rows] of their rows.
    """
    program, held, level, index = window_asked(opened, params)
    height = params.number("height", high=24)
    edges = row_edges(opened.report.memory.num_tiles, height, params.number("chunk", high=1 << 24))
    low, high = window(index, level, 0.0, float(held.total))
    parts = stretches(owners_of(opened, program), edges)
    num_spans = sum(r.stop - r.start for r in (held.rows(part.lane, low, high) for part in parts))
    head: dict[str, Any] = {"kinds": list(KINDS), "low": low, "high": high}
    is_beyond = is_beyond_held(opened, held, high)
    if num_spans <= _MOST_FINE and not is_beyond:
        return _fine(opened, held, parts, edges, head)
    columns = edges_of(index, level, 0.0, float(held.total))
    shares = np.zeros((max(len(edges) - 1, 0), COLUMNS, len(KINDS)), np.uint8)
    widths = np.diff(columns)
    for part in parts:
        if is_beyond:
            loops = loops_of(opened, held, program, part.lane)
            sums = looped_covered(opened, held, program, part.lane, columns)
            covered = looped_shares_by_tile(opened.report, held, part, columns, loops, sums)
        else:
            covered = shares_by_tile(opened.report, held, part, columns)
        rows = len(covered)
        flat = stepped_shares(covered.reshape(-1, len(KINDS)), np.tile(widths, rows))
        shares[part.first : part.first + rows] = flat.reshape(rows, COLUMNS, len(KINDS))
    return Answer(head | {"mode": "shares"}, {"edges": edges, "shares": shares})


def _fine(opened: Opened, held: GroupLanes, parts: list[Stretch], edges: Int64, head: dict[str, Any]) -> Answer:
    found = [fine_by_tile(opened.report, held, part, head["low"], head["high"]) for part in parts]
    listed = [
        {"first": part.first, "rows": len(part.edges) - 1, "lane": part.lane, "spans": len(fine.start)}
        for part, fine in zip(parts, found, strict=True)
    ]
    step = np.concatenate([np.zeros(0, np.int32), *(fine.step for fine in found)])
    arrays: dict[str, Array] = {
        "edges": edges,
        "step": step,
        "part": held.part[step],
        "start": np.concatenate([np.zeros(0, np.int64), *(fine.start for fine in found)]),
        "cuts": np.concatenate([np.zeros(0, np.float32), *(f.cuts.astype(np.float32).reshape(-1) for f in found)]),
        "vertices": vertices_for_workers(opened)[step],
    }
    for name in ("compute", "most", "exchange"):
        each = [getattr(fine, name).astype(np.float32).reshape(-1) for fine in found]
        arrays[name] = np.concatenate([np.zeros(0, np.float32), *each])
    return Answer(
        head | {"mode": "spans", "stretches": listed, "names": step_names(opened.report, step)},
        arrays,
    )
