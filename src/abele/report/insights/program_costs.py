"""Costs of a program as a whole: barriers, host streams, streaming memory, sync groups that wait, and the loader."""

from __future__ import annotations

import numpy as np

from abele.report.insights.model import Cost, Lever
from abele.report.insights.program_steps import Float64, ProgramSteps
from abele.report.loading import epoch
from abele.report.text import bytes_text, count_text, percent_text, seconds_text
from abele.words import counted, visible

_LARGE_GROUP = 0.5
"""Tiles of a sync group, as part of those of the largest, from which on its waiting is worth telling."""
_WAITS = 0.02
_DOUBLED = 2


def sync_cost(steps: ProgramSteps) -> Cost | None:
    """Barriers and launches of a run; None where there are none on the critical path."""
    cycles = steps.on_path("sync")
    total = float(cycles.sum())
    if total <= 0:
        return None
    at = int(np.argmax(cycles))
    row, op = int(steps.rows[at]), int(steps.op[at])
    superstep = steps.column("superstep")
    same = superstep == superstep[at] if superstep[at] >= 0 else np.arange(len(superstep)) == at
    one = float(cycles[same].sum())
    rounds = float(steps.times[steps.sides["sync"] > 0].sum())
    lever = Lever(
        f"one superstep less in {steps.title_of(op, row)}: merge compute sets that do not need each other",
        gain_cycles=steps.at_most(one, row),
        assumption="what it computes is computed in the superstep before or after it, at no other cost",
        at_most=len(steps.group_rows) > 1,
    )
    return Cost(
        kind="sync",
        title="barriers and launches",
        reason=f"{count_text(rounds)} of them in a run, {count_text(total / max(rounds, 1))} cycles each; most in "
        f"{steps.title_of(op, row)}",
        where=steps.place_of(op),
        op=op,
        step=row,
        cycles=int(total),
        share=total / max(steps.run_cycles, 1),
        levers=(lever, Lever("larger steps: more samples at once", assumption="where memory has room for them")),
        view="timeline",
        select={"op": op, "step": row},
    )


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
    """What would help with streams; those of which nothing can be computed say when they apply."""
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
    if gain < _WAITS * cycles.sum() or most < 2:
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
    """Where one sync group does everything, streams and the rest follow each other."""
    if len(steps.group_rows) > 1:
        return []
    looped = (cycles > 0) & (steps.executions > 1)
    rest = steps.run_cycles - float(cycles.sum())
    in_loop = float((cycles * (1 - 1 / np.maximum(steps.executions, 1)))[looped].sum())
    gain = min(in_loop, rest)
    if gain < _WAITS * cycles.sum():
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


def pipeline_cost(steps: ProgramSteps) -> Cost | None:
    """Sync groups that wait for others; None where there is one, or none waits."""
    groups = steps.report.groups.select(steps.group_rows)
    tiles = groups["tiles"].astype(np.int64)
    large = tiles >= _LARGE_GROUP * tiles.max(initial=0)
    run, names = steps.run_cycles, groups["name"][large]
    busy = np.minimum(groups["busy_cycles"][large].astype(np.int64), run)
    if len(busy) < 2 or not run:
        return None
    waiting = float(np.clip(run - busy, 0, None).mean())
    if waiting < _WAITS * run:
        return None
    at = int(np.argmax(busy))
    idle = int((busy == 0).sum())
    uneven = float(busy[at]) - float(busy.mean())
    levers = []
    if uneven >= _WAITS * run and idle < len(busy) - 1:
        levers.append(
            Lever(
                "equal stages: move work from the busiest to the others",
                gain_cycles=int(uneven),
                assumption="work divides evenly over them (busiest less mean), the rounds of the pipeline stay as many",
                at_most=True,
            )
        )
    spare = run - int(busy[at])
    blocks = steps.report.steps["block"][steps.rows]
    if spare >= _WAITS * run and float(steps.executions.max(initial=0)) > 1 and any(blocks):
        levers.append(
            Lever(
                "twice as many micro-batches for each update",
                gain_cycles=spare // _DOUBLED,
                assumption="for as many samples as now: the busiest group waits only while the pipeline fills and "
                "drains, which is once for twice as many",
                at_most=True,
            )
        )
    row, op = _worst_of(steps, int(steps.group_rows[large][at]))
    what = f"{visible(str(names[at]))} is busy {percent_text(busy[at] / run)} of the run, the mean of {len(busy):,} "
    stage = str(steps.report.steps["block"][row]) if row >= 0 else ""
    reason = what + f"{percent_text(float(busy.mean()) / run)}: the others wait"
    if stage:
        reason += f" for {visible(stage)}"
    if idle:
        reason += f"; {counted(idle, 'sync group')} do nothing" if idle > 1 else "; one does nothing"
    return Cost(
        kind="pipeline",
        title="sync groups that wait",
        reason=reason,
        where=steps.place_of(op),
        op=op,
        step=row,
        cycles=int(waiting),
        share=waiting / run,
        levers=tuple(sorted(levers, key=lambda lever: -(lever.gain_cycles or 0))),
        view="timeline",
        select={"group": int(steps.group_rows[large][at])},
    )


def _worst_of(steps: ProgramSteps, group: int) -> tuple[int, int]:
    """The most expensive step of a sync group alone, and its operation."""
    relation = steps.report.step_groups
    first = relation["first_group"]
    inside = relation["step"][(first <= group) & (group < first + relation["num_groups"])]
    alone = np.isin(steps.rows, inside)
    cycles = steps.executions * steps.column("cycles") * alone
    if not cycles.any():
        return -1, -1
    at = int(np.argmax(cycles))
    return int(steps.rows[at]), int(steps.op[at])


def loader_cycles(steps: ProgramSteps) -> float | None:
    """Cycles of a run in which the device waits for the host to make batches and call; None where nobody said."""
    loading = steps.report.loading if steps.program == 0 else None
    if loading is None:
        return None
    passed = epoch(loading, steps.report.seconds(steps.run_cycles))
    waits = max(passed.total - passed.device, 0.0) / max(loading.batches_per_epoch, 1)
    return waits * float(steps.report.target["clock_hz"])


def loader_cost(steps: ProgramSteps) -> Cost | None:
    """What making batches costs beyond the device's time; None where it is not known or nothing."""
    loading, waits = steps.report.loading, loader_cycles(steps)
    if loading is None or not waits:
        return None
    report, clock = steps.report, float(steps.report.target["clock_hz"])
    device = report.seconds(steps.run_cycles)
    now, batches = epoch(loading, device).total, max(loading.batches_per_epoch, 1)
    more = max(2 * loading.num_workers, 1)
    levers = []
    for title, change in (
        (f"{counted(more, 'worker')} instead of {loading.num_workers:,}", {"num_workers": more}),
        ("an AsynchronousDataAccessor with 3 batches ready", {"ring_batches": 3}),
    ):
        if all(getattr(loading, name) == value for name, value in change.items()):
            continue
        if "ring_batches" in change and loading.ring_batches:
            continue
        saved = (now - epoch(loading.evolve(**change), device).total) / batches * clock
        if saved >= _WAITS * waits:
            levers.append(
                Lever(
                    title, gain_cycles=int(saved), assumption="the epoch followed batch by batch, as report.limits does"
                )
            )
    makers = counted(loading.num_workers, "worker") if loading.num_workers else "the calling process makes batches"
    return Cost(
        kind="loader",
        title="making and handing over batches",
        reason=f"the device waits {percent_text(waits / (waits + steps.run_cycles))} of the time for the host: "
        f"{makers}, {seconds_text(loading.sample_seconds)} for each sample",
        cycles=int(waits),
        share=waits / (waits + steps.run_cycles),
        levers=tuple(sorted(levers, key=lambda lever: -(lever.gain_cycles or 0))),
        view="summary",
    )
