"""Account of sparse operands: notes of the graph as tables of a report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from abele.graph.sparse_operand import SparseNote
from abele.report.schema_sparse import SPARSE_OPERANDS, SPARSE_TILES
from abele.report.tiles import runs_of


def sparse_tables(operands: Iterable[SparseNote]) -> dict[str, Any]:
    """Tables ``sparse_operands`` and ``sparse_tiles``."""
    noted = list(operands)
    rows = [_row(operand) for operand in noted]
    runs = [_runs(operand) for operand in noted]
    owner = np.repeat(np.arange(len(runs)), [len(first) for first, _, _ in runs])
    first, count, values = (np.concatenate([np.zeros(0, np.int64), *part]) for part in _columns(runs))
    return {
        "sparse_operands": SPARSE_OPERANDS.table(
            **{name: [row[name] for row in rows] for name in SPARSE_OPERANDS.columns}
        ),
        "sparse_tiles": SPARSE_TILES.table(operand=owner, first_tile=first, num_tiles=count, values=values),
    }


def _columns(runs: list[Any]) -> Any:
    return zip(*runs, strict=True) if runs else ((), (), ())


def _runs(operand: SparseNote) -> Any:
    order = np.argsort(operand.tile, kind="stable")
    first, count, values = runs_of(operand.tile[order], values=operand.values[order])
    return first, count, values["values"]


def _row(operand: SparseNote) -> dict[str, Any]:
    (rows, columns), (high, wide) = operand.shape, operand.block
    tiles, most = len(operand.tile), int(operand.values.max(initial=0))
    mean = float(operand.values.mean()) if tiles else 0.0
    known = "counted" if operand.counted else "assumed" if operand.buckets is not None else "static"
    return {
        "name": operand.name.removesuffix("/nzValues"),  # a dynamic operand is meant, not one of its tensors
        "library": operand.library,
        "type": operand.dtype,
        "groups": operand.groups,
        "rows": rows,
        "columns": columns,
        "block_rows": high,
        "block_columns": wide,
        "blocks": operand.blocks,
        "density": operand.blocks * high * wide / max(operand.groups * rows * columns, 1),
        "basis": known,
        "capacity": operand.capacity,
        "tiles": tiles,
        "mean_values": mean,
        "most_values": most,
        "imbalance": most / mean if mean else 1.0,
        "passes": operand.passes,
        "worst_passes": operand.worst_passes,
    }
