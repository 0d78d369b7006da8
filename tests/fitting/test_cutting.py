"""Cutting: shares of memory IPU by IPU against all there are, and ends of a pipeline against its ticks."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spread_models import finished, mlp

from abele.fitting import Recomputation, Spreading, chain_of
from abele.fitting.costs import ChainCosts
from abele.fitting.estimate import estimated, ipu_bytes
from abele.fitting.fit import placed
from abele.fitting.measure import SegmentCosts
from abele.fitting.search import best_cuts, nearest_cuts
from abele.fitting.stage_memory import best_checkpoints, whole_temporaries
from abele.fitting.stages import Stages
from abele.fitting.traffic import StageWork, tick_cycles
from abele.machine import systems
from abele.network import NetworkBuilder
from abele.network.ops import build
from support.examples import examples

SYSTEM = systems.resolve("bow-2000")
LAYERS = 6


@pytest.fixture(scope="module")
def chain():
    model = mlp(4, width=32, layers=LAYERS)
    return chain_of(model.net, model.groups), model.groups


def costs(chain, groups, rng, peaks, cycles):
    """Costs of segments of which products take more or less memory, and less or more time."""
    zero = np.zeros(4, np.int64)

    def segment(number):
        return SegmentCosts(
            forward_cycles=int(cycles[number]),
            backward_cycles=2 * int(cycles[number]),
            update_cycles=100,
            resident=rng.integers(40_000, 90_000, 4),
            accumulators=np.full(4, 10_000),
            state=np.full(4, 20_000),
            code=rng.integers(5_000, 20_000, 4),
            code_again=zero,
            forward_again=zero,
            vertex_code=zero,
            overhead=zero,
            peak=np.full(4, int(peaks[number])),
            saved_bytes=1472 * 4_000,
            narrow_saved_bytes=1472 * 2_000,
            live_bytes=1472 * 4_000,
            inputs=(),
            outputs=(),
            gradient_bytes=1_000,
            state_bytes=2_000,
            state_units=(2_000,),
        )

    return ChainCosts.of(chain, [segment(n) for n in range(LAYERS)], range(LAYERS), groups)


@pytest.fixture(scope="module")
def uneven():
    """A chain between whose segments there is more or less."""
    net = NetworkBuilder()
    x = net.input((4, 16), "f16", "x")
    for number, width in enumerate((64, 8, 48, 8, 96, 16)):
        weight = net.parameter((width, x.shape[1]), "f16", f"w{number}")
        x = build.nonlinearity(net, "tanh", build.linear(net, x, weight, None))
    model = finished(net, x, True)
    return chain_of(model.net, model.groups), model.groups


@examples(5)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3, 6]), st.booleans())
def test_best_checkpoints__any_stage__keep_the_least_of_all_within_the_bound(uneven, seed, spacing, narrow):
    rng = np.random.default_rng(seed)
    of = costs(*uneven, rng, rng.integers(1_000, 20_000, LAYERS), rng.integers(1_000, 5_000, LAYERS))
    tiles = SYSTEM.ipu.num_tiles
    found = best_checkpoints(of, tiles, spacing, narrow=narrow)
    enters = [s.narrow_entering_bytes if narrow else s.entering_bytes for s in of.chain.segments]
    needed = {
        (first, end): whole_temporaries(of, tiles)[first][end - first - 1].max()
        for first, end in combinations(range(LAYERS + 1), 2)
    }
    for begin, end in combinations(range(LAYERS + 1), 2):
        bound = max(needed[first, min(first + spacing, LAYERS)] for first in range(begin, LAYERS)) * (spacing > 1)
        ways = []
        for count in range(end - begin):
            for kept in combinations(range(begin + 1, end), count):
                gaps = list(pairwise((begin, *kept, end)))
                if all(b - a == 1 or needed[a, b] <= bound for a, b in gaps):
                    ways.append((sum(enters[k] for k in kept), max(needed[gap] for gap in gaps)))
        kept = found.of(begin, end)
        fullest = max(needed[gap] for gap in pairwise((begin, *kept, end)))
        assert (found.row_bytes[begin, end], fullest) == min(ways)
        assert sum(enters[k] for k in kept) == found.row_bytes[begin, end]


def every(plan, stages):
    """Plans with all cuts, shares and distances of checkpoints that fit."""
    shares = list(dict.fromkeys(way.share for way in stages.by_way))
    spacings = list(dict.fromkeys(way.spacing for way in stages.by_way))
    for cuts in combinations(range(1, LAYERS), plan.ipus - 1):
        for chosen in product(shares, repeat=plan.ipus):
            for apart in product(spacings, repeat=plan.ipus - 1):
                made = replace(plan, cuts=cuts, proportions=chosen if any(chosen) else (), spacings=(*apart, 1))
                if max(ipu_bytes(made, stages)) <= stages.available_bytes:
                    yield made


@examples(15)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 4]), st.sampled_from(list(Recomputation)), st.booleans())
def test_best_cuts__two_shares_of_memory__as_fast_as_the_best_of_all_plans(chain, seed, ipus, recompute, narrow):
    if recompute == Recomputation.SEGMENTS:
        # All distances of checkpoints are tried, too.
        ipus = min(ipus, 2)
    rng = np.random.default_rng(seed)
    peaks, cycles = rng.integers(100_000, 450_000, LAYERS), rng.integers(1_000, 5_000, LAYERS)
    usual = costs(*chain, np.random.default_rng(seed), peaks, cycles)
    smaller = costs(*chain, np.random.default_rng(seed), peaks // 3, cycles * 3 // 2)
    plan = Spreading(ipus=ipus, replicas=1, micro_batch=4, accumulation=16, recompute=recompute, narrow_stash=narrow)
    stages = Stages.of(plan, {None: usual, 0.2: smaller}, SYSTEM)
    fastest = min((estimated(p, stages).tick_cycles for p in every(plan, stages)), default=None)
    found = best_cuts(plan, stages)
    assert (found is None) == (fastest is None)
    if found is None:
        nearest = nearest_cuts(plan, stages)
        assert max(ipu_bytes(nearest, stages)) > stages.available_bytes
    else:
        assert max(ipu_bytes(found, stages)) <= stages.available_bytes
        assert estimated(found, stages).tick_cycles == fastest


@examples(10)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 4]), st.sampled_from(list(Recomputation)))
def test_best_cuts__stages_take_turns__fit_and_need_no_more_memory_than_in_groups(chain, seed, ipus, recompute):
    rng = np.random.default_rng(seed)
    of = costs(*chain, rng, rng.integers(100_000, 450_000, LAYERS), rng.integers(1_000, 5_000, LAYERS))
    grouped = Spreading(ipus=ipus, replicas=1, micro_batch=4, accumulation=16, recompute=recompute)
    turns = replace(grouped, turns=True)
    found = best_cuts(turns, Stages.of(turns, {None: of}, SYSTEM))
    if found is not None:
        stages = Stages.of(found, {None: of}, SYSTEM)
        assert max(ipu_bytes(found, stages)) <= stages.available_bytes
        # The same cuts with all stages at once take less time, and no less memory.
        same = replace(found, turns=False)
        at_once = estimated(same, Stages.of(same, {None: of}, SYSTEM))
        assert all(a <= b for a, b in zip(estimated(found, stages).ipu_bytes, at_once.ipu_bytes, strict=True))
        assert estimated(found, stages).tick_cycles >= at_once.tick_cycles
    elif best_cuts(grouped, Stages.of(grouped, {None: of}, SYSTEM)) is not None:
        # A plan in groups may have its last stage on the first IPU; these parameters are shared by none.
        raise AssertionError("what fits in groups fits in turns")


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
def test_waiting_rows__any_schedule__are_those_of_the_rings_of_a_pipeline(stages):
    # The backward stage of s is 2·(n - 1) - s, in turns 2·n - 1 - s; what is read d ticks later waits in
    # ceil(d / stride) rows, and in none where it is read at once or in the next tick.
    for turns, stride, last in ((False, 1, 2 * stages - 2), (True, 2, 2 * stages - 1)):
        plan = Spreading(ipus=stages, replicas=1, micro_batch=1, accumulation=32, turns=turns)
        for stage in range(stages):
            ticks = last - 2 * stage
            rows = 0 if ticks < 2 else -(-ticks // stride)
            assert plan.waiting_rows(stage, stages=stages) == rows


STREAMS = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda s: (s[0] + s[1], s[1]) if s[0] else (0, 0))


@given(st.lists(st.tuples(st.integers(0, 2), STREAMS, st.integers(0, 50), STREAMS), max_size=6), st.integers(0, 20))
def test_tick_cycles__any_stages__is_a_load_the_slowest_ipu_and_a_store(stages, meeting):
    works = [StageWork(*stage) for stage in stages]
    slowest = max((sum(w.cycles for w in works if w.ipu == ipu) for ipu in range(3)), default=0)
    streams = [sum(w.entering[0] for w in works), sum(w.leaving[0] for w in works)]
    assert tick_cycles(works, meeting) == slowest + sum(s + meeting for s in streams if s)
    # Apart, IPUs wait for their own streams alone; the link is everybody's.
    alone = tick_cycles(works, meeting, apart=True)
    assert alone >= sum(w.entering[1] + w.leaving[1] for w in works)
    assert alone >= slowest
    if len(works) == 1:
        assert alone == tick_cycles(works, meeting)


def test_placed__shares_of_memory__are_hints_of_the_products_of_an_ipu(chain):
    plan = Spreading(ipus=2, replicas=1, micro_batch=4, accumulation=16, cuts=(2,), proportions=(0.25, None))
    net = placed(plan, chain[0].net, chain[0])
    shares = [None if op.hint is None else op.hint.proportion for op in net.ops if op.kind == "linear"]
    assert shares == [0.25] * 2 + [None] * (LAYERS - 2)
