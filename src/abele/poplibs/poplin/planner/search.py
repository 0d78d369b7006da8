"""The search for a plan: every split of a contraction over the tiles, costed at once.

A plan cuts each dimension of the contraction into equal parts; the product of the parts is the number of tiles that
work. The search lists the candidate splits as rows of one array and costs all of them together in NumPy. So it is
exhaustive, and nothing depends on a heuristic descent, which could end in a local minimum.

Why a list of all splits is short enough, and still holds the best one:

- What a part costs depends on the size of the largest part. Among all part counts that give the same largest part, the
  smallest wastes no tile, so a dimension of n units offers at most 2·√n counts (``_part_counts``), not n. PopLibs
  leaves out the others, too (``ceildivConstrainDivisor`` of its solver, from memory), even where an even count of the
  out-channels would let pairs of tiles receive the input that they share at twice the rate.
- Products of more parts than there are tiles are never formed: beside parts whose product is p, a dimension offers the
  counts up to tiles / p.
- Only where the lists are still longer than ``_MOST_CANDIDATES`` is every second count of the longest left out.

Costs are those of the tile with the most to do, term by term, in the terms of PopLibs' estimate: a pure sum of
exchanges and vertices (machine.md §5.9). It leaves out what a program takes besides: barriers and launches, what
separate pieces of a slice cost to receive, and copies of the share that a tile holds itself. Plans chosen with those
used far fewer tiles for small products than the published programs do. The compiler counts them all the same.
What inputs and products take is known before the rest, and no split takes less than that. So splits that take longer
with these terms alone than the best of them take altogether are dropped before the other terms are worked out: the
bound is exact, and the plan the same as without it.

Serial splits are not candidates here but in :mod:`~abele.poplibs.poplin.planner.schedule`, as they pay only where
memory is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, reduce
from math import prod
from typing import NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError, OutOfMemoryError
from abele.graph.intervals import distinct
from abele.llvm.cache import kept_choice
from abele.numerics import f16, f32
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.poplibs.poplin.options import DEFAULT, Planning
from abele.poplibs.poplin.planner.plan import ContractionPlan, cuts_of
from abele.poplibs.poplin.planner.sum_stages import stages
from abele.poplibs.poplin.planner.target import PlanningTarget, padded_sides, rearranging_by_tiles
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices.method import Method
from abele.poplibs.poplin.vertices.slic_cost import slic_takes
from abele.poplibs.poplin.vertices.vmac_cost import vmac_takes
from abele.poplibs.poplin.vertices.work import Work
from abele.words import counted

_CODE = (
    "poplibs/poplin/planner",
    "poplibs/poplin/vertices",
    "poplibs/poplin/contraction",
    "poplibs/poplin/conv_params",
)
"""Folders of the code that a plan depends on; figures of the machine are in its target."""
_MOST_CANDIDATES = 400_000
"""Splits above which those of too many idle tiles are dropped; longer lists are thinned. Chosen."""
_MOST_STAGES = 3
"""Stages of a sum of partials. Source: §5.12."""


@dataclass(frozen=True)
class _Slices:
    """Sizes of the largest slice of every candidate split, int64[n] each.

    Attributes:
        work: Work of one vertex.
        in_bytes: Bytes of its slice of the input.
        weight_bytes: Bytes of its slice of the weights.
        in_sharers: Tiles that read the same slice of the input.
        weight_sharers: Tiles that read the same slice of the weights.
        depth: Partials of an output element.
        block: Elements of a partial, channels padded to groups of the vertex where it has such.
        buffer: Elements that the vertex needs beside it.
    """

    work: Work
    in_bytes: Int64
    weight_bytes: Int64
    in_sharers: Int64
    weight_sharers: Int64
    depth: Int64
    block: Int64
    buffer: Int64

    def written_by(self, methods: list[Method], chosen: Int64) -> _Slices:
        """The same, with partials as the vertex of every candidate writes them."""
        channels = self.work.out_channels
        written = _chosen([m.written_channels(channels) for m in methods], chosen)
        block = self.block // channels * written
        return replace(self, block=block, buffer=_chosen([m.buffer_elements(block) for m in methods], chosen))

    def at(self, kept: Int64) -> _Slices:
        """Those of some candidates."""
        columns = {f.name: getattr(self, f.name)[kept] for f in fields(self) if f.name != "work"}
        return _Slices(work=self.work.at(kept), **columns)


@lru_cache(maxsize=4096)
def find_plan(
    problem: Contraction,
    grains: tuple[int, ...],
    target: PlanningTarget,
    planning: Planning = DEFAULT,
    *,
    strict: bool = False,
    halves: bool = False,
) -> ContractionPlan:
    """The split of ``problem`` that is expected to take the fewest cycles.

    Args:
        problem: Contraction to plan.
        grains: Factor that parts of every split dimension are multiples of, in the order of ``problem.split_dims``.
        target: The machine.
        planning: Constraints on the plan. Where nothing fits the share of memory that it allows, the share is doubled
            until something does (as poplibs does), up to all of a tile; 0 asks for the least memory.
        strict: Do not double it.
        halves: Parts of the out-channels may also be of halves of their grain, which the plan's grains then say.

    Raises:
        InvalidOptionError: No split has the parts, or no vertex is of the kind, that ``planning`` asks for.
        OutOfMemoryError: No split fits; the error says what the smallest needs.
    """
    known = _known_plan(problem, grains, target, planning, strict)
    if known and not halves:
        return known[0]
    plan = best_plans(problem, grains, target, planning, 1, strict=strict, halves=halves)[0]
    if halves:
        # Operands are then created for its grains, and who uses them asks for those: their splits are among these.
        _known_plan(problem, plan.grains, target, planning, strict)[:] = [plan]
    return plan


@lru_cache(maxsize=4096)
def _known_plan(
    problem: Contraction, grains: tuple[int, ...], target: PlanningTarget, planning: Planning, strict: bool
) -> list[ContractionPlan]:
    """A place for the plan that a search with halved grains found to be of these ones; empty where there was none."""
    return []


def best_plans(
    problem: Contraction,
    grains: tuple[int, ...],
    target: PlanningTarget,
    planning: Planning,
    count: int,
    *,
    strict: bool = False,
    halves: bool = False,
) -> list[ContractionPlan]:
    """The ``count`` splits that are expected to take the fewest cycles, best first; see :func:`find_plan`.

    Raises:
        InvalidOptionError, OutOfMemoryError: As for :func:`find_plan`.
    """
    ways = list(_ways(problem, target, planning))
    if not ways:
        raise InvalidOptionError(
            f"the plan is to use {planning.method} vertices, which cannot do this work",
            because=f"it is {problem}",
        )
    found: list[ContractionPlan] = []
    failure: OutOfMemoryError | None = None
    for written, methods in ways:
        try:
            found += _plans(written, grains, target, planning, count, methods=methods, strict=strict, halves=halves)
        except OutOfMemoryError as error:
            failure = failure or error
    if failure is not None and not found:
        raise failure
    # each list is in this order already, so one list alone stays as it is
    found.sort(key=lambda p: (_cycles_beside(p, planning), p.cycles, p.temporary_bytes))
    return found[:count]


def _ways(
    problem: Contraction, target: PlanningTarget, planning: Planning
) -> Iterator[tuple[Contraction, list[Method]]]:
    """The vertices that can do the work, and the problem as they write it.

    Outer products sum nothing, and write the type of their operands whatever that of partials is.
    Source: declaration of PopLibs' OuterProduct, whose operands and result have one type (docs/library_vertices.md).
    """
    narrow = replace(problem, partials=problem.dtype)
    for written, methods in (
        (problem, _methods(problem, target, planning)),
        (narrow, [Method("outer_product")] if _is_outer_product(problem) else []),
    ):
        asked = [m for m in methods if planning.method in ("", m.family, m.kind)]
        if asked:
            yield written, asked


def _cycles_beside(plan: ContractionPlan, planning: Planning) -> int:
    return int(_beside({name: np.asarray(n) for name, n in plan.terms}, planning))


def _is_outer_product(problem: Contraction) -> bool:
    return problem.is_pointwise and problem.in_channels == 1 and not problem.dtype.is_quarter


def candidates(problem: Contraction, grains: tuple[int, ...], tiles: int) -> Int64:
    """Parts of every dimension for every split worth a look, int64[n, dims]."""
    return _candidates(problem, grains, tiles, {})


def split_costs(
    problem: Contraction, grains: tuple[int, ...], parts: Int64, target: PlanningTarget, planning: Planning
) -> tuple[Int64, Int64]:
    """Expected cycles of given splits, each with its best vertex, and temporary bytes, int64[n] each."""
    cycles, temporary = np.full(len(parts), np.iinfo(np.int64).max), np.zeros(len(parts), dtype=np.int64)
    for written, methods in _ways(problem, target, planning):
        slices = _slices(written, grains, parts)
        chosen, products = _products(written, methods, slices, parts, target)
        slices = slices.written_by(methods, chosen)
        terms = _terms(written, slices, _early_terms(slices, products, target), target)
        total = np.sum([n for _, n in terms], axis=0, dtype=np.int64)
        needed = _temporary_bytes(written, slices, *_copies(written, methods, chosen, target, planning))
        temporary = np.where(total < cycles, needed, temporary)
        cycles = np.minimum(total, cycles)
    return cycles, temporary


def _plans(
    problem: Contraction,
    grains: tuple[int, ...],
    target: PlanningTarget,
    planning: Planning,
    count: int,
    *,
    methods: list[Method],
    strict: bool,
    halves: bool,
) -> list[ContractionPlan]:
    """The best splits with some kinds of vertices; see :func:`best_plans`."""
    content = f"{problem!r} {grains} {target!r} {planning!r} {count} {methods!r} {strict} {halves}"

    def search() -> list[_Split]:
        return _splits(problem, grains, target, planning, count, methods=methods, strict=strict, halves=halves)

    return [
        ContractionPlan(
            problem=problem,
            method=methods[split.method],
            parts=split.parts,
            grains=split.grains,
            terms=split.terms,
            temporary_bytes=split.temporary_bytes,
            available_bytes=split.available_bytes,
            is_limited=split.is_limited,
        )
        for split in kept_choice(content, list[_Split], search, *_CODE)
    ]


class _Split(NamedTuple):
    """A split that the search found: a plan without the problem and the vertices that it was asked about."""

    method: int
    parts: tuple[int, ...]
    grains: tuple[int, ...]
    terms: tuple[tuple[str, int], ...]
    temporary_bytes: int
    available_bytes: int
    is_limited: bool


def _splits(
    problem: Contraction,
    grains: tuple[int, ...],
    target: PlanningTarget,
    planning: Planning,
    count: int,
    *,
    methods: list[Method],
    strict: bool,
    halves: bool,
) -> list[_Split]:
    """The best splits among all candidates, best first."""
    fine = _halved(problem, grains) if halves else grains
    parts = _candidates(problem, fine, target.tiles, dict(planning.parts))
    # every row of the arrays from here on is one candidate split
    slices = _slices(problem, fine, parts)
    chosen, products = _products(problem, methods, slices, parts, target)
    slices = slices.written_by(methods, chosen)
    temporary = _temporary_bytes(problem, slices, *_copies(problem, methods, chosen, target, planning))
    available = _bound(problem, int(temporary.min()), planning.proportion, target, strict=strict)
    early = _early_terms(slices, products, target)

    def terms_of(which: Int64) -> list[tuple[str, Int64]]:
        return _terms(problem, slices.at(which), {name: n[which] for name, n in early.items()}, target)

    fits = temporary <= available
    first = _beside(early, planning)
    least = np.where(fits, first, np.iinfo(np.int64).max)
    least_beyond = int(first[~fits].min(initial=np.iinfo(np.int64).max))
    near = _near(least, min(count, int(fits.sum())), lambda which: _beside(dict(terms_of(which)), planning))
    terms = terms_of(near)
    total = np.sum([n for _, n in terms], axis=0, dtype=np.int64)
    # of equal cost, the split that is cheaper alone; then the one that takes less memory
    beside = _beside(dict(terms), planning)
    order = np.lexsort((temporary[near], total, beside))[:count]
    return [
        _Split(
            method=int(chosen[near[i]]),
            parts=tuple(int(p) for p in parts[near[i]]),
            grains=grains
            if _is_whole(problem, grains, parts[near[i]], int(slices.work.out_channels[near[i]]))
            else fine,
            terms=tuple((name, int(n[i])) for name, n in terms if n[i]),
            temporary_bytes=int(temporary[near[i]]),
            available_bytes=available,
            is_limited=bool(least_beyond < beside[i]),
        )
        for i in order.tolist()
    ]


def _near(least: Int64, count: int, cycles_of: Callable[[Int64], Int64]) -> Int64:
    """The candidates that may be among the ``count`` best, ascending int64[n].

    The bound is the largest total of the ``count`` candidates with the best early terms. That many candidates keep to
    it, so a candidate whose early terms alone exceed it is not among the best.

    Args:
        least: Cycles of the early terms of every candidate, int64[candidates].
        count: Number of best candidates to keep.
        cycles_of: Total cycles of the given candidates.
    """
    return np.flatnonzero(least <= cycles_of(np.argpartition(least, count - 1)[:count]).max())


def _beside(terms: Mapping[str, Int64], planning: Planning) -> Int64:
    """Cycles of every candidate together with the work at the same time: steps of a kind end with the longest.

    Terms that are not known yet are taken for nothing.
    """
    theirs = dict(planning.beside)
    joint = sum(np.maximum(n, theirs.pop(name, 0)) for name, n in terms.items())
    return np.asarray(joint + sum(theirs.values()), dtype=np.int64)


def _candidates(problem: Contraction, grains: tuple[int, ...], tiles: int, pinned: Mapping[str, int]) -> Int64:
    """Parts of every dimension for every split worth a look, int64[n, dims]: at most ``tiles`` parts in all."""
    lists = [_part_counts(-(-problem.extents[d] // g), tiles) for d, g in zip(problem.split_dims, grains, strict=True)]
    for i, dim in enumerate(problem.split_dims):
        if dim in pinned:
            lists[i] = np.array([pinned[dim]], dtype=np.int64)
            _check_pinned(problem, dim, pinned[dim], -(-problem.extents[dim] // grains[i]))
    while prod(len(counts) for counts in lists) > _MOST_CANDIDATES:
        longest = max(range(len(lists)), key=lambda i: len(lists[i]))
        lists[longest] = distinct(np.append(lists[longest][::2], lists[longest][-1]))
    columns: list[Int64] = []
    product = np.ones(1, dtype=np.int64)
    for counts in lists:
        # Counts are ascending, so those that leave no more parts than tiles are the first ones.
        number = np.searchsorted(counts, tiles // product, side="right")
        row = np.repeat(np.arange(len(product)), number)
        now = counts[np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)]
        columns = [*(column[row] for column in columns), now]
        product = product[row] * now
    parts = np.array(columns).T
    if len(parts) == 0:
        raise InvalidOptionError(
            f"the plan is to have {prod(pinned.values()):,} parts at least, there are {counted(tiles, 'tile')}",
            because=", ".join(f"{dim} in {n}" for dim, n in pinned.items()),
        )
    return parts


def _check_pinned(problem: Contraction, dim: str, parts: int, most: int) -> None:
    if not 1 <= parts <= most:
        raise InvalidOptionError(
            f"the plan is to have {parts} parts of {dim}, between 1 and {most} are possible", because=f"it is {problem}"
        )


def _part_counts(units: int, most: int) -> Int64:
    """The numbers of parts below which the largest part of ``units`` does not shrink further, ascending.

    ``ceil(units / n)`` takes at most 2·√units values; for each of them the fewest parts that give it.
    """
    sizes = distinct(-(-units // np.arange(1, min(units, most) + 1, dtype=np.int64)))
    return distinct(-(-units // sizes))


def _halved(problem: Contraction, grains: tuple[int, ...]) -> tuple[int, ...]:
    """``grains`` with half the one of the out-channels."""
    out = problem.split_dims.index("co")
    return (*grains[:out], grains[out] // 2, *grains[out + 1 :])


def _is_whole(problem: Contraction, grains: tuple[int, ...], parts: Int64, largest: int) -> bool:
    """True if parts of the out-channels whose largest is ``largest`` can be of whole grains; no part grows by that."""
    out = problem.split_dims.index("co")
    grain = grains[out]
    return (largest % grain == 0 or largest == problem.out_channels) and parts[out] <= -(-problem.out_channels // grain)


def _slices(problem: Contraction, grains: tuple[int, ...], parts: Int64) -> _Slices:
    extents = problem.extents
    count = {dim: parts[:, i] for i, dim in enumerate(problem.split_dims)}
    size: dict[str, Int64] = {}
    for (dim, n), grain in zip(count.items(), grains, strict=True):
        size[dim] = np.minimum(cost.ceil_div(cost.ceil_div(extents[dim], grain), n) * grain, extents[dim])
    ones = np.ones(len(parts), dtype=np.int64)
    positions, field, taps = size["b"].astype(np.float64), ones, ones
    for d, axis in enumerate(problem.axes):
        pairs, inputs = _axis_table(axis, count[f"o{d}"], count[f"k{d}"])
        positions = positions * pairs / size[f"k{d}"]
        field, taps = field * size[f"o{d}"], taps * size[f"k{d}"]
        size[f"i{d}"] = inputs
    last = f"{problem.rank - 1}"
    inner = size["k" + last] if problem.rank else ones
    outputs = size["b"] * field
    work = Work(
        dtype=problem.dtype,
        partials=problem.partials,
        groups=size["g"],
        in_channels=size["ci"],
        out_channels=size["co"],
        positions=np.ceil(positions).astype(np.int64),
        outputs=outputs,
        run=size["o" + last] if problem.rank else outputs,
        kernel_outer=taps // inner,
        kernel_inner=inner,
    )
    fields, kernels = (_product(count, name, ones) for name in "ok")
    in_dims, weight_dims = ("g", "ci", "b", *problem.in_dims[3:]), ("g", "co", "ci", *problem.weight_dims[3:])
    return _Slices(
        work=work,
        in_bytes=_multiplied(size[d] for d in in_dims) * problem.dtype.bytes,
        weight_bytes=_multiplied(size[d] for d in weight_dims) * problem.dtype.bytes,
        in_sharers=count["co"],
        weight_sharers=count["b"] * fields,
        depth=count["ci"] * kernels,
        block=work.partial_elements,
        buffer=np.zeros_like(ones),
    )


def _product(count: Mapping[str, Int64], name: str, ones: Int64) -> Int64:
    return _multiplied([n for d, n in count.items() if d[0] == name] or [ones])


def _multiplied(columns: Iterable[Int64]) -> Int64:
    return reduce(np.multiply, columns)


def _axis_table(axis: Axis, out_parts: Int64, kernel_parts: Int64) -> tuple[Int64, Int64]:
    """Most pairs in a box, and most inputs of one, for numbers of parts along an axis."""
    outs, out_index = _levels(out_parts)
    kernels, kernel_index = _levels(kernel_parts)
    pairs, inputs = _most_met(axis, tuple(outs.tolist()), tuple(kernels.tolist()))
    return pairs[out_index, kernel_index], inputs[out_index, kernel_index]


def _levels(column: Int64) -> tuple[Int64, Int64]:
    """The different values of a column of small numbers, ascending, and which of them each entry is."""
    comes_up = np.zeros(int(column.max()) + 1, dtype=np.bool_)
    comes_up[column] = True
    return np.flatnonzero(comes_up), (np.cumsum(comes_up) - 1)[column]


@lru_cache(maxsize=1024)
def _most_met(axis: Axis, outs: tuple[int, ...], kernels: tuple[int, ...]) -> tuple[Int64, Int64]:
    """Most pairs and inputs of a box for every number of parts of outputs and kernel; square images ask twice."""
    pairs, inputs = np.empty((2, len(outs), len(kernels)), dtype=np.int64)
    cuts = [cuts_of(axis.kernel, kernel, 1) for kernel in kernels]
    for i, out in enumerate(outs):
        o = cuts_of(axis.outputs, out, 1)
        for j, k in enumerate(cuts):
            # The tile with the most pairs and the one with the most inputs may differ: each bound is taken by itself.
            pairs[i, j] = axis.count_pairs(o, k).max()
            reach = axis.input_range(o[:-1, None], np.diff(o)[:, None], k[None, :-1], np.diff(k)[None, :])[1]
            inputs[i, j] = reach.max()
    return pairs, inputs


def _methods(problem: Contraction, target: PlanningTarget, planning: Planning) -> Iterator[Method]:
    """The vertices that can do the work but outer products, preferred first."""
    units, core = target.conv_units(problem.dtype, problem.partials)
    # Of equal cost the first method is taken, so the order is that of preference.
    for group in _out_groups(problem, units, planning) if units else ():
        if problem.is_pointwise:
            yield Method("amp_1x1", units, 1, target.wide_loads, core, out_group=group)
        if problem.rank:
            packed = 0 if problem.dtype.is_quarter else 16  # kernel rows share no load of 8-bit weights
            heights = [
                h for h in (1, 2, 4) if h == 1 or (h <= problem.axes[0].kernel and problem.in_channels * h <= packed)
            ]
            yield from (Method("amp_nx1", units, h, target.wide_loads, core, out_group=group) for h in heights)
    if problem.rank and slic_takes(problem.axes[-1], problem.dtype):
        yield Method("slic", stride=problem.axes[-1].out_step)
    if problem.diagonal and problem.rank and vmac_takes(problem.out_channels, problem.dtype, problem.partials):
        yield Method("vmac")
    # Guess: matrix products are left to the units where there are any. Published fully connected layers of one sample
    # and solves take the cycles and tiles of such plans; with these vertices they would take 10 to 40 % fewer cycles.
    if problem.dtype in (f16, f32) and (problem.rank or not units or planning.method == "hmac"):
        yield Method("hmac")


def _out_groups(problem: Contraction, units: int, planning: Planning) -> tuple[int, ...]:
    """Out-channels of a group that the matrix units may write: 16, those of one pass but 8 at least, or as many as a
    unit sums.

    Passes that are planned together share their groups, and out-channels of the forward pass are in-channels of the
    weight update: as many as a unit sums.
    Source: machine.md §5.4; of joint plans, PopLibs' ConvPlan.cpp (plan of the weight update), from memory.
    """
    summed = cost.weights_per_unit(problem.dtype)
    if problem.dtype.is_quarter:
        return (units,)  # the units hold 16 out-channels of 8-bit floats at a time
    return (
        (summed,)
        if planning.joint
        else tuple(dict.fromkeys((cost.OUT_GROUP, max(units, cost.LEAST_OUT_GROUP), summed)))
    )


def _products(
    problem: Contraction, methods: list[Method], slices: _Slices, parts: Int64, target: PlanningTarget
) -> tuple[Int64, dict[str, Int64]]:
    """Vertex of every candidate, by number, and its cycles, with those of rearranging its groups.

    Which vertex is fastest depends on the size of its slice.
    """
    tiles, none = parts.prod(axis=1), np.zeros(len(parts), dtype=np.int64)
    charges = [
        sum((rearranging_by_tiles(problem, side, tiles, target) for side in padded_sides(problem, m)), none)
        for m in methods
    ]
    compute = [m.cycles(slices.work, target.load_bytes) for m in methods]
    chosen = np.argmin([a + b for a, b in zip(compute, charges, strict=True)], axis=0)
    return chosen, {
        "partial products": _chosen(compute, chosen),
        "rearranging of padded sides": _chosen(charges, chosen),
    }


def _chosen(columns: Sequence[Int64], number: Int64) -> Int64:
    """Entry of the column with each candidate's number, int64[n]; as ``np.choose``, in a fifth of its time."""
    first, *others = columns
    for n, column in enumerate(others, 1):
        first = np.where(number == n, column, first)
    return first


def _early_terms(slices: _Slices, products: Mapping[str, Int64], target: PlanningTarget) -> dict[str, Int64]:
    """Expected cycles of every candidate for inputs and products."""
    return {
        "exchange of the input": _input_exchange(slices, target),
        "exchange of the weights": _exchange(slices.weight_bytes, slices.weight_sharers, target),
        **products,
    }


def _terms(
    problem: Contraction, slices: _Slices, early: Mapping[str, Int64], target: PlanningTarget
) -> list[tuple[str, Int64]]:
    """Expected cycles of every candidate, term by term."""
    summing = _summing(problem, slices, target)
    convert = (slices.depth == 1) & (problem.partials != problem.output)
    casting = cost.cast(slices.block, problem.partials, problem.output) * convert
    return [
        *early.items(),
        ("exchange of partials", summing.exchange),
        ("sum of partials", summing.compute),
        ("conversion", casting),
    ]


@dataclass(frozen=True)
class _Summing:
    """Cycles that summing partials is expected to take, for every candidate: int64[n] each."""

    exchange: Int64
    compute: Int64


def _summing(problem: Contraction, slices: _Slices, target: PlanningTarget) -> _Summing:
    """Stage by stage: the tiles that hold the partials of a group share its block.

    After a stage of ``step`` partials each, as many tiles more share what is left, so shares shrink as the number of
    partials does: a later stage costs little.
    """
    block, kind = slices.block, problem.partials
    depths, index = _levels(slices.depth)
    steps = np.ones((len(depths), _MOST_STAGES), dtype=np.int64)
    for row, depth in enumerate(depths):
        chosen = stages(int(depth))
        steps[row, : len(chosen)] = chosen
    exchange, compute = np.zeros((2, len(block)), dtype=np.int64)
    sharers = np.ones_like(block)
    for stage in range(_MOST_STAGES):
        step = steps[index, stage]
        # Every tile that held one of the summed partials takes a share of the sum.
        sharers = sharers * step
        share, active = cost.ceil_div(block, sharers), step > 1
        received = np.ceil(share * (step - 1) * kind.bytes / target.exchange_bytes_per_cycle).astype(np.int64)
        exchange += np.maximum(received, target.fragment_cycles * step) * active
        compute += cost.reduce_add(share, step, kind, problem.output) * active
    return _Summing(exchange, compute)


def _input_exchange(slices: _Slices, target: PlanningTarget) -> Int64:
    """Cycles to receive a slice of the input.

    Tiles that share it differ in their out-channels and are neighbours (see `Grid.tiles`), so an even number pairs up.
    A pair receives all of the slice at the rate of pairs: what one of the two holds, the other still wants.
    Source: machine.md §2.1 (rate of pairs of tiles).
    """
    alone = _exchange(slices.in_bytes, slices.in_sharers, target)
    paired = np.ceil(slices.in_bytes / target.pair_bytes_per_cycle).astype(np.int64)
    return np.where(slices.in_sharers % 2 == 0, paired, alone)


def _exchange(bytes_: Int64, sharers: Int64, target: PlanningTarget) -> Int64:
    """Cycles to receive a slice of which every sharer is taken to hold an equal part. Source: machine.md §5.10."""
    return np.ceil((bytes_ - bytes_ // sharers) / target.exchange_bytes_per_cycle).astype(np.int64)


def _copies(
    problem: Contraction, methods: list[Method], chosen: Int64, target: PlanningTarget, planning: Planning
) -> tuple[Int64, Int64]:
    """Bytes on a tile of copies of sides, all of them and those with further readers: int64[n] each.

    Copies are spread over all tiles. A side is written anew, too, where the vertices chosen want its channels padded.
    """
    each: dict[str, int] = {}
    for side, dims in (("input", problem.in_dims), ("weights", problem.weight_dims)):
        each[side] = -(-prod(problem.extents[d] for d in dims) * problem.dtype.bytes // target.tiles)
    sides = [[s for s in each if s in planning.copied or s in padded_sides(problem, m)] for m in methods]
    lasting = [[s for s in made if s in planning.lasting] for made in sides]
    every, last = (np.array([sum(each[s] for s in row) for row in rows], dtype=np.int64) for rows in (sides, lasting))
    return every[chosen], last[chosen]


def _temporary_bytes(problem: Contraction, slices: _Slices, copies: Int64, lasting: Int64) -> Int64:
    """Memory of the fullest tile for slices, partials and copies of operands. Source: machine.md §5.13."""
    block = slices.block
    partials = block * problem.partials.bytes
    share = cost.ceil_div(block, slices.depth)
    finished = share * problem.output.bytes
    # Two moments compete: slices, partials and copies while the vertices run, and partials with what arrives of others
    # while they are summed.
    reducing = partials + np.where(slices.depth > 1, share * slices.depth * problem.partials.bytes, 0) + finished
    written = partials + slices.buffer * problem.partials.bytes
    return np.asarray(np.maximum(slices.in_bytes + slices.weight_bytes + written + copies, reducing + lasting))


def _bound(problem: Contraction, least: int, proportion: float, target: PlanningTarget, *, strict: bool) -> int:
    """Memory that plans may use: the requested proportion, doubled until one fits unless ``strict``."""
    available = int(target.tile_bytes * proportion) or least
    # Doubled as PopLibs does, so that a proportion that is too small costs speed and not the whole plan.
    while available < min(least, target.tile_bytes) and not strict:
        available = min(2 * available, target.tile_bytes)
    if least > min(available, target.tile_bytes):
        raise OutOfMemoryError(
            f"no split of the contraction over {counted(target.tiles, 'tile')} fits: "
            f"the smallest needs {least:,} B on a tile, {target.name} has {target.tile_bytes:,} B",
            tiles=({"tile": 0, "needed_bytes": least, "available_bytes": target.tile_bytes},),
            because=f"it is {problem}",
            remedy="a smaller batch · f16 instead of f32 · partials in f16 · more tiles",
        )
    return available
