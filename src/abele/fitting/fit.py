"""Fitting: the smallest machine that holds a model, and the fastest way to spread it over a machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from abele.compiler import Executable, compile_program
from abele.distribution import inference_program, training_program
from abele.distribution.tensor_parallel import computed_together
from abele.errors import AbeleError, FittingError
from abele.fitting.chain import SegmentChain
from abele.fitting.plan import (
    Compilation,
    Estimate,
    Miss,
    ModelSize,
    Ranked,
    Recomputation,
    Spreading,
    spread_words,
)
from abele.fitting.search import FitSearch, Progress, stages_of
from abele.fitting.space import FitSpace, Model
from abele.fitting.traffic import STASH
from abele.graph import Graph
from abele.machine import System, systems
from abele.network import (
    Locations,
    Network,
    NetworkOp,
    OutputMode,
    PipelineSchedule,
    Place,
    Schedule,
    TensorLocation,
    Value,
    training_pipeline,
)
from abele.network.ir import FrozenDict, PlanHint
from abele.network.passes.place import substituted
from abele.network.registry import RULES
from abele.numerics import f32
from abele.poplibs.gcl import CommGroup
from abele.words import counted

# Whole plans compiled for real: the network with a place for every op, through the ordinary path.


def compiled_plan(plan: Spreading, model: Model, chain: SegmentChain, space: FitSpace) -> Compilation:
    """Compile a plan as a whole; nothing runs.

    Args:
        plan: The plan.
        model: The model with its micro-batch.
        chain: The model as a chain.
        space: The machine, and how networks are compiled.
    """
    start = time.perf_counter()
    try:
        run = _compile(plan, model, chain, space)
    except AbeleError as error:
        told = f"{type(error).__name__}: {error.message}"
        return Compilation(cycles=None, problem=told, seconds=time.perf_counter() - start)
    report = run.report
    tiles = space.system.ipu.num_tiles
    by_tile = report.memory.by_tile
    by_ipu = tuple(int(by_tile[i * tiles : (i + 1) * tiles].max()) for i in range(plan.ipus))
    return Compilation(
        cycles=report.total_cycles,
        ipu_bytes=by_ipu,
        fits=max(by_ipu) <= report.memory.available_bytes,
        seconds=time.perf_counter() - start,
    )


def _compile(plan: Spreading, model: Model, chain: SegmentChain, space: FitSpace) -> Executable:
    net = placed(plan, model.net, chain)
    settings = replace(
        space.settings,
        memory_proportion=(plan.proportion_of(0) if plan.ipus == 1 else None) or space.settings.memory_proportion,
        shared_functions=plan.shared_functions,
    )
    graph = Graph(space.system.with_ipus(plan.num_ipus), replicas=plan.replicas)
    graph.sync_pattern = settings.sync_pattern
    planning, modes = settings.planning, settings.modes
    if model.groups is None:
        usual = Schedule(device_iterations=plan.accumulation, replicas=plan.replicas, io_tiles=plan.io_tiles)
        schedule = _by_groups(usual, plan, model)
        program = inference_program(net, graph, schedule, planning=planning, modes=modes)
    else:
        state = TensorLocation(on_chip=not plan.state.is_off_chip, sharded=plan.state.is_sharded)
        away, held = TensorLocation(on_chip=not plan.waits_off_chip), TensorLocation(on_chip=not plan.phases)
        usual = Schedule(
            accumulation=plan.accumulation,
            replicas=plan.replicas,
            outputs=OutputMode.FINAL,
            pipeline=PipelineSchedule.INTERLEAVED if plan.turns else PipelineSchedule.GROUPED,
            io_tiles=plan.io_tiles,
            stash=STASH if plan.narrow_stash else None,
            locations=Locations(optimiser=state, activations=away, weights=held, accumulators=held),
        )
        schedule = _by_groups(usual, plan, model)
        passes = training_pipeline(
            schedule,
            model.groups,
            recompute=settings.recompute,
            recompute_stages=plan.recompute != Recomputation.NOTHING,
            rebuilt_above=settings.rebuilt_above(space.system),
        )
        program = training_program(net, graph, schedule, model.groups, planning=planning, modes=modes, pipeline=passes)
    return compile_program(graph, program.program, allow_out_of_memory=True)


def _by_groups(schedule: Schedule, plan: Spreading, model: Model) -> Schedule:
    """The schedule, with replicas that compute models together where the plan has groups."""
    if plan.group == 1:
        return schedule
    return computed_together(schedule, CommGroup.consecutive(plan.group), dict(model.splits))


def placed(plan: Spreading, net: Network, chain: SegmentChain) -> Network:
    """The network with the IPU and the stage of every op, and the plan's checkpoints."""
    if plan.stages == 1:
        return net
    moved: dict[Value, Value] = {}
    for stage, (begin, end) in enumerate(plan.bounds(len(chain.segments))):
        place = Place(phase=stage) if plan.phases else Place(plan.ipu_of(stage), stage)
        for op in net.ops[chain.segments[begin].begin : chain.segments[end - 1].end]:
            moved |= {v: replace(v, place=place) for v in op.outputs}
    there = substituted(net, moved)
    if plan.phases:
        return there
    there = _with_shares(plan, there)
    if plan.recompute != Recomputation.SEGMENTS:
        return there
    return _with_checkpoints(plan, there, chain, moved)


def _with_shares(plan: Spreading, net: Network) -> Network:
    """Set in ``net`` the proportion of memory that products plan with, on each IPU its own."""
    if not plan.plans_smaller:
        return net

    def hinted(op: NetworkOp) -> NetworkOp:
        share = plan.proportion_of(op.outputs[0].place.ipu) if op.outputs else None
        if share is None or not RULES[op.kind].planned:
            return op
        hint = replace(op.hint or PlanHint(), proportion=share)
        return replace(op, attrs=FrozenDict({**op.attrs, "hint": hint}))

    return replace(net, ops=tuple(map(hinted, net.ops)))


def _with_checkpoints(plan: Spreading, net: Network, chain: SegmentChain, moved: dict[Value, Value]) -> Network:
    """``net`` with a ``keep`` at each checkpoint inside of a stage."""
    kept: dict[Value, Value] = {}
    before: dict[int, list[NetworkOp]] = {}
    for number in plan.checkpoints:
        segment = chain.segments[number]
        place = net.ops[segment.begin].place
        assert place is not None
        for value in segment.entering:
            if value not in chain.flowing or value not in moved:
                continue
            source = moved[value]
            made = replace(source, place=place)
            kept[source] = made
            before.setdefault(segment.begin, []).append(
                NetworkOp("keep", (source,), (made,), FrozenDict({}), net.ops[segment.begin].debug)
            )
    ops: list[NetworkOp] = []
    now: dict[Value, Value] = {}
    for number, op in enumerate(net.ops):
        for keep in before.get(number, ()):
            ops.append(replace(keep, inputs=tuple(now.get(v, v) for v in keep.inputs)))
            now[keep.inputs[0]] = keep.outputs[0]
        ops.append(replace(op, inputs=tuple(now.get(v, v) for v in op.inputs)))
    return replace(net, ops=tuple(ops))


# Misses: the words about plans that do not fit, and remedies where none does.

_OF_MICRO_BATCH = ("temporaries", "activations on their way")
"""Parts of a stage that are the smaller the smaller the micro-batch is."""
_OF_STAGE = ("weights", "sums of gradients", "optimiser state", "code")
"""Parts that are the smaller the fewer segments a stage has."""


def nearest_of_each(search: FitSearch) -> list[Miss]:
    """Smallest miss for each number of a model's IPUs and micro-batch that no plan fits."""
    fitting = {(plan.model_ipus, plan.micro_batch) for plan, _ in search.found}
    found: dict[tuple[int, int], Miss] = {}
    for miss in search.misses:
        key = miss.plan.model_ipus, miss.plan.micro_batch
        if key not in fitting and (key not in found or miss.lacking_bytes < found[key].lacking_bytes):
            found[key] = miss
    return [found[key] for key in sorted(found)]


def miss_words(miss: Miss, chain: SegmentChain) -> str:
    """Why a plan does not fit, in one line.

    Args:
        miss: The plan.
        chain: The model for its micro-batch.
    """
    plan, over = miss.plan, miss.lacking_bytes / miss.available_bytes
    spread = spread_words(plan.ipus, plan.replicas, plan.group)
    return (
        f"{spread}, micro-batches of {plan.micro_batch}: {_where(miss, chain)} needs "
        f"{miss.needed_bytes:,} B on its fullest tile, {miss.lacking_bytes:,} B ({100 * over:.0f} %) too much: "
        f"{miss.largest}"
    )


def _where(miss: Miss, chain: SegmentChain) -> str:
    if miss.plan.stages == 1:
        return "the IPU"
    module = chain.segments[miss.plan.bounds(len(chain.segments))[miss.stage][0]].module
    return f"stage {miss.stage}" + (f" (from {module})" if module else "")


def nothing_fits(search: FitSearch) -> FittingError:
    """Error of a search without a plan: the nearest ones for each number of IPUs, and remedies."""
    space = search.space
    if not search.misses:
        segments = max((len(c.segments) for c in search.chains.values()), default=0)
        if search.undivided:
            ipus, replicas, size = search.undivided[0]
            return FittingError(
                f"no division of a batch of {space.batch:,} is left to try",
                because=f"{counted(replicas, 'replica')} of {counted(ipus, 'IPU')} with micro-batches of {size} do not "
                f"divide it, or fill a pipeline of so many stages; and so for all others",
                remedy="a larger batch, smaller micro-batches, or no fixed batch",
            )
        return FittingError(
            f"nothing fits, and the model can be cut into {counted(segments, 'part')} alone",
            remedy="a machine with larger tiles, or submodules between which one activation goes",
        )
    nearest = min(search.misses, key=lambda m: m.lacking_bytes)
    nearest_size = nearest.plan.model_size
    chain = search.chains[nearest_size]
    others = [m for m in nearest_of_each(search) if m is not nearest and m.plan.model_size == nearest_size]
    because = [f"nearest: {miss_words(nearest, chain)}", *(miss_words(m, chain) for m in others)]
    least = _Least.of(search, nearest)
    because += least.words() if least is not None else ()
    if len(chain.segments) < space.system.num_ipus:
        because.append(f"the model can be cut into {counted(len(chain.segments), 'part')} alone")
    return FittingError(
        f"nothing fits on {space.system.name}",
        because="\n".join(because),
        remedy=" · ".join(_help(search, nearest, least)),
    )


@dataclass(frozen=True)
class _Least:
    """Least memory of a model, in the way of its nearest plan.

    Attributes:
        bytes: Bytes over all tiles, without temporaries.
        room: Bytes that an IPU has.
        part: Its largest part.
        part_bytes: Bytes of that part by itself on its fullest tile.
        tile_bytes: Bytes that a tile has.
    """

    bytes: int
    room: int
    part: str
    part_bytes: int
    tile_bytes: int

    @property
    def ipus(self) -> int:
        """IPUs with room for all, if every tile could be full."""
        return math.ceil(self.bytes / self.room)

    @property
    def is_cut_too_little(self) -> bool:
        """True if its largest part fits on no IPU, so that no number of them would do."""
        return self.part_bytes > self.tile_bytes

    @staticmethod
    def of(search: FitSearch, nearest: Miss) -> _Least | None:
        """Least memory in the way of a miss; None where costs are not known."""
        costs = next((costs for case, costs in search.tried if case.miss is nearest), None)
        if costs is None:
            return None
        segments = search.chains[nearest.plan.model_size].segments
        ipu, last = search.space.computing(nearest.plan.io_tiles).ipu, len(segments) - 1
        on = [of.memory for of in stages_of(nearest.plan, costs, search.space).by_way.values()]
        alone = [min(of.needed(n, n + 1, 0, last=n == last) for of in on) for n in range(len(segments))]
        largest = alone.index(max(alone))
        return _Least(
            bytes=round(min(of.least_bytes for of in on)),
            room=ipu.tile.usable_bytes * ipu.num_tiles,
            part=segments[largest].module or ("the beginning" if largest == 0 else f"part {largest}"),
            part_bytes=alone[largest],
            tile_bytes=ipu.tile.usable_bytes,
        )

    def words(self) -> Iterator[str]:
        """The same in words."""
        yield (
            f"at least: {self.bytes / 1e6:,.0f} MB without temporaries, as much as {counted(self.ipus, 'IPU')} of "
            f"{self.room / 1e6:,.0f} MB could hold if it were even"
        )
        hopeless = ": too much for any number of IPUs" if self.is_cut_too_little else ""
        yield (
            f"largest part by itself: {self.part}, {self.part_bytes:,} B of a tile's {self.tile_bytes:,} B{hopeless}"
        )


def _larger(system: System, ipus: int) -> str | None:
    """The smallest machine by name of the same IPUs that has more of them, and at least so many; None without any."""
    known = [systems.get(name) for name in systems.names()]
    fit = [s for s in known if s.ipu == system.ipu and s.num_ipus >= max(ipus, system.num_ipus + 1)]
    return min(fit, key=lambda s: s.num_ipus).name if fit else None


def _help(search: FitSearch, nearest: Miss, least: _Least | None) -> Iterator[str]:
    """Remedies that make the nearest plan fit, or come closest to that."""
    space, plan = search.space, nearest.plan
    chain, model = search.chains[plan.model_size], search.models[plan.model_size]
    begin, end = plan.bounds(len(chain.segments))[nearest.stage]
    size = _smaller(nearest)
    if size is not None:
        yield f"micro-batches of {size}"
    alone = end - begin == 1
    if (
        not alone
        and len(chain.segments) > space.system.num_ipus
        and _amount(nearest, _OF_STAGE) > nearest.lacking_bytes
    ):
        larger = _larger(space.system, 0 if least is None else least.ipus)
        yield f"a machine with more IPUs than {space.system.num_ipus}" + (f", as {larger}" if larger else "")
    if plan.io_tiles:
        yield f"fewer IO tiles than {plan.io_tiles}"
    if alone:
        name = chain.segments[begin].module or "the part at the beginning"
        yield f"{name} in submodules between which one activation goes, or spread over IPUs by tensor parallelism"
    if any(p.dtype == f32 for p in model.net.parameters):
        yield "half precision"
    elif any(group.optimiser.accumulation == f32 for group in model.groups or ()):
        yield "sums of gradients in float16"
    if _amount(nearest, ("temporaries",)) > nearest.lacking_bytes and space.settings.partials == "f32":
        yield "partial sums in float16"
    if size is None:
        yield "a machine with larger tiles"


def _smaller(nearest: Miss) -> int | None:
    """The largest part of the micro-batch with which the plan might fit."""
    scaled, size = _amount(nearest, _OF_MICRO_BATCH), nearest.plan.micro_batch
    for parts in range(2, size + 1):
        if size % parts == 0 and scaled - scaled // parts >= nearest.lacking_bytes:
            return size // parts
    return None


def _amount(miss: Miss, names: Sequence[str]) -> int:
    return sum(miss.parts.get(name, 0) for name in names)


# Reasons: why a plan is slower than the best, in IPU time for each sample.

_WORDS = {
    "work": "more work for each sample",
    "imbalance": "stages of unequal length",
    "exchange": "exchanges between stages",
    "bubble": "the pipeline fills and empties",
    "all_reduce": "sums of gradients over replicas",
    "update": "updates of weights",
    "streaming": "optimiser state from streaming memory",
}


def reason(plan: Spreading, estimate: Estimate, best: Spreading, best_estimate: Estimate) -> str:
    """Largest losses of time of a plan beside the best one.

    Args:
        plan: The plan.
        estimate: Its expected cost.
        best: The best plan.
        best_estimate: The expected cost of that.
    """
    own, other = estimate.shares(plan), best_estimate.shares(best)
    whole = sum(other.values())
    excess = {name: (own[name] - other[name]) / whole for name in own}
    slower = sum(excess.values())
    found = []
    for name in sorted(excess, key=lambda n: -excess[n])[:2]:
        if excess[name] >= max(0.2 * slower, 0.001):
            found.append(f"{_said(name, plan, best)} +{100 * excess[name]:.1f} %")
    return ", ".join(found) or "as fast"


def _said(name: str, plan: Spreading, best: Spreading) -> str:
    if name == "imbalance" and plan.group > 1:
        return "stages that wait where replicas of a group exchange"
    if name == "imbalance" and plan.turns:
        return "stages that take turns"
    if name == "streaming" and plan.phases:
        return "phases that come from streaming memory"
    if name != "work":
        return _WORDS[name]
    if plan.stages > 1 and plan.recompute != Recomputation.NOTHING and best.recompute == Recomputation.NOTHING:
        return "activations computed again"
    if plan.stages > 1 and plan.recompute != Recomputation.NOTHING and best.stages == 1:
        return "activations computed again"
    if plan.waits_off_chip and not best.waits_off_chip:
        return "activations to and from streaming memory"
    if plan.group > best.group:
        return "layers in parts, which replicas exchange"
    if plan.io_tiles > best.io_tiles:
        return "fewer tiles that compute"
    if plan.micro_batch < best.micro_batch:
        return "smaller micro-batches"
    if plan.plans_smaller and not best.plans_smaller:
        return "less memory for products"
    if plan.narrow_stash and not best.narrow_stash:
        return "activations rounded to 8 bits"
    return _WORDS[name]


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Result of fitting a model to a machine.

    Attributes:
        space: The plans that were searched.
        ranking: Plans that fit, the fastest first.
        misses: The nearest plan for each number of IPUs and micro-batch with which none fits.
        smallest: The least number of IPUs that hold the model.
        chains: The model as a chain, by its size.
        undivided: IPUs of a replica, replicas and micro-batches that do not divide the batch, or fill no pipeline.
        training: True if the model is trained.
    """

    space: FitSpace
    ranking: tuple[Ranked, ...]
    misses: tuple[Miss, ...]
    smallest: int
    chains: dict[ModelSize, SegmentChain] = field(repr=False)
    undivided: tuple[tuple[int, int, int], ...] = ()
    training: bool = True

    @property
    def best(self) -> Ranked:
        """The fastest plan."""
        return self.ranking[0]

    def modules(self, plan: Spreading) -> list[str]:
        """The submodule that each stage begins with; empty for the first."""
        segments = self.chains[plan.model_size].segments
        return ["", *(segments[cut].module for cut in plan.cuts)]


def fit_network(
    model_of: Callable[..., Model], space: FitSpace, *, check: int = 1, progress: Progress | None = None
) -> Fitted:
    """Find the smallest machine that holds a model and the fastest way to spread it over the machine.

    Args:
        model_of: Gives the model for a size of the micro-batch. For groups of replicas it takes a ``group``, and gives
            what one of so many computes.
        space: Plans to search.
        check: Number of the fastest plans that are compiled as a whole, to set the figures side by side. Those that do
            not fit then come last, and up to :data:`MORE_CHECKS` others are compiled in their place.
        progress: Called with what is done and the part of it that is.

    Raises:
        FittingError: Nothing fits, nothing can be cut, or no division of the batch is left.
        AbeleError: As of capturing and compiling the model.
    """
    space.check_batch()
    search = FitSearch(space, model_of, progress or (lambda _what, _part: None))
    search.run()
    if not search.found:
        raise nothing_fits(search)
    ordered = _fastest_of_each(search.found)
    made = _compiled(ordered, search, check)
    # What was seen not to fit is no answer, however fast it would be.
    ordered = sorted(ordered, key=lambda found: found[0] in made and not made[found[0]].fits)
    best = ordered[0]
    ranking = [
        Ranked(
            plan=plan,
            estimate=estimate,
            reason="" if plan is best[0] else _refusal(made.get(plan)) or reason(plan, estimate, *best),
            compiled=made.get(plan),
        )
        for plan, estimate in ordered
    ]
    held = [ranked.plan for ranked in ranking if ranked.compiled is None or ranked.compiled.fits]
    return Fitted(
        space=space,
        ranking=tuple(ranking),
        misses=tuple(nearest_of_each(search)),
        smallest=min(plan.model_ipus for plan in held or [best[0]]),
        chains=search.chains,
        undivided=tuple(search.undivided),
        training=next(iter(search.models.values())).groups is not None,
    )


MORE_CHECKS = 3
"""The most further plans that are compiled in place of ones too large."""


def _compiled(
    ordered: Sequence[tuple[Spreading, Estimate]], search: FitSearch, check: int
) -> dict[Spreading, Compilation]:
    """The fastest plans compiled as a whole, until enough of them fit."""
    made: dict[Spreading, Compilation] = {}
    for plan, _ in ordered:
        fitting = sum(of.fits for of in made.values())
        if fitting >= check or len(made) >= check + MORE_CHECKS:
            break
        search.progress("compile the whole", fitting / check)
        model, chain = search.models[plan.model_size], search.chains[plan.model_size]
        made[plan] = compiled_plan(plan, model, chain, search.space)
    return made


def _refusal(made: Compilation | None) -> str:
    """Why a plan that was compiled is no answer; empty for others."""
    if made is None or made.fits:
        return ""
    return made.problem or f"does not fit when compiled as a whole: {max(made.ipu_bytes):,} B on the fullest tile"


def _fastest_of_each(found: Sequence[tuple[Spreading, Estimate]]) -> list[tuple[Spreading, Estimate]]:
    return sorted(found, key=lambda f: (-f[1].samples_per_second, f[0].model_ipus, f[0].micro_batch))
