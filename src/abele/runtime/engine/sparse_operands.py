"""Sparse operands in an engine's report: counts in the words that its memory holds, and passes of its runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from abele.compiler import Executable
from abele.compiler.account_sparse import sparse_tables
from abele.graph import SparseNote
from abele.report import Report
from abele.report.sparse import passes_table
from abele.runtime.image import Image


def with_counted(report: Report, executable: Executable, image: Image) -> Report:
    """The report of a run with what buckets hold now; patterns of several replicas are those of the first."""
    operands = executable.graph.sparse_operands
    if not any(o.buckets is not None for o in operands.values()):
        return report
    tables: dict[str, Any] = sparse_tables(_counted(operand, image) for operand in operands.values())
    ran = any(str(of).startswith("run") for of in report.meta.get("figures_of", ()))
    if ran:
        tables["sparse_passes"] = passes_table(report, executable.report)
    return replace(report, **tables)


def _counted(operand: SparseNote, image: Image) -> SparseNote:
    words = operand.words
    if words is None or any(v in image.fused or v in image.reordered for v in words.variables):
        return operand
    return operand.with_words(image.arena.read(words))
