"""One tile in order of time: its steps, its variables, and the accesses between them."""

from __future__ import annotations

import numpy as np

from abele.arrays import Array, Int64
from abele.errors import InvalidOptionError
from abele.report import Report
from abele.report.relations import joined_rows
from abele.viewer.answers.costs import occurrences, step_costs
from abele.viewer.answers.registry import question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

MOST_ROWS = 5_000
"""Steps, and variables, that are told of a tile."""


@question("graph.tile")
def tile(opened: Opened, params: Params) -> Answer:
    """One tile in order of time: its steps, its variables, and the accesses between them.

    Parameters: ``tile``; ``program``.

    Answer: head ``names`` (of steps), ``variables`` (rows as records: name, type, shape), ``steps_left_out``; arrays of
    steps ``step``, ``part`` (number of its colour), ``compute``, ``sent``, ``received``; of variables ``variable``,
    ``bytes``, ``always``, ``first``, ``last`` (places among the steps); of accesses ``at`` (place), ``of`` (place among
    the variables), ``reads``, ``writes``; no accesses where the report does not tell them.
    """
    report = opened.report
    number, program = params.number("tile"), params.number("program")
    if number >= report.memory.num_tiles:
        raise InvalidOptionError(
            f"no tile {number}", remedy=f"the machine has tiles 0 to {report.memory.num_tiles - 1}"
        )
    table, steps = report.phase_tiles, report.steps
    mine = (table["first_tile"] <= number) & (number < table["first_tile"] + table["num_tiles"])
    rows = np.flatnonzero(mine)
    phases = table["phase"][rows]
    phase = steps["phase"]
    at = np.searchsorted(phases, phase)
    active = (at < len(phases)) & (phase >= 0) & (steps["program"] == program)
    active[active] = phases[at[active]] == phase[active]
    chosen = np.flatnonzero(active)
    left_out = max(0, len(chosen) - MOST_ROWS)
    chosen = chosen[:MOST_ROWS]
    rows = rows[at[chosen]]
    held = report.variable_tiles
    holds = np.flatnonzero((held["first_tile"] <= number) & (number < held["first_tile"] + held["num_tiles"]))
    holds = holds[np.argsort(-held["bytes"][holds], kind="stable")][:MOST_ROWS]
    variable = held["variable"][holds].astype(np.int64)
    variables = report.variables
    always = np.asarray(variables["always_live"][variable], dtype=bool)
    first = np.searchsorted(chosen, variables["first_step"][variable])
    last = np.searchsorted(chosen, variables["last_step"][variable], side="right") - 1
    access = _accesses(report, chosen, variable)
    names = steps["name"][chosen].tolist()
    return Answer(
        {
            "names": names,
            "variables": [
                {"name": n, "type": t, "shape": s}
                for n, t, s in zip(*(variables[c][variable].tolist() for c in ("name", "type", "shape")), strict=True)
            ],
            "steps_left_out": left_out,
            "told": len(report.superstep_variables) > 0,
        },
        {
            "step": chosen.astype(np.int32),
            "part": step_costs(opened).part[chosen],
            "compute": table["compute_cycles"][rows],
            "sent": table["sent_bytes"][rows],
            "received": table["received_bytes"][rows],
            "variable": variable.astype(np.int32),
            "bytes": held["bytes"][holds],
            "always": always,
            "first": np.where(always, 0, first).astype(np.int32),
            "last": np.where(always, len(chosen) - 1, last).astype(np.int32),
            **access,
        },
    )


def _accesses(report: Report, chosen: Int64, variable: Int64) -> dict[str, Array]:
    """Accesses of some steps to some variables; a superstep of several rows counts as its last one."""
    places, table = occurrences(report), report.superstep_variables
    at = np.searchsorted(chosen, places.last)
    has = (at < len(chosen)) & (chosen[np.minimum(at, len(chosen) - 1)] == places.last) if len(chosen) else at < 0
    superstep, at = places.superstep[has], at[has]
    rows, owner = joined_rows(table, "superstep", superstep)
    column = np.full(len(report.variables), -1, dtype=np.int64)
    column[variable] = np.arange(len(variable))
    of = column[table["variable"][rows]]
    here = of >= 0
    return {
        "at": at[owner][here].astype(np.int32),
        "of": of[here].astype(np.int32),
        "reads": table["read_bytes"][rows][here] > 0,
        "writes": table["written_bytes"][rows][here] > 0,
    }
