"""Sparse operands: their figures, what tiles have of one, and what patterns cost against the worst."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.report.schema_sparse import SPARSE_OPERANDS, SPARSE_PASSES
from abele.report.table import Table
from abele.viewer.answers.registry import Frozen, once, question
from abele.viewer.answers.table import LONGEST_TEXT
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer
from abele.words import shortened

COLUMNS = 1024
"""Parts of equal length that the tiles of an operand are told in, at most."""
MOST = 1_000
"""Operands and products that are told."""
_FROZEN = 16
"""Operands whose tiles a static page takes along."""


@question("sparse", frozen=once, rank=1)
def sparse(opened: Opened, params: Params) -> Answer:
    """``operands`` and ``passes``: rows of these tables of the report, with ``docs`` of their columns.

    ``cycles`` are those of a run of program 0, ``worst_cycles`` those with the worst patterns.
    """
    report = opened.report
    found = report.sparse
    docs = {s.name: {name: spec.doc for name, spec in s.columns.items()} for s in (SPARSE_OPERANDS, SPARSE_PASSES)}
    cycles = {"cycles": report.total_cycles, "worst_cycles": found.worst_cycles}
    head = {"num_operands": len(found), "docs": docs, **cycles}
    return Answer({**head, "operands": _rows(found.operands), "passes": _rows(found.passes)})


def _rows(table: Table) -> list[dict[str, Any]]:
    rows = table.select(np.arange(min(len(table), MOST))).rows()
    return [{k: shortened(v, LONGEST_TEXT) if isinstance(v, str) else v for k, v in row.items()} for row in rows]


def _each(opened: Opened) -> Frozen:
    for row in range(min(len(opened.report.sparse_operands), _FROZEN)):
        yield {"operand": str(row)}


@question("sparse.tiles", frozen=_each, rank=2)
def sparse_tiles(opened: Opened, params: Params) -> Answer:
    """Values of operand ``operand`` on the tiles, in at most 1,024 parts of equal length.

    ``first``: first tile of each part, ``most``: values of its fullest tile, ``at``: that tile, ``mean``: of all its
    tiles. In the head ``tiles`` of the machine, ``fullest`` and the ``values`` there.
    """
    values = opened.report.sparse.values_by_tile(params.number("operand"))
    parts = min(COLUMNS, len(values))
    first = np.arange(parts) * len(values) // max(parts, 1)
    sizes = np.diff(np.append(first, len(values)))
    most = np.maximum.reduceat(values, first)
    of = np.repeat(np.arange(parts), sizes)
    hits = np.flatnonzero(values == most[of])
    at = hits[np.unique(of[hits], return_index=True)[1]]
    fullest = int(np.argmax(values))
    head = {"tiles": len(values), "fullest": fullest, "values": int(values[fullest])}
    return Answer(head, {"first": first, "most": most, "at": at, "mean": np.add.reduceat(values, first) / sizes})
