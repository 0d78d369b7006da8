"""A report as plain data for programs.

Keys of the object that :func:`to_json` gives:

``format``, ``version``
    ``"abele-report"`` and the version of the report format.
``target``, ``graph``, ``meta``
    As in :class:`~abele.report.Report`.
``step``
    One step of program 0: ``cycles`` (``total``, ``compute``, ``exchange``, ``sync``, ``host``, ``hidden``),
    ``seconds`` and ``steps_per_run``.
``samples_per_second``
    Modelled throughput, or null.
``limits``
    Samples per second of ``device``, ``link`` and ``loader`` (or null), which ``limit`` is the lowest, what all reach
    together (``samples_per_second``), ``epoch_seconds`` by part, ``loading`` and its ``constants`` with their sources;
    or null.
``energy``
    Dynamic energy of a step: ``terms`` with amounts, energies of one and sources; ``joules``, ``joules_per_sample`` and
    ``watts``, each ``{least, likely, most}``; what the rated power makes of the time, and what is not in it; or null.
``tile_balance``
    Mean compute cycles of a tile / cycles of all compute phases.
``memory``
    ``fits``, ``available_bytes``, ``total_bytes``, ``categories`` (bytes over all tiles) and ``fullest_tile``
    (``tile``, ``bytes``, ``categories``).
``ops``
    List of operations with the columns of ``schema.OPS``, most cycles first.
``steps``, ``variables``, ``liveness``, ``runs``, ``groups``, ``spans``, ``step_groups``, ``host_leaves``,
``host_functions``
    Tables, column name to list. Relations with tiles, whole runs and what programs are made of are in the file alone.
``exponents``
    ``records``: a list of tensors and steps with the columns of ``schema_values.EXPONENT_RECORDS``, and ``octaves``,
    the number of elements by octave.
``sparse``
    ``operands``: a list of sparse operands with the columns of ``SPARSE_OPERANDS``; ``passes``: a list with those of
    ``SPARSE_PASSES``; ``cycles`` and ``worst_cycles`` of a run of program 0.
``compute_cycles_by_tile``, ``bytes_by_tile``
    Lists with one entry per tile.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from abele.report.memory import Memory

if TYPE_CHECKING:
    from abele.report.report import Report


def to_json(report: Report) -> dict[str, Any]:
    """``report`` as mappings, lists, strings and numbers."""
    from abele.report.file import KIND

    step, limits, energy = report.step_cycles, report.limits, report.energy
    return {
        **KIND.head,
        "target": report.target,
        "graph": report.graph,
        "meta": report.meta,
        "step": {
            "cycles": asdict(step),
            "seconds": report.seconds(step.total),
            "steps_per_run": report.steps_per_run,
        },
        "samples_per_second": report.samples_per_second,
        "limits": None if limits is None else limits.to_json(),
        "energy": None if energy is None else energy.to_json(),
        "tile_balance": report.tile_balance,
        "memory": _memory(report.memory),
        "ops": list(report.ops.sort("cycles", descending=True).rows()),
        "steps": report.steps.to_lists(),
        "variables": report.variables.to_lists(),
        "liveness": report.liveness.to_lists(),
        "runs": report.runs.to_lists(),
        "groups": report.groups.to_lists(),
        "spans": report.spans.to_lists(),
        "critical": report.critical.to_lists(),
        "step_groups": report.step_groups.to_lists(),
        "host_leaves": report.host_leaves.to_lists(),
        "host_functions": report.host_functions.to_lists(),
        "exponents": report.exponents.to_json(),
        "sparse": report.sparse.to_json(),
        "compute_cycles_by_tile": report.compute_cycles_by_tile.tolist(),
        "bytes_by_tile": report.memory.by_tile.tolist(),
    }


def _memory(memory: Memory) -> dict[str, Any]:
    tile = memory.fullest_tile
    return {
        "fits": memory.fits,
        "available_bytes": memory.available_bytes,
        "total_bytes": memory.total_bytes,
        "categories": memory.totals(),
        "fullest_tile": {"tile": tile, "bytes": int(memory.by_tile[tile]), "categories": memory.of_tile(tile)},
    }
