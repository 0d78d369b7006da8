"""Choose the schedule of a loop nest by a small model of its loads and arithmetic.

A contraction is fast when each loaded vector is used many times while it is in a register, when no register spills, and
when loops stream through memory. So the search has two steps. The first costs every register tile over one or two
parallel dims, under every dim that could lie in the vector lanes, by counting vector operations: cheap enough to try a
few thousand. The best :data:`FINALISTS` then have their memory traffic estimated for every order of their loops
(:mod:`abele.kernels.schedule.traffic`), which is too slow to do for all. The sum of both decides.

Schedules change which sums are made first, and so bits; a search by running candidates would let the machine's load
decide on results. The model depends on the nest, and on the CPU's vectors and caches, alone.

Dims on which guards depend get neither lanes nor tiles, since each of their loads would be masked. Tiles over three
dims are not tried: a CPU has too few accumulators for a third dim to add much reuse.

Example: a tile of 4 rows by 2 vectors has 8 accumulators. Per point of the reduction it loads 2 vectors and 4 scalars
for 8 multiply-adds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from heapq import nsmallest
from itertools import combinations, takewhile

import numpy as np

from abele.arrays import Float64, Int64
from abele.kernels.nest.ir import Apply, Expr
from abele.kernels.nest.loop_nest import ElementAccess, Fetch, LoopNest, Out, RowFetch, free_dims
from abele.kernels.nest.operation_costs import expressions_cost
from abele.kernels.schedule.pack_panels import Panel, find_panel, fits_panel, packable_fetches
from abele.kernels.schedule.schedule import NestSchedule
from abele.kernels.schedule.squares import dims_stored_across, square_cost
from abele.kernels.schedule.traffic import Traffic
from abele.kernels.target import FAR_BYTES, HostTarget
from abele.llvm.cache import kept_choice
from abele.llvm.host import LINE_BYTES

FACTORS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 24)
"""Points, or vectors, that a register tile may have along one dim: all small ones, few large ones, and no more than
there are accumulators."""
MIN_UNITS = 32
"""Units wanted of a nest, so that threads share it evenly."""
THREADS, EVENLY = (2, 4, 8, 16), 0.9
"""Numbers of threads that should share units evenly, and what is even: a mean load of so much of the largest."""
MIN_UNIT_POINTS = 1 << 15
"""Points of a unit that is still worth to be cut for that: a unit costs some ten nanoseconds, these 300 at least."""
FINALISTS = 12
"""Tiles of which the memory traffic is estimated, too."""
LINE_COST = 0.3
"""Cost of a cache line from the second level, in vector operations; prefetching hides most of it."""
BROADCAST_COST, EMBEDDED_COST, SPREAD_COST = 1.0, 0.5, 1.5
"""Costs, in vector loads, of one element for all lanes, of one that a multiply-add loads itself, and of each lane of a
strided load."""
FAR_SPREAD_COST = 8.0
"""Cost of such a lane where its neighbours lie :data:`FAR_BYTES` apart.

Each then has a page of its own, and often the same place in the caches as the others, so that lines are lost before
they are used up.
"""
CONFLICT_COST = 4.0
"""Cost of a line that is lost between two points of the reduction. More of them than the first-level cache has ways for
lie a power of two apart: it comes from the second level for every element, and nothing prefetches it.
"""
FAR_TILE_COST = 0.05
"""Further cost of a load whose neighbours in the tile lie :data:`FAR_BYTES` apart, in vector loads. Of tiles of equal
cost, the one of close points touches fewer pages, and other places of the first-level cache.
"""
OVERLAP_LOSS = 0.15
"""Share of arithmetic and loads that does not overlap; they run side by side."""
SPILL_COST = 4.0
"""Cost of an accumulator beyond the registers: it is stored and loaded at every point of the reduction."""
HIDING_TILE, WAIT_COST = 12, 0.25
"""Independent accumulators that hide the latency of a multiply-add, and the cost of each missing one."""
WORKING_REGISTERS = 2
"""Registers that values at hand take beside accumulators and held vectors; a multiply-add needs one, for its operand
that streams."""
FOLD_COST, TILE_COST = 5.0, 2.0
"""Cost, once per reduction, of combining the lanes of a vector, and of starting and ending a tile."""
MAX_SHARES = 8
"""Parts in which a reduction without parallel dims runs side by side; more hide no further latency."""
LONG_EXPRESSION = 24
"""Operations of a point from which two points at once fill the pipelines; of shorter ones four do."""

MIN_LEADING = 8
"""Least units for threads to share the dims around stores to rows that values name."""
MAX_ROW_UNITS = 64
"""Runs of rows that such stores are cut into where nothing else can be shared."""

_ROUNDING = 1 + 1e-9
"""Factor of a bound, so that costs equal but for rounding keep to it."""
_CODE = ("kernels/schedule", "kernels/nest", "expr", "expr/operations", "llvm")
"""Folders of the code that a schedule depends on."""

Tile = tuple[tuple[str, int], ...]


def choose_schedule(nest: LoopNest, target: HostTarget) -> NestSchedule:
    """The cheapest schedule of ``nest`` that the model finds."""
    return _cheapest(nest, target)[0]


def schedule_cost(nest: LoopNest, target: HostTarget) -> float:
    """Expected cost of the cheapest schedule of ``nest``, in vector operations."""
    return _cheapest(nest, target)[1]


@lru_cache(maxsize=4096)
def _cheapest(nest: LoopNest, target: HostTarget) -> tuple[NestSchedule, float]:
    """The cheapest schedule of ``nest``, and its cost in vector operations."""
    if nest.stores_in_rows:
        return _in_row_order(nest, target), float(math.prod(nest.extents.values()))
    if not nest.accumulates:
        return _searched(nest, target)
    # Costs of packed products were measured on this machine, and change nothing here.
    content = f"{replace(target, products=None)!r} {nest!r}"
    return kept_choice(content, tuple[NestSchedule, float], lambda: _searched(nest, target), *_CODE)


def _searched(nest: LoopNest, target: HostTarget) -> tuple[NestSchedule, float]:
    """The best of all register tiles and loop orders (see the top of the module), and its cost."""
    lanes = [nest.lane] if nest.lane else _lane_candidates(nest)
    facts = _NestFacts(nest)
    drafts = [draft for lane in lanes for draft in _drafts(facts, lane, target)]
    points, traffic = math.prod(nest.extents.values()) * _share_inside(nest), Traffic(nest, target)
    reduced = tuple(sorted((d for d, _ in nest.reduced), key=lambda d: _stride_key(nest, d), reverse=True))
    free = [d for d, _ in nest.parallel if d not in nest.unit]
    # The number of the finalist breaks ties, so that the choice never depends on how schedules compare.
    found: list[tuple[float, int, NestSchedule]] = []
    for cost, lane, width, tile in nsmallest(FINALISTS, drafts, key=lambda d: d[0]):
        # Traffic only adds to the cost, and finalists come in order of it; nor may it add more than the best has left.
        least = min(found)[0] if found else math.inf
        if cost * points >= least:
            break
        limit = _ROUNDING * (least - cost * points) / LINE_COST
        schedule = NestSchedule((*nest.unit, *free), len(nest.unit), reduced, lane, width, tile)
        # Units that share a panel must come after each other, so the panel's dims lead.
        panel = find_panel(nest, schedule, target)
        order, lines = traffic.best_order(schedule, free, panel.dims if panel is not None else (), limit)
        if lines < limit:
            schedule = replace(schedule, order=(*nest.unit, *order))
            found.append((cost * points + LINE_COST * lines, len(found), schedule))
    cost, _, best = min(found)
    return best if nest.unit else _with_units(nest, best), float(cost)


@lru_cache(maxsize=4096)
def choose_packed_schedule(nest: LoopNest, target: HostTarget) -> tuple[NestSchedule, Panel | None]:
    """Schedule of ``nest``, and the operand that is copied panel by panel; its dims are then the first units."""
    schedule = choose_schedule(nest, target)
    panel = find_panel(nest, schedule, target)
    if panel is None:
        return schedule, None
    others = tuple(d for d in schedule.order if d not in panel.dims)
    schedule = _with_units(nest, replace(schedule, order=panel.dims + others))
    return replace(schedule, num_unit_dims=max(schedule.num_unit_dims, len(panel.dims))), panel


def _in_row_order(nest: LoopNest, target: HostTarget) -> NestSchedule:
    """Schedule of a nest with stores to rows that values name: loops in their order, but for separate ones.

    Points of most dims may store to any row, so that they run one after the other. What can be shared are dims whose
    points never meet: those around the others, such as groups of tables, or the columns of a row. Columns are swept:
    whoever has some of them passes over all rows once. A table without either is cut into runs of rows, and whoever has
    some of these passes over all points, but loads and stores nothing for other rows.
    """
    names = [d for d, _ in nest.parallel]
    separate = [d for d in names if _is_separate(nest, d)]
    lane = next((d for d in reversed(separate) if all(abs(o.access.stride(d)) == 1 for o in nest.outs)), "")
    leading = [d for d in takewhile(separate.__contains__, names) if d != lane]
    columns = [d for d in separate if d not in leading]
    rows = [d for d in names if d not in separate]
    width = min(target.lanes, _power_of_two(nest.extents[lane])) if lane else 1
    vectors = -(-nest.extents[lane] // width) if lane else 1
    reduced = tuple(sorted((d for d, _ in nest.reduced), key=lambda d: _stride_key(nest, d), reverse=True))
    tile = ((lane, max(1, min(4, vectors // MIN_LEADING))),) if lane else ()
    made = NestSchedule((*leading, *rows, *columns), len(leading), reduced, lane, width, tile)
    if made.num_units(nest.extents) >= MIN_LEADING:
        return made
    swept = replace(made, order=(*columns, *leading, *rows), num_unit_dims=len(columns), sweeps=True)
    if swept.num_units(nest.extents) > 1:
        return _with_whole_lines(nest, swept, columns)
    if len(nest.outs) > 1:
        return replace(made, num_unit_dims=0)
    place = nest.outs[0].place
    assert place is not None
    return replace(made, num_unit_dims=0, row_units=min(place.extent, MAX_ROW_UNITS))


def _with_whole_lines(nest: LoopNest, swept: NestSchedule, columns: Sequence[str]) -> NestSchedule:
    """``swept`` with as many columns at a time as share the lines that it reads; those that stay are shared by threads.

    Tables whose rows are cut into pieces of two columns have 64 pieces of 128 columns: passing over all rows for each
    of them would read a line of the rows eight times, one long after the other.
    """
    steps = {
        d: min((abs(f.access.stride(d)) * f.access.type.bytes for f in nest.fetches if f.access.stride(d)), default=0)
        for d in columns
        if d != swept.lane
    }
    dim = min((d for d, step in steps.items() if 0 < step < LINE_BYTES), key=lambda d: steps[d], default="")
    points = LINE_BYTES // steps[dim] if dim else 1
    wide = replace(swept, tile=(*swept.tile, (dim, points))) if points > 1 else swept
    return wide if wide.num_units(nest.extents) >= MIN_LEADING else swept


def _share_inside(nest: LoopNest) -> float:
    """Of the points of a contraction those inside its guards: no loop runs over the others."""
    share = 1.0
    for guard in (
        sorted(set.intersection(*(set(a.guards) for a in nest.accumulates)), key=str) if nest.accumulates else ()
    ):
        positions = np.array([guard.position.const])
        for dim, factor in guard.position.terms:
            positions = np.add.outer(positions, factor * np.arange(nest.extents[dim])).ravel()
        share *= float(np.mean((positions >= 0) & (positions < guard.extent)))
    return share


def _lane_candidates(nest: LoopNest) -> list[str]:
    found = [d for d, n in nest.parallel + nest.reduced if n > 1 and d not in nest.unit and _can_be_lane(nest, d)]
    products = any(isinstance(a.value, Apply) and a.value.op == "mul" for a in nest.accumulates)
    if not products and not any(_lies_along(nest, d) for d in found):
        # Pools with padding over fields in rows: masked loads beat scalar code, and lanes that are far apart. Products
        # use their operands more often, and have padded copies of them made.
        found += [
            d for d, n in nest.parallel if n > 1 and d not in nest.unit and d not in found and _lies_along(nest, d)
        ]
    return [*found, ""]


def _lies_along(nest: LoopNest, dim: str) -> bool:
    """True if results lie along ``dim`` in memory, and operands as well where they have it."""
    apart = (abs(f.access.stride(dim)) > 1 for f in nest.fetches)
    return all(out.access.stride(dim) == 1 for out in nest.outs) and not any(apart)


def _can_be_lane(nest: LoopNest, dim: str) -> bool:
    # Lanes of a reduced dim are folded at the end, so guards over them would mask every multiply-add.
    if dim in dict(nest.reduced):
        return not any(dim in g.position.names for g in nest.guards())
    # Guards that differ between lanes would make every load a masked one.
    if any(dim in g.position.names for a in nest.accumulates for g in a.guards):
        return False
    return all(out.access.stride(dim) for out in nest.outs)


def _drafts(facts: _NestFacts, lane: str, target: HostTarget) -> list[tuple[float, str, int, Tile]]:
    """The best tiles with ``lane`` in the lanes: cost per point, lane dim, lanes, tile."""
    nest, extents = facts.nest, facts.extents
    width = min(target.lanes, _power_of_two(extents[lane])) if lane else 1
    if nest.lane:
        width = extents[lane]
    parts = list(_tiles(nest, lane, width, target) if nest.accumulates else _small_tiles(nest, lane, width))
    dims = tuple(dict.fromkeys(d for part in parts for d in part.dims))
    costs = _CostModel(facts, lane, width, target).costs(_side_by_side(parts, dims))
    # Of equal tiles the first is taken.
    best = np.argsort(costs, kind="stable")[:FINALISTS]
    starts = np.cumsum([0, *(len(part.sizes) for part in parts)])
    found = []
    for place, part in zip(best.tolist(), np.searchsorted(starts, best, side="right") - 1, strict=True):
        sizes = parts[part].sizes[place - starts[part]].tolist()
        found.append((float(costs[place]), lane, width, tuple(zip(parts[part].dims, sizes, strict=True))))
    return found


class _Tiles:
    """Register tiles over some dims; ``sizes``, int64[k, dims], has the points, or vectors, of each along each dim."""

    def __init__(self, dims: tuple[str, ...], sizes: Int64) -> None:
        self.dims, self.sizes = dims, sizes
        self._points: dict[tuple[int, ...], Int64] = {}

    def points(self, dims: Collection[str]) -> Int64:
        """Points of each tile along some dims, int64[k]; not to be written to."""
        columns = tuple([n for n, d in enumerate(self.dims) if d in dims])
        found = self._points.get(columns)
        if found is None:
            # Loads of a nest depend on few sets of dims, so each product is asked for again and again.
            found = self._points[columns] = self.sizes[:, columns].prod(axis=1)
        return found


_ONE_POINT = _Tiles((), np.empty((1, 0), dtype=np.int64))


def _side_by_side(parts: Sequence[_Tiles], dims: tuple[str, ...]) -> _Tiles:
    """All tiles of ``parts``, in order, over all dims."""
    sizes = np.ones((sum(len(part.sizes) for part in parts), len(dims)), dtype=np.int64)
    start = 0
    for part in parts:
        sizes[start : start + len(part.sizes), [dims.index(d) for d in part.dims]] = part.sizes
        start += len(part.sizes)
    return _Tiles(dims, sizes)


def _tiles(nest: LoopNest, lane: str, width: int, target: HostTarget) -> Iterator[_Tiles]:
    """Register tiles over at most two parallel dims; or shares of a reduced dim where there are no parallel ones."""
    guarded = {d for g in nest.guards() for d in g.position.names}
    # Of equal tiles the first is taken: the one whose points lie closest.
    sizes = {
        d: -(-n // width) if d == lane else n
        for d, n in sorted(nest.parallel, key=lambda p: _stride_key(nest, p[0]))
        if d not in guarded and d not in nest.unit and not (d == lane and nest.lane)
    }
    # Accumulators in vectors of the chosen width.
    limit = max(1, target.accumulators * target.lanes // max(width, target.lanes))
    yield _ONE_POINT
    for first, second in combinations(sizes, 2):
        yield _Tiles((first, second), _pairs(sizes[first], sizes[second], limit))
    for only in sizes:
        yield _Tiles((only,), _singles(sizes[only], limit))
    if nest.reduced:
        inner = min((d for d, _ in nest.reduced), key=lambda d: _stride_key(nest, d))
        size = -(-nest.extents[inner] // width) if inner == lane else nest.extents[inner]
        if inner not in guarded:
            yield _Tiles((inner,), _singles(size, MAX_SHARES))


@lru_cache(maxsize=1024)
def _pairs(first: int, second: int, limit: int) -> Int64:
    """Sizes of tiles over two dims of given extents, int64[k, 2]; without those over one of them alone."""
    pairs = [(a, b) for a in _factors(first, limit) for b in _factors(second, limit // a) if min(a, b) > 1]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


@lru_cache(maxsize=1024)
def _singles(extent: int, limit: int) -> Int64:
    """Sizes of tiles over one dim, int64[k, 1]."""
    return np.array(_factors(extent, limit), dtype=np.int64).reshape(-1, 1)


def _factors(extent: int, limit: int) -> list[int]:
    return [f for f in FACTORS if f <= min(extent, limit)]


def _small_tiles(nest: LoopNest, lane: str, width: int) -> list[_Tiles]:
    """A few points of the fastest dim at once, so that loops cost little and long operations overlap."""
    if any(out.combine != "set" or out.guards for out in nest.outs):
        return [_ONE_POINT]
    dims = [(d, -(-n // width) if d == lane else n) for d, n in nest.parallel if d not in nest.unit]
    dims = [(d, n) for d, n in dims if n > 1]
    if not dims:
        return [_ONE_POINT]
    square = _square(nest, lane, width)
    if square:
        return [_Tiles((square,), np.array([[width]], dtype=np.int64))]
    dim, size = min(dims, key=lambda p: (p[0] != lane, _stride_key(nest, p[0])))
    work = sum(isinstance(e, Apply) for e in set(nest.expressions()))
    limit = 4 if work < LONG_EXPRESSION else 2
    most = max((f for f in (1, 2, 3, 4) if size % f == 0 and f <= limit), default=1)
    return [_Tiles((dim,), np.array([[most]], dtype=np.int64))]


def _square(nest: LoopNest, lane: str, width: int) -> str:
    """The dim that makes a square with the lanes, to be loaded along its rows and transposed; empty if there is none.

    That is one along which an operand lies in memory that the lanes run across.
    """
    if not lane or width < 4 or nest.accumulates or nest.extents[lane] < width:
        return ""
    guarded = {d for f in nest.fetches for b in f.bounds for d in b.position.names}
    across = [f.access for f in nest.fetches if not f.bounds and abs(f.access.stride(lane)) > 1]
    # Stores across the lanes would cost as much again.
    if not across or any(o.access.stride(lane) != 1 for o in nest.outs):
        return ""
    free = [d for d, n in nest.parallel if d != lane and d not in nest.unit and d not in guarded and n >= width]
    return next((d for d in free if any(a.stride(d) == 1 for a in across)), "")


class _NestFacts:
    """Parts of a nest that the cost model looks at, the same under every lane dim."""

    def __init__(self, nest: LoopNest) -> None:
        self.nest, self.extents = nest, nest.extents
        inner = [a.value for a in nest.accumulates]
        self.work = max(1, sum(isinstance(e, Apply) for v in inner for e in v.walk()))
        # In an order that is always the same: costs are sums of fractions.
        self.fetches = sorted({e for v in inner for e in v.walk() if isinstance(e, Fetch)}, key=str)
        self.row_fetches = self._rows_of(inner)
        self.free_dims = {f: free_dims(f) for f in (*self.fetches, *self.row_fetches)}
        values = (*nest.locals, *(o.value for o in nest.outs))
        outside = {e for value in values for e in value.walk()}
        self.outer_accesses = [e.access for e in outside if isinstance(e, Fetch)] + [o.access for o in nest.outs]
        self.outer_rows = self._rows_of(values)
        # Each is worked out once per result: for a vector of them, or for one where lanes were folded.
        self.finishing = expressions_cost(values).slots
        self.reduced = math.prod(n for _, n in nest.reduced)
        self.packable = frozenset(packable_fetches(nest))

    @staticmethod
    def _rows_of(values: Iterable[Expr]) -> list[RowFetch]:
        """The loads in ``values`` of rows that values name."""
        return sorted({e for value in values for e in value.walk() if isinstance(e, RowFetch)}, key=str)


class _CostModel:
    """Cost of one point of a nest, in vector operations, under a lane dim.

    Per point of the reduction a tile loads each operand once for the dims that move it, and does ``size`` operations.
    Operands that fewer points than the whole tile need are held in registers meanwhile.
    """

    def __init__(self, facts: _NestFacts, lane: str, width: int, target: HostTarget) -> None:
        nest = facts.nest
        self.nest, self.lane, self.width = nest, lane, width
        self.vector = max(1, width // target.lanes)
        self.broadcast = EMBEDDED_COST if target.embeds_broadcasts else BROADCAST_COST
        self.square = _square(nest, lane, width)
        self.parallel = dict(nest.parallel)
        self.registers = target.registers
        self.extents, self.work, self.reduced = facts.extents, facts.work, facts.reduced
        self.finishing = facts.finishing
        self.working = min(self.work, WORKING_REGISTERS)
        # What is copied into a panel is read in order.
        self.packed = {f for f in facts.packable if fits_panel(nest, f, lane, width)}
        self.loads = [(facts.free_dims[f], self._inner_cost(f), self._far(f)) for f in facts.fetches]
        self.loads += [(facts.free_dims[f], self._row_cost(f), frozenset()) for f in facts.row_fetches]
        self.packing = sum(self._packing_cost(f, facts.free_dims[f]) for f in facts.fetches)
        self.rows = [rows for f in facts.fetches if (rows := self._rows(f, target))]
        self.crowded = [steps for f in facts.fetches if (steps := self._crowded(f, target))]
        self.outer = sum(map(self._load_cost, facts.outer_accesses)) + sum(map(self._row_cost, facts.outer_rows))
        self.folds = lane in dict(nest.reduced)
        self.squares = dims_stored_across(nest, lane, width)
        self.saved = sum(self._load_cost(out.access) - square_cost(width) for out in nest.outs) if self.squares else 0.0

    def _row_cost(self, fetch: RowFetch) -> float:
        """Cost of a load of a row that a value names: lanes that have rows of their own are loaded one by one."""
        if self.lane and self.lane in free_dims(fetch.place.row):
            return SPREAD_COST * self.width
        return self._load_cost(fetch.access)

    def _inner_cost(self, fetch: Fetch) -> float:
        """Cost of a load in the reduction; as if in order where a panel will be copied."""
        return 1.0 if fetch in self.packed else self._load_cost(fetch.access)

    def _far(self, fetch: Fetch) -> frozenset[str]:
        """The dims along which neighbours of a load lie far apart; none where a panel will be copied."""
        if fetch in self.packed:
            return frozenset()
        access = fetch.access
        return frozenset(d for d in access.address.names if abs(access.stride(d)) * access.type.bytes >= FAR_BYTES)

    def _packing_cost(self, fetch: Fetch, dims: frozenset[str]) -> float:
        """Cost of copying a load into a panel, for every vector that it serves; 0 where that will not happen."""
        if fetch not in self.packed:
            return 0.0
        # Points of the reduction come after each other, so the line of a lane that is far serves the next ones, too.
        cost = 1.0 if fetch.access.stride(self.lane) == 1 else SPREAD_COST * self.width
        return cost / math.prod(n for d, n in self.nest.parallel if d not in dims)

    def _load_cost(self, access: ElementAccess) -> float:
        stride = access.stride(self.lane) if self.lane else 0
        if self.square and abs(stride) > 1 and access.stride(self.square) == 1:
            return 1.0 + math.log2(self.width)
        if stride == 1 or not self.lane:
            return 1.0
        far = abs(stride) * access.type.bytes >= FAR_BYTES
        return (FAR_SPREAD_COST if far else SPREAD_COST) * self.width if stride else self.broadcast

    def _rows(self, fetch: Fetch, target: HostTarget) -> dict[str, int]:
        """Lines that a tile reads per dim and that stay in the first-level cache for several points of the reduction.

        None where the next point is beyond the next line, which is fetched ahead of its use.
        """
        access = fetch.access
        along = [abs(access.stride(d)) * (self.width if d == self.lane else 1) for d, _ in self.nest.reduced]
        near = min((step for step in along if step), default=0) * access.type.bytes
        if not 0 < near <= LINE_BYTES or fetch in self.packed:
            return {}
        steps = {d: abs(access.stride(d)) * access.type.bytes for d in self.parallel if d != self.lane}
        # Lines apart by a step fall on so many different places of a way; one way is left to what streams by.
        return {
            d: target.way_bytes // max(LINE_BYTES, math.gcd(step, target.way_bytes)) * (target.near_ways - 1)
            for d, step in steps.items()
            if step >= LINE_BYTES
        }

    def _crowded(self, fetch: Fetch, target: HostTarget) -> dict[str, int]:
        """Bytes that a load steps along each parallel dim, if no line of one tile is still there for the next.

        That is so where the points of the reduction lie more than a line apart, and are more than the first-level cache
        has room for at the places that they fall on: then every tile has all its lines from the second level. Features
        of 512 tokens in f32 are 2 KiB apart, and 64 of them share 16 lines' room. Measured for scores of such heads: a
        tile of 5.5 lines a point reached 37 GFLOP/s, one of 3 lines 64; for gradients of weights whose rows are heads,
        570 tokens of 128 bytes apart, with AVX2: a tile of five heads 47, one of four neighbours 83. What is copied
        into a panel loses nothing.
        """
        access = fetch.access
        steps = {d: abs(access.stride(d)) * access.type.bytes for d in self.extents if access.stride(d)}
        reduced = {d: steps[d] for d, _ in self.nest.reduced if d in steps}
        if fetch in self.packed or not reduced or min(reduced.values()) <= LINE_BYTES:
            return {}
        points = math.prod(self.extents[d] for d in reduced)
        places = target.way_bytes // max(LINE_BYTES, math.gcd(*reduced.values(), target.way_bytes))
        if points <= places * (target.near_ways - 1):
            return {}
        return {d: step for d, step in steps.items() if d in self.parallel}

    def _lost(self, tiles: _Tiles) -> Float64:
        """Lines that each tile loses between two points of the reduction, float64[k]."""
        total = np.zeros(len(tiles.sizes))
        for steps in self.crowded:
            lines = np.ones(len(tiles.sizes))
            for dim, step in steps.items():
                along = tiles.points((dim,)) * (self.width if dim == self.lane else 1)
                lines *= np.maximum(1.0, along * min(step, LINE_BYTES) / LINE_BYTES)
            total += lines
        for kept in self.rows:
            crowded = np.any([tiles.points((d,)) > most for d, most in kept.items()], axis=0)
            total += np.where(crowded, tiles.points(tuple(kept)), 0)
        return total

    def costs(self, tiles: _Tiles) -> Float64:
        """Cost per point with each of some tiles, float64[k].

        The last tile along a dim has code of its own for the points that are left, fewer than those of the others: 16
        rows in tiles of 6 are two of these and one of 4. Each size counts by its share of the points.
        """
        whole, sizes, shares = np.arange(len(tiles.sizes)), tiles.sizes, np.ones(len(tiles.sizes))
        for column, dim in enumerate(tiles.dims):
            extent = self._extent(dim)
            rest = extent % sizes[:, column]
            cut = np.flatnonzero(rest)
            ends = sizes[cut].copy()
            ends[:, column] = rest[cut]
            sizes = np.concatenate([sizes, ends])
            whole = np.concatenate([whole, whole[cut]])
            shares = np.concatenate([shares * (extent - rest) / extent, shares[cut] * rest[cut] / extent])
        costs = self._whole_costs(_Tiles(tiles.dims, sizes)) * shares
        total = np.zeros(len(tiles.sizes))
        np.add.at(total, whole, costs)
        return total * self._waste()

    def _extent(self, dim: str) -> int:
        """Points along ``dim``, or vectors."""
        return -(-self.extents[dim] // self.width) if dim == self.lane else self.extents[dim]

    def _whole_costs(self, tiles: _Tiles) -> Float64:
        """Cost per point of some tiles, with all points of each, float64[k]."""
        if not self.nest.accumulates:
            return np.full(len(tiles.sizes), (self.outer + max(self.work, self.finishing)) / self.width)
        size = tiles.sizes.prod(axis=1)
        counts = [tiles.points(dims) for dims, _, _ in self.loads]
        costs = [cost + FAR_TILE_COST * (tiles.points(far) > 1) for _, cost, far in self.loads]
        work = (size * self.work).astype(np.float64)
        loads = sum((cost * count for cost, count in zip(costs, counts, strict=True)), np.zeros(len(size)))
        # The operand with most vectors streams through (see the code of nests); those of the others stay in registers,
        # or are loaded for each of their uses where there is no room.
        held = np.sort([np.zeros_like(size), *counts], axis=0)[-2] if counts else 0 * size
        free = np.maximum(0, self.registers // self.vector - size - self.working)
        loads += np.maximum(0, held - free) * (size / np.maximum(1, held) - 1)
        spilled = np.maximum(0, (size + self.working) * self.vector - self.registers)
        waiting = np.maximum(0, HIDING_TILE - size) * WAIT_COST
        # Loads and arithmetic have ports of their own: the longer of the two counts, and a share of both that does not
        # overlap.
        together = np.maximum(work, loads) + OVERLAP_LOSS * (work + loads) + self.packing * size
        lost = CONFLICT_COST * self._lost(tiles)
        step = (together + SPILL_COST * spilled + waiting + lost) / (size * self.width)
        # What happens once per reduction is shared by all its points.
        stored = tiles.points(self.parallel)
        squares = np.any([tiles.points((d,)) == self.width for d in self.squares], axis=0) if self.squares else 0
        once = (
            (self.outer - self.saved * squares) / self.width + (FOLD_COST if self.folds else 0.0) + TILE_COST / stored
        )
        # Results that were folded out of lanes are finished one by one.
        once = (once + self.finishing / (1 if self.folds else self.width)) / self.reduced
        return np.asarray(step + once)

    def _waste(self) -> float:
        """Lanes of whole vectors for every point along the lanes."""
        return self._extent(self.lane) * self.width / self.extents[self.lane] if self.lane else 1.0


def _with_units(nest: LoopNest, schedule: NestSchedule) -> NestSchedule:
    """``schedule`` with the outermost loops as units, as many as give threads enough to share."""
    order = sorted(schedule.order, key=lambda d: not _is_separate(nest, d))
    units, count, points = 1, 0, math.prod(nest.extents.values())
    for dim in order:
        more = units * -(-nest.extents[dim] // schedule.step(dim))
        enough = units >= MIN_UNITS and (_is_even(units) or points < MIN_UNIT_POINTS * more)
        if enough or not _is_separate(nest, dim):
            break
        units = more
        count += 1
    return replace(schedule, order=tuple(order), num_unit_dims=count)


def _is_even(units: int) -> bool:
    """True if any of several numbers of threads share so many units evenly."""
    return all(units >= EVENLY * threads * -(-units // threads) for threads in THREADS)


def _is_separate(nest: LoopNest, dim: str) -> bool:
    """True if points of ``dim`` never store to the same element."""
    for out in nest.outs:
        if out.combine == "set" and out.place is None:
            continue
        stride = abs(out.access.stride(dim))
        others = _reaches(nest, out, dim)
        # Steps of `dim` never meet if all smaller strides together stay below one step, and larger ones step over its
        # whole range.
        below = sum(s * (n - 1) for s, n in others if s <= stride)
        above = [s for s, _ in others if s > stride]
        if stride <= below or any(s < stride * nest.extents[dim] for s in above):
            return False
    return True


def _reaches(nest: LoopNest, out: Out, dim: str) -> list[tuple[int, int]]:
    """(stride, extent) of every dim but ``dim`` in a store; of dims that a guard keeps inside, together."""
    left = {d: n for d, n in nest.parallel if d != dim}
    reaches = []
    for guard in out.guards:
        terms = dict(guard.position.terms)
        steps = {divmod(out.access.stride(d), factor) for d, factor in terms.items()}
        step, rest = steps.pop() if len(steps) == 1 else (0, 1)
        if terms.keys() <= left.keys() and not rest:
            reaches.append((abs(step), guard.extent))
            left = {d: n for d, n in left.items() if d not in terms}
    rows = () if out.place is None else out.place.factors
    reaches += [(abs(stride), extent) for extent, stride in rows if extent > 1]
    return reaches + [(abs(out.access.stride(d)), n) for d, n in left.items()]


def _stride_key(nest: LoopNest, dim: str) -> int:
    return sum(abs(f.access.stride(dim)) for f in nest.fetches)


def _power_of_two(extent: int) -> int:
    return 1 << (extent - 1).bit_length()
