"""Programs side by side: several that do not touch each other's data share their supersteps.

Every superstep and every copy pays for a barrier, an exchange and a launch, however little it does. Programs that have
nothing to do with each other may pay for them together: a step of each runs at once. They run best where each keeps to
tiles of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain, permutations
from typing import NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.codelet.compiled import content_key
from abele.errors import ControlProgramError
from abele.graph import ComputeSet, Copy, Execute, Graph, LibraryCall, Program, Steps, Tensor, WriteUndef, concat, walk
from abele.graph.interval_set import IntervalSet
from abele.graph.intervals import distinct
from abele.poplibs.popops.reductions.host_kernel import side_by_side

# Elements that programs read and write: whether several of them can run side by side.


def check_independent(programs: Sequence[Sequence[Program]]) -> None:
    """Raise if one of several programs, given as lists of steps, writes data of another.

    Raises:
        ControlProgramError: One does.
    """
    written, read = (
        [IntervalSet.union(IntervalSet.of(*i) for i in _intervals(steps, written=w)) for steps in programs]
        for w in (True, False)
    )
    for i, j in permutations(range(len(programs)), 2):
        for other in (written[j], read[j]):
            if not written[i].meets(other):
                continue
            common = int((written[i] & other).begin[0])
            raise ControlProgramError(
                f"program {i} writes what program {j} reads or writes, so they cannot run side by side",
                at=programs[i][0].debug.location or None,
                because=f"both touch the element at global address {common:,}",
                remedy="run them one after the other",
            )


def _intervals(steps: Iterable[Program], *, written: bool) -> Iterator[tuple[Int64, Int64]]:
    """Begins and lengths of the intervals that steps write, or read."""
    for step in steps:
        match step:
            case Execute():
                yield from _of_vertices(step, written=written)
            case Copy():
                for view in step.writes() if written else step.reads():
                    yield view.intervals()
            case LibraryCall():
                for view in step.outputs if written else step.inputs:
                    yield view.intervals()
                yield from _intervals(step.body, written=written)
            case _:
                yield from _intervals(step.children(), written=written)


def _of_vertices(step: Execute, *, written: bool) -> Iterator[tuple[Int64, Int64]]:
    wanted = ("out", "inout") if written else ("in", "inout")
    for group in step.compute_set.groups:
        for declared in group.codelet.fields:
            if declared.direction in wanted:
                edge = group.edges[declared.name]
                regions = edge.regions.take(distinct(edge.index))
                yield regions.begin, regions.length


Bundle = list[Program]
"""Steps of one kind, of several programs, that run at once."""
_SAME = 1000
"""Weight of equal work of two steps, in saved steps."""


def zip_programs(graph: Graph, programs: Sequence[Program], name: str = "side_by_side") -> Steps:
    """One program of several, their steps side by side in as few supersteps as possible.

    The order of steps within each program stays. Steps that do the same thing run together where that can be (compute
    sets of one stage or whose vertices do the same; calls of one function, above all with such compute sets), then as
    many others as possible: compute sets become one, copies one exchange, library calls one call, whose body is zipped
    in the same way and whose host kernel does what theirs do (without one where any of them has none). The programs are
    used up: run the result, not them.

    Args:
        graph: The graph.
        programs: Sequences of supersteps, copies on the device and library calls.
        name: Name of the library calls that are made.

    Raises:
        ControlProgramError: A step of another kind, or a program that writes what another reads or writes.
    """
    lanes = [list(plain_steps(program)) for program in programs]
    check_independent(lanes)
    return _zipped(graph.top_level, lanes, name)


def zip_on_machine(graph: Graph, programs: Sequence[Program], name: str = "side_by_side") -> Steps:
    """One program of several as :func:`zip_programs` makes it, in place of which hosts run the others as they are.

    A host has no barriers to save, and kernels of its own for each of the calls. The programs are not used up, and it
    is the caller who knows that none writes what another reads or writes.

    Raises:
        ControlProgramError: A step of a kind that does not run side by side with others.
    """
    merged = _zipped(graph.top_level, [list(plain_steps(program)) for program in programs], name, keep=True)
    merged.host_body = Steps(*programs, name=name)
    return merged


def _zipped(graph: Graph, lanes: Sequence[Sequence[Program]], name: str, *, keep: bool = False) -> Steps:
    bundles: list[Bundle] = []
    for lane in lanes:
        bundles = _aligned(bundles, lane)
    merged = Steps()
    for bundle in bundles:
        for step in _merged(graph, bundle, name, keep=keep):
            merged.add(step)
    return merged


def plain_steps(program: Program) -> Iterator[Program]:
    """The steps of a program in order.

    Raises:
        ControlProgramError: A step that does not run side by side with others: control, or a stream copy.
    """
    match program:
        case Steps():
            yield from chain.from_iterable(map(plain_steps, program))
        case Execute() | LibraryCall() | Copy(source=Tensor(), destination=Tensor()):
            yield program
        case WriteUndef():
            return
        case _:
            raise ControlProgramError(
                f"{program!r} cannot run side by side with other programs",
                at=program.debug.location,
                because="supersteps, copies on the device and library calls can",
            )


class _Purpose(NamedTuple):
    """Purpose of a step, as far as it decides with which steps it runs.

    Attributes:
        kind: Kind of step; others never run together.
        function: The library function of a call.
        work: Work of each compute set.
    """

    kind: type[Program]
    function: str
    work: tuple[Hashable, ...]

    @staticmethod
    def of(step: Program) -> _Purpose:
        """That of a step."""
        work = tuple(_work(s.compute_set) for s in walk(step) if isinstance(s, Execute))
        return _Purpose(type(step), step.name if isinstance(step, LibraryCall) else "", work)

    def gain(self, other: _Purpose) -> int:
        """Preference for running two steps together: equal purpose outweighs any number of steps saved."""
        if self.kind is not other.kind:
            return 0
        return 1 + _SAME * ((self.function == other.function) + (self.work == other.work))


def _work(compute_set: ComputeSet) -> Hashable:
    """Work of a compute set: its stage where it has one, else the codelets of its vertices."""
    return compute_set.stage or frozenset(content_key(group.codelet) for group in compute_set.groups)


def _aligned(bundles: Sequence[Bundle], lane: Sequence[Program]) -> list[Bundle]:
    """The bundles with one more program's steps put into them or between them, in order, for the most gain."""
    rows, columns = len(bundles), len(lane)
    ours, theirs = [_Purpose.of(bundle[0]) for bundle in bundles], [_Purpose.of(step) for step in lane]
    # A longest common subsequence, weighted by what running together is worth: best[i, j] is the most that bundles from
    # i on and steps from j on can gain. Both orders are kept, since a step is put after everything before it.
    best = np.zeros((rows + 1, columns + 1), dtype=np.int64)
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            gain = ours[i].gain(theirs[j])
            together = gain + best[i + 1, j + 1] if gain else 0
            best[i, j] = max(together, best[i + 1, j], best[i, j + 1])
    result: list[Bundle] = []
    i = j = 0
    # The table is walked from its beginning, so that of equal choices the earliest pairing is taken.
    while i < rows and j < columns:
        gain = ours[i].gain(theirs[j])
        if gain and best[i, j] == gain + best[i + 1, j + 1]:
            result.append([*bundles[i], lane[j]])
            i, j = i + 1, j + 1
        elif best[i, j] == best[i + 1, j]:
            result.append(bundles[i])
            i += 1
        else:
            result.append([lane[j]])
            j += 1
    return [*result, *bundles[i:], *([step] for step in lane[j:])]


def _merged(graph: Graph, bundle: Bundle, name: str, *, keep: bool) -> Iterator[Program]:
    """Step of a bundle, or copies one after the other where element types differ."""
    if len(bundle) == 1:
        yield bundle[0]
    elif isinstance(bundle[0], Execute):
        yield _one_superstep(graph, [s for s in bundle if isinstance(s, Execute)], keep=keep)
    elif isinstance(bundle[0], Copy):
        yield from _copies([s for s in bundle if isinstance(s, Copy)])
    else:
        yield _one_call(graph, [s for s in bundle if isinstance(s, LibraryCall)], name, keep=keep)


def _one_superstep(graph: Graph, steps: Sequence[Execute], *, keep: bool) -> Execute:
    """The first, with the vertices of all, and the compute sets of the others leave the graph; or a new one."""
    first, *others = dict.fromkeys(step.compute_set for step in steps)
    if keep:
        made = graph.add_compute_set(graph.origin(first.debug.name), first.stage)
        for group in chain.from_iterable(each.groups for each in (first, *others)):
            made.add_group(group)
        return Execute(made)
    for other in others:
        for group in other.groups:
            first.add_group(group)
    gone = set(others)
    graph.compute_sets[:] = [made for made in graph.compute_sets if made not in gone]
    for number, made in enumerate(graph.compute_sets):
        # An id is the position in the graph's list.
        made.id = number
    return steps[0]


def _copies(copies: Sequence[Copy]) -> Iterator[Copy]:
    ends = [(c.source, c.destination) for c in copies]
    views = [(a.flatten(), b.flatten()) for a, b in ends if isinstance(a, Tensor) and isinstance(b, Tensor)]
    # A view has one element type, so there is one joined copy per type.
    for kind in dict.fromkeys(source.dtype for source, _ in views):
        same = [pair for pair in views if pair[0].dtype == kind]
        yield Copy(concat([a for a, _ in same]), concat([b for _, b in same]), copies[0].debug.name)


def _one_call(graph: Graph, calls: Sequence[LibraryCall], name: str, *, keep: bool) -> LibraryCall:
    kernels = [call.kernel for call in calls if call.kernel is not None and not keep]
    hosts = [call.host_body or call.body for call in calls]
    is_all = len(kernels) == len(calls)
    host_body = Steps(*hosts) if not keep and not is_all and any(call.host_body is not None for call in calls) else None
    return LibraryCall(
        name=" + ".join(dict.fromkeys(call.name for call in calls)),
        inputs=tuple(chain.from_iterable(call.inputs for call in calls)),
        outputs=tuple(chain.from_iterable(call.outputs for call in calls)),
        body=_zipped(graph, [list(plain_steps(call.body)) for call in calls], name, keep=keep),
        kernel=side_by_side(kernels) if is_all else None,
        flops=sum(call.flops for call in calls),
        debug=graph.origin(name),
        attributes={"side_by_side": tuple(call.attributes for call in calls)},
        host_body=host_body,
    )
