from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler.access import Access
from abele.compiler.liveness import Liveness, liveness
from abele.compiler.lower import Step, StepBlock
from abele.graph import Sequence
from compiler.dense_liveness import dense_liveness
from support.examples import examples

SIZE = 4


class Build:
    """Blocks of steps with given accesses over variables of four elements."""

    def __init__(self, num_variables: int) -> None:
        self.num = num_variables
        self.accesses: dict[int, Access] = {}

    def step(self, reads: str = "", writes: str = "", halves: str = "", dead: str = "") -> Step:
        """A step; ``halves`` names variables with upper case for the second half."""
        partial = {}
        for name in halves:
            low = ord(name.lower()) - 97
            begin = low * SIZE + (SIZE // 2 if name.isupper() else 0)
            partial[low] = (np.array([begin]), np.array([begin + SIZE // 2]))
        full = self._numbers(writes)
        index = len(self.accesses)
        wrote = np.union1d(full, np.array(sorted(partial), dtype=np.int64))
        self.accesses[index] = Access(self._numbers(reads), wrote, full, partial, self._numbers(dead))
        return Step(index, "execute", Sequence(), "", 1, False, -1, 0, superstep=index)

    @staticmethod
    def _numbers(names: str) -> np.ndarray:
        return np.array(sorted({ord(n) - 97 for n in names}), dtype=np.int64)

    def live(self, *items: Step | StepBlock) -> Liveness:
        program = StepBlock("sequence", list(items))
        return liveness([program], self.accesses, np.full(self.num, SIZE))

    def names(self, found: Liveness, step: int) -> str:
        return "".join(chr(97 + int(v)) for v in found.candidates[found.at(step)])

    @staticmethod
    def always(found: Liveness) -> str:
        return "".join(chr(97 + int(v)) for v in np.flatnonzero(found.always_live))


def test_liveness__chain_of_temporaries__each_lives_from_write_to_last_read() -> None:
    b = Build(4)
    found = b.live(b.step("a", "b"), b.step("b", "c"), b.step("c", "d"))
    assert b.always(found) == "a"
    assert [b.names(found, i) for i in range(3)] == ["b", "bc", "cd"]


def test_liveness__value_that_nobody_reads__is_for_the_host_and_lives_to_the_end() -> None:
    b = Build(3)
    found = b.live(b.step("", "a"), b.step("", "b"), b.step("b", "c"))
    assert [b.names(found, i) for i in range(3)] == ["a", "ab", "abc"]


def test_liveness__two_halves_written__overwrite_the_variable() -> None:
    b = Build(2)
    found = b.live(b.step(halves="a"), b.step(halves="A"), b.step("a", "b"))
    assert b.always(found) == ""
    assert [b.names(found, i) for i in range(3)] == ["a", "a", "ab"]


def test_liveness__half_written_before_a_read__is_always_live() -> None:
    b = Build(2)
    found = b.live(b.step(halves="a"), b.step("a", "b"), b.step(halves="A"))
    assert b.always(found) == "a"


def test_liveness__value_carried_round_a_loop__lives_through_it() -> None:
    b = Build(4)
    first = b.step("", "a")
    loop = StepBlock("repeat", [b.step("a", "b"), b.step("b", "c"), b.step("c", "a")], 5)
    found = b.live(first, loop, b.step("a", "d"))
    assert b.always(found) == ""
    assert [b.names(found, i) for i in range(5)] == ["a", "ab", "bc", "ac", "ad"]


def test_liveness__read_in_a_loop_what_was_written_before__lives_through_the_loop() -> None:
    b = Build(3)
    first = b.step("", "a")
    loop = StepBlock("repeat", [b.step("a", "b"), b.step("b", "c")], 5)
    found = b.live(first, loop)
    assert [b.names(found, i) for i in range(3)] == ["a", "ab", "abc"]


def test_liveness__written_in_one_branch_only__keeps_the_old_value() -> None:
    b = Build(3)
    branch = StepBlock("if", [b.step("", "a"), b.step()])
    found = b.live(branch, b.step("a", "c"))
    assert b.always(found) == "a"


def test_liveness__written_in_both_branches__is_a_temporary() -> None:
    b = Build(2)
    branch = StepBlock("if", [b.step("", "a"), b.step("", "a")])
    found = b.live(branch, b.step("a", "b"))
    assert b.always(found) == ""


def test_liveness__while_body_may_not_run__value_from_before_survives() -> None:
    b = Build(3)
    loop = StepBlock("while", [b.step("", "c"), b.step("c"), b.step("", "a")])
    found = b.live(loop, b.step("a", "b"))
    assert b.always(found) == "a"


def test_liveness__declared_undefined__ends_there() -> None:
    b = Build(2)
    found = b.live(b.step("", "a"), b.step(dead="a"), b.step("", "b"))
    assert [b.names(found, i) for i in range(3)] == ["a", "", "b"]


def test_liveness__two_programs__share_what_the_second_reads_first() -> None:
    b = Build(2)
    first, second = StepBlock("sequence", [b.step("", "a")]), StepBlock("sequence", [b.step("a", "b")])
    found = liveness([first, second], b.accesses, np.full(2, SIZE))
    assert b.always(found) == "a"


Names = st.sets(st.sampled_from("abcd"), max_size=2).map(lambda s: "".join(sorted(s)))
Leaf = st.tuples(Names, Names)


def trees(depth: int) -> st.SearchStrategy:
    if depth == 0:
        return Leaf
    inner = st.lists(trees(depth - 1), min_size=1, max_size=3)
    return st.one_of(
        Leaf,
        st.tuples(st.just("repeat"), inner, st.integers(1, 3)),
        st.tuples(st.just("if"), inner, inner),
        st.tuples(st.just("while"), Leaf, Leaf, inner),
    )


def build(b: Build, tree: tuple) -> Step | StepBlock:
    if len(tree) == 2:
        return b.step(*tree)
    kind, *parts = tree
    if kind == "repeat":
        return StepBlock("repeat", [build(b, t) for t in parts[0]], parts[1])
    if kind == "if":
        return StepBlock("if", [StepBlock("sequence", [build(b, t) for t in p]) for p in parts])
    condition, decision = build(b, parts[0]), build(b, parts[1])
    return StepBlock("while", [condition, decision, StepBlock("sequence", [build(b, t) for t in parts[2]])])


def traces(item: Step | StepBlock, draw: st.DataObject) -> Iterator[int]:
    """One run of a program, its branches and trips drawn."""
    if isinstance(item, Step):
        yield item.index
        return
    if item.kind == "if":
        yield from traces(item.items[draw.draw(st.integers(0, 1))], draw)
        return
    if item.kind == "while":
        for trip in range(draw.draw(st.integers(0, 2)) + 1):
            if trip:
                yield from traces(item.items[2], draw)
            yield from traces(item.items[0], draw)
            yield from traces(item.items[1], draw)
        return
    for _ in range(item.count if item.kind == "repeat" else 1):
        for part in item.items:
            yield from traces(part, draw)


@examples(16)
@given(st.lists(trees(2), min_size=1, max_size=4), st.data())
def test_liveness__any_run__never_loses_a_value_before_its_read(program: list, draw: st.DataObject) -> None:
    b = Build(4)
    block = StepBlock("sequence", [build(b, t) for t in program])
    found = liveness([block], b.accesses, np.full(4, SIZE))
    run = list(traces(block, draw))
    written: dict[int, int] = {}
    for now, step in enumerate(run):
        for v in b.accesses[step].reads:
            assert v in written or found.always_live[v]
            for between in run[written.get(int(v), 0) : now + 1]:
                assert found.always_live[v] or v in found.candidates[found.at(between)]
        for v in b.accesses[step].writes:
            written[int(v)] = now


Wild = st.tuples(Names, Names, st.sets(st.sampled_from("aAbBcC"), max_size=2).map(lambda s: "".join(sorted(s))), Names)


def wild_trees(depth: int) -> st.SearchStrategy:
    """Programs with partial writes, values that are declared dead, and loops of no trips."""
    if depth == 0:
        return Wild
    inner = st.lists(wild_trees(depth - 1), min_size=1, max_size=4)
    return st.one_of(
        Wild,
        st.tuples(st.just("repeat"), inner, st.integers(0, 2)),
        st.tuples(st.just("if"), inner, inner),
        st.tuples(st.just("while"), Wild, Wild, inner),
    )


def build_wild(b: Build, tree: tuple) -> Step | StepBlock:
    if len(tree) == 4 and tree[0] != "while":
        reads, writes, halves, dead = tree
        return b.step(reads, "".join(set(writes) - set(halves.lower())), halves, "".join(set(dead) - set(writes)))
    kind, *parts = tree
    if kind == "repeat":
        return StepBlock("repeat", [build_wild(b, t) for t in parts[0]], parts[1])
    if kind == "if":
        return StepBlock("if", [StepBlock("sequence", [build_wild(b, t) for t in p]) for p in parts])
    condition, decision = build_wild(b, parts[0]), build_wild(b, parts[1])
    return StepBlock("while", [condition, decision, StepBlock("sequence", [build_wild(b, t) for t in parts[2]])])


@examples(8)
@given(st.lists(st.lists(wild_trees(3), min_size=1, max_size=5), min_size=1, max_size=3), st.sets(st.integers(0, 3)))
def test_liveness__any_programs__has_the_lifetimes_of_the_step_by_step_definition(programs: list, pinned: set) -> None:
    b = Build(4)
    blocks = [StepBlock("sequence", [build_wild(b, t) for t in program]) for program in programs]
    sizes, constant = np.full(4, SIZE), np.isin(np.arange(4), list(pinned))
    found = liveness(blocks, b.accesses, sizes, constant)
    used, always, live = dense_liveness(blocks, b.accesses, sizes, constant)
    assert found.used.tolist() == used.tolist()
    assert found.always_live.tolist() == always.tolist()
    assert found.candidates.tolist() == np.flatnonzero(used & ~always).tolist()
    for step in range(len(b.accesses)):
        assert found.candidates[found.at(step)].tolist() == live.get(step, [])
    assert (found.begin < found.end).all()
    same = found.owner[1:] == found.owner[:-1]
    assert (found.begin[1:][same] > found.end[:-1][same]).all()
    first, last = found.span()
    for number, (low, high) in enumerate(zip(first, last, strict=True)):
        steps = [s for s, names in live.items() if found.candidates[number] in names]
        assert (low, high) == ((min(steps), max(steps)) if steps else (-1, -1))
