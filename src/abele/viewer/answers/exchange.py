"""Exchanges: which cost most, who sends and receives how much in one, and what moves."""

from __future__ import annotations

import numpy as np

from abele.arrays import Array, Int64
from abele.report import Report
from abele.report.relations import rows_of, sums_of
from abele.report.table import Table
from abele.report.text_column import Text
from abele.report.tiles import spread
from abele.viewer.answers.floor import ipu_tiles
from abele.viewer.answers.pages import page_of
from abele.viewer.answers.program import checked_row, record, variables_of
from abele.viewer.answers.registry import Frozen, question
from abele.viewer.answers.table import MOST_ROWS, ordered
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

_DOCS = {
    "name": "name with scopes",
    "kind": "exchange between tiles, or a stream of the host",
    "partner": "what tiles exchange data with, beside each other",
    "total_cycles": "cycles of exchange and streams in a run",
    "share": "its part of the exchange and streams of its program's run",
    "cycles": "cycles of exchange and streams in one execution",
    "executions": "times in a run",
    "bytes": "bytes moved in one execution",
    "max_receive_bytes": "bytes that the tile receiving most receives",
    "senders": "tiles that send",
    "receivers": "tiles that receive",
    "balance": "mean bytes of the tiles that receive / those of the one that receives most",
    "bytes_per_cycle": "bytes moved in a cycle, over all tiles",
}
MOST_TILES = 24
"""Tiles that are listed as the busiest."""
MOST_LINKS = 200
_ENDS = {"from": "source_ipu", "to": "target_ipu", "bytes": "bytes"}


def exchanges(opened: Opened) -> Table:
    """The steps that move data, a row each."""
    return opened.once("exchanges", lambda: exchanges_of(opened.report))


def exchanges_of(report: Report) -> Table:
    """The steps of a report that move data between tiles, or to and from something else; columns as documented."""
    steps = report.steps
    cycles = steps["exchange_cycles"] + steps["host_cycles"]
    rows = np.flatnonzero((cycles > 0) | (steps["exchanged_bytes"] > 0))
    table, phase = report.phase_tiles, steps["phase"][rows]
    count = table["num_tiles"].astype(np.int64)

    def tiles(name: str) -> Int64:
        return sums_of(table, "phase", count * (table[name] > 0), phase).astype(np.int64)

    received = sums_of(table, "phase", count * table["received_bytes"], phase)
    receivers, most = tiles("received_bytes"), steps["max_receive_bytes"][rows]
    total = (cycles * steps["executions"])[rows]
    _, program = np.unique(steps["program"][rows], return_inverse=True)
    whole = np.bincount(program, weights=total, minlength=1)[program]
    moved = steps["exchanged_bytes"][rows]
    texts = {name: steps.columns[name] for name in ("name", "kind", "partner")}
    with np.errstate(divide="ignore", invalid="ignore"):
        return Table(
            {
                **{name: column[rows] for name, column in texts.items() if isinstance(column, Text)},
                "total_cycles": total,
                "share": np.where(whole > 0, total / np.maximum(whole, 1), 0.0),
                "cycles": cycles[rows],
                "executions": steps["executions"][rows],
                "bytes": moved,
                "max_receive_bytes": most,
                "senders": tiles("sent_bytes"),
                "receivers": receivers,
                "balance": np.where(receivers * most > 0, received / np.maximum(receivers * most, 1), 0.0),
                "bytes_per_cycle": np.where(cycles[rows] > 0, moved / np.maximum(cycles[rows], 1), 0.0),
                "step": rows.astype(np.int64),
            }
        )


def _frozen(opened: Opened) -> Frozen:
    del opened
    yield {"sort": "-total_cycles", "count": str(MOST_ROWS)}


@question("exchanges", frozen=_frozen, rank=5)
def rows(opened: Opened, params: Params) -> Answer:
    """Steps that move data, as rows of a table; parameters and answer as of ``table``, ``row`` is the step."""
    whole = exchanges(opened)
    page = page_of(whole, _DOCS, params)
    sums = {
        "bytes": float((whole["bytes"].astype(np.float64) * whole["executions"])[page.found].sum()),
        "cycles": float(whole["total_cycles"][page.found].sum()),
    }
    return Answer(page.head | sums, {"row": whole["step"][page.rows], **page.arrays})


def _before(report: Report, step: int) -> int:
    """Row of the exchange that a step without traffic follows in its superstep, −1 for none."""
    steps = report.steps
    superstep, row = int(steps["superstep"][step]), step
    while (
        superstep >= 0 and row >= 0 and steps["superstep"][row] == superstep and steps["op"][row] == steps["op"][step]
    ):
        if steps["exchange_cycles"][row] > 0 or steps["exchanged_bytes"][row] > 0:
            return row if row != step else -1
        row -= 1
    return -1


def _costliest(opened: Opened) -> Frozen:
    whole = exchanges(opened)
    for step in whole["step"][ordered(whole, "-total_cycles")[:60]].tolist():
        yield {"step": str(step)}


@question("exchange", frozen=_costliest, rank=7)
def exchange(opened: Opened, params: Params) -> Answer:
    """Bytes that each tile sends and receives in one execution of a step.

    Parameters: ``step``.

    Answer: head ``facts`` (the step), ``op`` (its operation), ``before`` (where the step moves nothing, the row of the
    exchange that it follows, else −1), ``variables`` that its superstep touches (None where
    the report does not tell), ``tiles_per_ipu``; arrays ``first``, ``count``, ``sent``, ``received``: runs of tiles;
    ``ipu_sent``, ``ipu_received`` of each IPU; ``senders``, ``senders_bytes``, ``receivers``, ``receivers_bytes``: the
    busiest tiles, most first; ``block_from``, ``block_to`` (first tiles of blocks of ``block_tiles``), ``block_bytes``:
    who sends to whom; ``pair_from``, ``pair_to``, ``pair_bytes``: what crosses between IPUs; ``link_from``,
    ``link_to``, ``link_bytes`` with ``link_kinds`` in the head: what links carry, most first. None of these where the
    report does not tell, which ``told`` says of blocks.
    """
    report = opened.report
    step = checked_row(report, params.number("step", -1, low=-1))
    phase, table = int(report.steps["phase"][step]), report.phase_tiles
    runs = rows_of(table, "phase", phase)
    first, count = table["first_tile"][runs], table["num_tiles"][runs]
    per_ipu, tiles = ipu_tiles(report), report.memory.num_tiles
    arrays: dict[str, Array] = {"first": first, "count": count}
    for name, column, who in (("sent", "sent_bytes", "senders"), ("received", "received_bytes", "receivers")):
        values = table[column][runs]
        by_tile = spread(first, count, values, tiles)
        busiest = np.argsort(-by_tile, kind="stable")[:MOST_TILES]
        busiest = busiest[by_tile[busiest] > 0]
        arrays[name] = values
        arrays[f"ipu_{name}"] = np.add.reduceat(by_tile, np.arange(0, tiles, per_ipu)) if tiles else by_tile
        arrays[who], arrays[f"{who}_bytes"] = busiest.astype(np.int32), by_tile[busiest]
    superstep = int(report.steps["superstep"][step])
    blocks = report.exchange_of(step)
    pairs, links = (rows_of(t, "phase", phase) for t in (report.phase_ipus, report.phase_links))
    busy = np.argsort(-report.phase_links["bytes"][links], kind="stable")[:MOST_LINKS]
    arrays |= {
        "block_from": blocks["source_tile"],
        "block_to": blocks["target_tile"],
        "block_bytes": blocks["bytes"],
        **{f"pair_{name}": report.phase_ipus[column][pairs] for name, column in _ENDS.items()},
        **{f"link_{name}": report.phase_links[column][links][busy] for name, column in _ENDS.items()},
    }
    head = {
        "told": len(blocks) > 0,
        "block_tiles": int(blocks["block_tiles"].max(initial=1)),
        "link_kinds": report.phase_links["kind"][links][busy].tolist(),
        "step": step,
        "before": _before(report, step),
        "facts": record(report.steps, step),
        "op": record(report.ops, int(report.steps["op"][step])),
        "superstep": record(report.supersteps, superstep),
        "variables": variables_of(report, np.array([superstep])),
        "tiles_per_ipu": per_ipu,
        "clock_hz": report.target.get("clock_hz"),
    }
    return Answer(head, arrays)
