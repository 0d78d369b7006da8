"""Estimates: what an update of a plan takes, tick by tick."""

from __future__ import annotations

from dataclasses import replace

from abele.distribution.pipelined import Ticks
from abele.fitting.phases import phased_estimate
from abele.fitting.plan import Estimate, Spreading
from abele.fitting.stages import StageCosts, Stages
from abele.fitting.traffic import (
    StageWork,
    Transfer,
    all_reduce_cycles,
    met,
    streaming_cycles,
    tick_cycles,
    transfer_cycles,
)


def estimated(plan: Spreading, stages: Stages) -> Estimate:
    """Estimated cost of a plan.

    Args:
        plan: The plan.
        stages: Costs of its stages.
    """
    if plan.phases:
        return phased_estimate(plan, stages)
    costs, system, n = stages.costs, stages.system, plan.stages
    bounds = plan.bounds(costs.count)
    on = [stages.on(plan, stage) for stage in range(n)]
    # A stage's time has its forward and its backward pass, as both are on one IPU.
    passes = works(plan, stages)
    meeting = stages.usual.cycles.meeting
    own = [work.busy_cycles(meeting, apart=True) for work in passes]
    by_stage = own[:n]
    for stage in range(len(own) - n):
        by_stage[stage] += own[len(own) - 1 - stage]
    # Ticks of all micro-batches with filling and emptying; between them stages hand over.
    handed = [transfer_cycles(sent, plan.ipus, system) for sent in transfers(plan, stages)] if n > 1 else [0]
    exchange = sum(handed)
    beside = stages.io_tiles > 0
    ticks, full = _ticks(plan, passes, handed, meeting, apart=stages.hosts_apart, beside=beside)
    # Once per update: sums over replicas IPU by IPU, updates on all IPUs at once, and state to and from DRAM.
    gradients = _by_ipu(plan, [sum(s.gradient_bytes for s in costs.segments[b:e]) for b, e in bounds])
    all_reduce = all_reduce_cycles(gradients, plan.replicas, system, group=plan.group)
    updates = _by_ipu(plan, [of.update_cycles(b, e) for of, (b, e) in zip(on, bounds, strict=True)])
    share = stages.usual.memory.state_share
    moved = [size * share for s in costs.segments for size in s.state_units] if plan.state.is_off_chip else []
    streaming = streaming_cycles(moved, plan.ipus, plan.replicas, system)
    total = ticks + all_reduce + max(updates) + streaming
    return Estimate(
        cycles=total,
        stage_cycles=tuple(by_stage),
        tick_cycles=full,
        host_cycles=full - _without_host(passes, len(handed)),
        exchange_cycles=exchange,
        all_reduce_cycles=all_reduce,
        update_cycles=max(updates),
        streaming_cycles=streaming,
        ramp_cycles=ticks - (full + exchange) * plan.accumulation,
        ipu_bytes=tuple(ipu_bytes(plan, stages)),
        available_bytes=stages.available_bytes,
        samples_per_second=plan.batch / system.seconds(total),
    )


def transfers(plan: Spreading, stages: Stages) -> list[list[Transfer]]:
    """Transfers of a replica in a tick, or in each of two ticks where stages take turns: activations one way, gradients
    the other, and gradients of shared weights.
    """
    costs, stride = stages.costs, 1 + plan.turns
    found: list[list[Transfer]] = [[] for _ in range(stride)]
    last = 2 * plan.stages - 2 + plan.turns
    for stage, cut in enumerate(plan.cuts, 1):
        here, before = plan.ipu_of(stage), plan.ipu_of(stage - 1)
        found[stage % stride].append((before, here, costs.chain.segments[cut].entering_bytes))
        if costs.training:
            found[(last - stage + 1) % stride].append((here, before, costs.chain.sent_back(cut)))
    if costs.training:
        stage_of = [stage for stage, (b, e) in enumerate(plan.bounds(costs.count)) for _ in range(b, e)]
        for segment, parameters in enumerate(costs.borrowed):
            here = plan.ipu_of(stage_of[segment])
            for p in parameters:
                owner = stage_of[p.owner]
                found[(last - owner) % stride].append((here, plan.ipu_of(owner), p.weight_bytes))
    return found


def works(plan: Spreading, stages: Stages) -> list[StageWork]:
    """Work of each stage of both passes in a tick, by its number."""
    n, bounds = plan.stages, plan.bounds(stages.costs.count)
    on = [stages.on(plan, stage).cycles for stage in range(n)]
    if n == 1:
        return [on[0].last_work(*bounds[0], 0)]
    if not stages.costs.training:
        return [on[s].forward_work(*bounds[s], plan.ipu_of(s), 0) for s in range(n)]
    at = [(*bounds[s], plan.ipu_of(s)) for s in range(n)]
    there = [on[s].forward_work(*at[s], plan.waiting_rows(s)) for s in range(n - 1)]
    back = [on[s].backward_work(*at[s], plan.waiting_rows(s)) for s in reversed(range(n - 1))]
    if plan.turns:
        return [*there, on[-1].forward_work(*at[-1], 0), on[-1].last_back_work(*at[-1]), *back]
    return [*there, on[-1].last_work(*at[-1]), *back]


def _ticks(
    plan: Spreading, passes: list[StageWork], handed: list[int], meeting: int, *, apart: bool, beside: bool
) -> tuple[int, int]:
    """Cycles of all ticks of an update, and of those in which each stage runs once, without their exchanges.

    Args:
        plan: The plan.
        passes: Work of each stage.
        handed: Cycles of the exchange of a tick, or of each of two that take turns.
        meeting: Cycles of meeting the host.
        apart: True if IPUs meet the host without one another.
        beside: True if IO tiles meet the host while the others compute; the first load and the last store are waited
            for.
    """
    stride = len(handed)
    full = sum(tick_cycles(passes[turn::stride], meeting, apart=apart, beside=beside) for turn in range(stride))
    ends = [met(sum(cycles), meeting) for cycles in zip(*((w.entering[0], w.leaving[0]) for w in passes), strict=True)]
    total = sum(ends) if beside else 0
    if plan.stages == 1:
        return full * plan.accumulation + total, full
    pipeline = Ticks(len(passes), plan.accumulation, stride)
    for ticks, count in pipeline.runs():
        for tick in ticks:
            running = (passes[stage] for stage in pipeline.busy(tick))
            total += count * (tick_cycles(running, meeting, apart=apart, beside=beside) + handed[tick % stride])
    return total, full


def _without_host(passes: list[StageWork], stride: int) -> int:
    """Cycles in which each stage runs once, if IPUs never waited for the host."""
    alone = [replace(work, entering=(0, 0), leaving=(0, 0)) for work in passes]
    return sum(tick_cycles(alone[turn::stride], 0) for turn in range(stride))


def _by_ipu(plan: Spreading, by_stage: list[int]) -> list[int]:
    found = [0] * plan.ipus
    for stage, amount in enumerate(by_stage):
        found[plan.ipu_of(stage)] += amount
    return found


def ipu_bytes(plan: Spreading, stages: Stages) -> list[int]:
    """Bytes on the fullest tile of each IPU."""
    n, bounds = plan.stages, plan.bounds(stages.costs.count)
    rows = [plan.waiting_rows(stage) if stages.costs.training else 0 for stage in range(plan.ipus)]

    def held(on: StageCosts, stage: int) -> int:
        begin, end = bounds[stage]
        if plan.returns and stage == 0:
            return int(on.memory.together_needed(rows[0])[end, bounds[-1][0]])
        return on.memory.needed(begin, end, rows[stage], last=stage == n - 1)

    return [held(stages.on(plan, stage), stage) for stage in range(plan.ipus)]
