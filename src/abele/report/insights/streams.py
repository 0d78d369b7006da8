"""Host streams and streaming memory: costs of meeting the host, of bytes, and of work that could overlap."""

from __future__ import annotations

import numpy as np

from abele.arrays import Float64
from abele.report.insights.model import Cost, Lever
from abele.report.insights.program_steps import ProgramSteps
from abele.report.text import bytes_text, percent_text
from abele.words import counted

_WORTH = 0.02
"""Part of a cost below which a lever is not listed."""


def host_cost(steps: ProgramSteps) -> Cost | None:
    """Streams of the host on the critical path; None where there are none."""
    cycles = steps.on_path("host")
    total = float(cycles.sum())
    if total <= 0:
        return None
    at = int(np.argmax(cycles))
    row, op = int(steps.rows[at]), int(steps.op[at])
    times, moved = steps.times, steps.column("exchanged_bytes").astype(np.float64)
    latency = _latency(steps)
    share = min(float((times * latency)[cycles > 0].sum()) / total, 1.0)
    reason = (
        f"{counted(int((cycles > 0).sum()), 'stream step')} of the program; "
        f"{bytes_text(float((times * moved)[cycles > 0].sum()))} in a run; most is {steps.title_of(op, row)}"
    )
    if share >= 0.5:
        reason += f"; {percent_text(share)} is waiting for the host to meet, not bytes"
    return Cost(
        kind="host",
        title="host streams",
        reason=reason,
        where=steps.place_of(op),
        op=op,
        step=row,
        cycles=int(total),
        bytes=int((steps.executions * moved)[cycles > 0].sum()),
        share=total / max(steps.run_cycles, 1),
        levers=_host_levers(steps, cycles, latency),
        view="timeline",
        select={"op": op, "step": row},
    )


def _host_levers(steps: ProgramSteps, cycles: Float64, latency: Float64) -> tuple[Lever, ...]:
    """Levers on streams; those without a computed gain say when they apply."""
    larger, tiles = _larger_transfers(steps, cycles, latency), _io_tiles(steps, cycles)
    if not larger:
        larger = [Lever("fewer, larger transfers", assumption="where the host is met for each of several tensors")]
    if not tiles:
        tiles = [Lever("IO tiles that stream while others compute", assumption="where rounds follow each other")]
    return (*larger, *tiles)


def _latency(steps: ProgramSteps) -> Float64:
    """Cycles of one execution of each host stream that bytes do not explain, its barrier included, float64[steps].

    Zeros where the link's rate is not that of the report's own IPUs, as with replicas that share it.
    """
    target = steps.report.target
    rate, clock = float(target.get("host_bytes_per_second", 0)), float(target.get("clock_hz", 0))
    if not rate or not clock or int(target.get("num_replicas", 1)) > 1:
        return np.zeros(len(steps.rows))
    carried = steps.column("exchanged_bytes") * (clock / rate)
    met = np.clip(steps.sides["host"] - carried, 0.0, None)
    return np.asarray(np.where(met > 0, met + steps.sides["sync"], 0.0))


def _larger_transfers(steps: ProgramSteps, cycles: Float64, latency: Float64) -> list[Lever]:
    """Streams in a loop meet the host once each time; several batches at once meet it once for all."""
    moved = steps.column("exchanged_bytes")
    mine = np.flatnonzero((cycles > 0) & (steps.executions > 1) & (latency > 0) & (moved > 0))
    if not len(mine):
        return []
    memory = steps.report.memory
    free = int(max(memory.available_bytes * memory.num_tiles - memory.total_bytes, 0))
    room = free // max(int(moved[mine].sum()), 1) + 1
    rounds = np.minimum(steps.executions[mine], room)
    gain = float((steps.times[mine] * latency[mine] * (1 - 1 / np.maximum(rounds, 1))).sum())
    most = int(rounds.max())
    if gain < _WORTH * cycles.sum() or most < 2:
        return []
    return [
        Lever(
            f"larger transfers: {most:,} rounds of the loop at once (device iterations, larger buffers)",
            gain_cycles=steps.at_most(gain, int(steps.rows[mine[0]])),
            assumption=f"tiles hold {counted(most, 'round')}, the host is met once for all of them instead of once for "
            "each, and taking a round out of the buffer costs nothing",
            at_most=True,
        )
    ]


def _io_tiles(steps: ProgramSteps, cycles: Float64) -> list[Lever]:
    """Lever of IO tiles, where one sync group does everything, so that streams and the rest follow each other."""
    if len(steps.group_rows) > 1:
        return []
    looped = (cycles > 0) & (steps.executions > 1)
    rest = steps.run_cycles - float(cycles.sum())
    in_loop = float((cycles * (1 - 1 / np.maximum(steps.executions, 1)))[looped].sum())
    gain = min(in_loop, rest)
    if gain < _WORTH * cycles.sum():
        return []
    return [
        Lever(
            "IO tiles: stream the next round while this one is computed",
            gain_cycles=steps.at_most(gain, -1),
            assumption="a sync group of its own takes the stream; the shorter of stream and the rest hides behind the "
            "longer one, handing over costs nothing",
            at_most=True,
        )
    ]


def streaming_memory_cost(steps: ProgramSteps) -> Cost | None:
    """Streaming memory on the critical path; None where there is none."""
    cycles = steps.on_path("streaming memory")
    total = float(cycles.sum())
    if total <= 0:
        return None
    at = int(np.argmax(cycles))
    row, op = int(steps.rows[at]), int(steps.op[at])
    moved = (steps.executions * steps.column("exchanged_bytes"))[cycles > 0].sum()
    barriers = float(steps.on_path("sync")[cycles > 0].sum())
    return Cost(
        kind="streaming memory",
        title="streaming memory",
        reason=f"{bytes_text(float(moved))} go to and from it in a run; most in {steps.title_of(op, row)}",
        where=steps.place_of(op),
        op=op,
        step=row,
        cycles=int(total),
        bytes=int(moved),
        share=total / max(steps.run_cycles, 1),
        levers=(
            Lever(
                "keep it on chip",
                gain_cycles=steps.at_most(total + barriers, row),
                assumption="tiles have room for what is kept outside now; with the barriers for it",
                at_most=True,
            ),
            Lever("more micro-batches for each update", assumption="what is fetched once for each update"),
        ),
        view="timeline",
        select={"op": op, "step": row},
    )
