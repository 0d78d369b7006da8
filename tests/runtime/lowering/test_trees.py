"""Random program trees of all kinds of steps, on one and several replicas, against their meaning in plain Python."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.codelet import InOut, Input, Vector, Vertex, codelet
from abele.graph import (
    Block,
    Call,
    Copy,
    CrossReplicaCopy,
    Execute,
    Graph,
    If,
    Program,
    Repeat,
    RepeatWhileFalse,
    RepeatWhileTrue,
    Sequence,
    Switch,
    Sync,
    WriteUndef,
    concat,
)
from abele.numerics import i32
from abele.runtime import Engine
from support.examples import examples
from support.tree_meaning import Meaning

SIZE, ROWS, NUMBERS = 6, 4, 5


@codelet
class AddShifted(Vertex):
    """Adds what lies one further on; a state field counts the executions."""

    x: Input[Vector[i32]]
    y: InOut[Vector[i32]]
    times: i32

    def compute(self):
        for i in range(len(self.y)):
            self.y[i] = (self.y[i] + self.x[i] + self.times) % 11
        self.times += 1


class World:
    """A graph of small integer arrays, and steps over them that always end and never fail."""

    def __init__(self, replicas: int) -> None:
        self.graph = graph = Graph("bow-2000", replicas=replicas)
        rng = np.random.default_rng(0)
        self.arrays = [
            graph.variable("i32", (2, SIZE), f"v{n}", initial=rng.integers(0, 9, (2, SIZE))).map_rows([n, n + 7])
            for n in range(NUMBERS)
        ]
        # What steers the program is equal in all replicas: nothing else is ever written to it.
        self.ring = graph.variable("i32", SIZE, "ring", initial=[1, 0, 2, 0, 1, 3]).map(3)
        self.rows = graph.variable("u32", (2, ROWS), "rows", initial=[[0, 1, 2, 3], [3, 1, 1, 0]]).map(2)
        self.index = graph.replica_index()
        self.buffer = graph.remote_buffer("buffer", "i32", SIZE, ROWS)
        self.bump = graph.variable("i32", (), "bump", initial=1).map(0)
        self.vertices = {}
        self.sets = [self._compute_set(a, b) for a, b in ((0, 1), (2, 3), (1, 4))]
        parameters, results = [self.arrays[0][0]], [self.arrays[1][1]]
        self.functions = [
            graph.function(Execute(self.sets[0]), parameters=parameters, results=results),
            graph.function(Sequence(self.turn(), Execute(self.sets[1])), parameters=[], results=[self.arrays[2][0]]),
        ]

    def _compute_set(self, source: int, target: int):
        compute_set = self.graph.compute_set()
        x, y = self.arrays[source], self.arrays[target]
        views = [(concat([x[r, 1:], x[1 - r, :1]]), y[r]) for r in (0, 1)]
        for n, (read, write) in enumerate(views):
            compute_set.vertex(AddShifted, tile=n, x=read, y=write, times=n)
        times = [[0, 1] for _ in range(self.graph.replicas)]

        def run(meaning: Meaning, replica: int) -> None:
            read_first = [meaning.read(view, replica) for view, _ in views]
            for n, (values, (_, write)) in enumerate(zip(read_first, views, strict=True)):
                meaning.write(write, (meaning.read(write, replica) + values + times[replica][n]) % 11, replica)
                times[replica][n] += 1

        self.vertices[compute_set.id] = run
        return compute_set

    def turn(self) -> Copy:
        return Copy(concat([self.ring[1:], self.ring[:1]]), self.ring)

    # --- random programs ---------------------------------------------------------------------------------------------

    def view(self, rng: Random):
        """Six elements of one array, cut in one of several ways; two of them may overlap."""
        array = rng.choice(self.arrays)
        cuts = [array[0], array[1], concat([array[1, 2:], array[0, :2]]), array.T.flatten()[1 : 1 + SIZE]]
        return rng.choice(cuts)

    def leaf(self, rng: Random) -> Program:
        view, other, array = self.view(rng), self.view(rng), rng.choice(self.arrays)
        one, two = self.rows[rng.randrange(2), rng.randrange(ROWS)], self.rows[rng.randrange(2), 1:3]
        n = self.graph.replicas
        makers = [
            lambda: Copy(view, other),
            lambda: Copy(view[:4], view[2:]),
            lambda: Execute(rng.choice(self.sets)),
            self.turn,
            lambda: Copy(view, self.buffer, offset=one),
            lambda: Copy(self.buffer, view, offset=one),
            lambda: Copy(array, self.buffer, offset=two),
            lambda: Copy(self.buffer, array, offset=two),
            lambda: Copy(view, self.buffer),
            lambda: Sync("external"),
            lambda: WriteUndef(self.index),
            lambda: CrossReplicaCopy(view, other, {r: (r + 1) % n for r in range(n)}),
        ]
        return rng.choice(makers)()

    def call(self, rng: Random) -> Program:
        first, second = self.functions
        return rng.choice([Call(first, [self.view(rng)], [self.view(rng)]), Call(second, [], [self.view(rng)])])

    def tree(self, rng: Random, depth: int) -> Program:
        def inner():
            return self.tree(rng, depth - 1)

        if depth == 0:
            return rng.choice([self.leaf, self.leaf, self.leaf, self.call])(rng)
        loop = rng.choice([RepeatWhileTrue, RepeatWhileFalse])
        head = self.ring[rng.randrange(SIZE)]
        # The ring holds zero and others, and this body does not turn it: a loop that turns it ends.
        quiet = Call(self.functions[0], [self.view(rng)], [self.view(rng)])
        makers = [
            lambda: Sequence(*(inner() for _ in range(rng.randrange(5)))),
            lambda: Sequence(inner(), inner(), inner()),
            lambda: Repeat(rng.randrange(3), inner()),
            lambda: If(head, inner(), inner()),
            lambda: Switch(head, {0: inner(), 2: inner()}, inner()),
            lambda: Block(inner(), "block"),
            lambda: loop(self.turn(), self.ring[0], quiet),
        ]
        return rng.choice(makers)()


def _holds_what_the_tree_says(seed: int, replicas: int, threads: int, runs: int, **options) -> None:
    world, rng = World(replicas), Random(seed)
    program = Sequence(*(world.tree(rng, rng.randrange(4)) for _ in range(6)))
    meaning = Meaning(world.graph, world.vertices)
    own = np.random.default_rng(seed).integers(0, 9, (replicas, 2, SIZE), dtype=np.int32)
    for replica in range(replicas):
        meaning.write(world.arrays[0], own[replica], replica)
    for _ in range(runs):
        meaning.run(program)
    with Engine(world.graph, program, threads=threads, **options) as engine:
        engine["v0"] = own if replicas > 1 else own[0]
        for _ in range(runs):
            engine.run()
        for variable in world.graph.variables:
            view = world.graph.whole(variable)
            expected = np.stack([meaning.read(view, r) for r in range(replicas)])
            np.testing.assert_array_equal(engine[view].reshape(expected.shape), expected, err_msg=variable.name)
        for replica in range(replicas):
            np.testing.assert_array_equal(
                engine.read_remote("buffer", None, replica), meaning.remote[world.buffer][replica]
            )


SEEDS = st.integers(0, 1 << 32)


@examples(12)
@given(
    seed=SEEDS,
    replicas=st.sampled_from([1, 2, 4]),
    threads=st.integers(1, 2),
    runs=st.integers(1, 2),
    mode=st.sampled_from(["tiles", "native"]),
)
def test_tree__of_any_steps__does_what_it_means(seed, replicas, threads, runs, mode):
    _holds_what_the_tree_says(seed, replicas, threads, runs, mode=mode)


@examples(4)
@given(seed=SEEDS, replicas=st.sampled_from([1, 2]), threads=st.integers(1, 2))
def test_tree__in_debug_mode__does_what_it_means(seed, replicas, threads):
    _holds_what_the_tree_says(seed, replicas, threads, 1, debug=True)


@pytest.mark.parametrize("debug", [False, True])
def test_vertex_state__of_replicas__is_each_ones_own(debug):
    world = World(2)
    meaning = Meaning(world.graph, world.vertices)
    program = Sequence(Copy(world.index.reshape((1,)), world.rows[0, :1]), Repeat(3, Execute(world.sets[0])))
    meaning.run(program)
    with Engine(world.graph, program, debug=debug) as engine:
        engine.run()
        expected = np.stack([meaning.read(world.arrays[1], r) for r in (0, 1)])
        np.testing.assert_array_equal(engine["v1"], expected)
        assert engine["rows"][:, 0, 0].tolist() == [0, 1]
