"""Smith-Waterman alignment of protein sequences, one pair for each worker.

The score of the best local alignment of two sequences, with affine gaps, is found by dynamic programming: a table as
long as one sequence and as wide as the other, of which a worker keeps one row. Pairs have different lengths, so the
tiles' finish times differ; giving the longest pairs out first to the least busy tile keeps them close.
"""

from __future__ import annotations

import argparse
import heapq

import numpy as np

import abele as ab
from abele import InOut, Input, Output, Vector, i8, i32, u8

AMINO_ACIDS = "ARNDCQEGHILKMFPSTWYV"
KINDS = ("AVLIMC", "FWYH", "ST", "NQ", "DE", "KR", "G", "P")
"""Amino acids that often stand in for one another: aliphatic, aromatic, hydroxyl, amide, acidic, basic, two alone."""
LETTERS = len(AMINO_ACIDS)


def similarity():
    """Score of every two letters: 5 for the same, 1 for two of a kind, −3 otherwise."""
    kind = [next(k for k, letters in enumerate(KINDS) if a in letters) for a in AMINO_ACIDS]
    alike = np.equal.outer(kind, kind)
    return np.where(np.eye(LETTERS, dtype=bool), 5, np.where(alike, 1, -3)).astype(np.int8)


@ab.codelet
class Align(ab.Vertex):
    """Score of the best local alignment of one pair."""

    one: Input[Vector[u8]]
    other: Input[Vector[u8]]
    scores: Input[Vector[i8]]
    row: InOut[Vector[i32]]
    gaps: InOut[Vector[i32]]
    best: Output[i32]
    open_gap: i32
    extend_gap: i32

    def compute(self):
        for j in range(len(self.row)):
            self.row[j] = 0
            self.gaps[j] = 0
        best = i32(0)
        for i in range(len(self.one)):
            letter = i32(self.one[i]) * LETTERS
            diagonal = i32(0)
            left = i32(0)
            gap = i32(0)
            for j in range(len(self.other)):
                above = self.row[j]
                down = max(above - self.open_gap, self.gaps[j] - self.extend_gap)
                gap = max(left - self.open_gap, gap - self.extend_gap)
                matched = diagonal + i32(self.scores[letter + i32(self.other[j])])
                left = max(max(matched, 0), max(down, gap))
                best = max(best, left)
                self.gaps[j] = down
                self.row[j] = left
                diagonal = above
        self.best = best


def proteins(pairs, shortest=60, longest=400, seed=0):
    """Pairs of sequences; the second is a mutated part of the first, or has nothing to do with it."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(pairs):
        one = rng.integers(0, LETTERS, rng.integers(shortest, longest), dtype=np.uint8)
        other = rng.integers(0, LETTERS, rng.integers(shortest, longest), dtype=np.uint8)
        if number % 2:
            part = one[rng.integers(0, len(one) // 2) :]
            other = np.where(rng.random(len(part)) < 0.3, rng.integers(0, LETTERS, len(part)), part).astype(np.uint8)
            cut = len(other) // 2
            other = np.delete(other, slice(cut, cut + int(rng.integers(0, 6))))
        made.append((one, other))
    return made


def shared_out(sizes, tiles):
    """A tile for every pair: the longest first, each to the tile with the least to do."""
    load = [(0, tile) for tile in range(tiles)]
    tile = np.empty(len(sizes), dtype=np.int64)
    for pair in np.argsort(-sizes, kind="stable"):
        busy, least = heapq.heappop(load)
        tile[pair] = least
        heapq.heappush(load, (busy + int(sizes[pair]), least))
    return tile


def alignment(pairs, open_gap=11, extend_gap=1, system="bow", longest_first=True):
    """An engine that leaves the score of every pair in ``best``.

    The workers of a tile take its vertices in the order in which they were added: with the longest first, none is left
    with a long one when the others are done.
    """
    graph = ab.Graph(system)
    sizes = np.array([[len(one), len(other)] for one, other in pairs])
    order = np.argsort(-sizes.prod(axis=1), kind="stable") if longest_first else np.arange(len(pairs))
    sizes = sizes[order]
    tile = shared_out(sizes.prod(axis=1), graph.num_tiles)

    def laid_out(dtype, name, length, values=None):
        """One variable that holds a piece for every pair, on the pair's tile, and the pieces as regions."""
        end = np.cumsum(length)
        tensor = graph.variable(dtype, (int(end[-1]),), name=name, initial=values)
        regions = ab.boxes(tensor, (end - length)[:, None], length[:, None])
        graph.map_regions(regions, tile)
        return regions

    letters = [np.concatenate([pairs[pair][side] for pair in order]) for side in (0, 1)]
    best = graph.variable(i32, (len(pairs),), name="best")
    scored = ab.boxes(best, order[:, None], np.ones((len(pairs), 1), np.int64))
    graph.map_regions(scored, tile)
    scores = graph.constant(i8, (LETTERS * LETTERS,), similarity().reshape(-1), name="scores")
    step = graph.compute_set("align")
    step.vertices(
        Align,
        tile=tile,
        one=laid_out(u8, "one", sizes[:, 0], letters[0]),
        other=laid_out(u8, "other", sizes[:, 1], letters[1]),
        scores=ab.shared(scores),
        row=laid_out(i32, "row", sizes[:, 1]),
        gaps=laid_out(i32, "gaps", sizes[:, 1]),
        best=scored,
        open_gap=open_gap,
        extend_gap=extend_gap,
    )
    return ab.Engine(graph, ab.Execute(step))


def reference(one, other, open_gap=11, extend_gap=1):
    """The score of one pair, by the recurrence over the whole table along its antidiagonals."""
    scores = similarity().astype(int)[one][:, other]
    m, n = scores.shape
    table = np.zeros((m + 1, n + 1), int)
    down, right = np.zeros((m + 1, n + 1), int), np.zeros((m + 1, n + 1), int)
    for d in range(2, m + n + 1):
        i = np.arange(max(1, d - n), min(m, d - 1) + 1)
        j = d - i
        down[i, j] = np.maximum(table[i - 1, j] - open_gap, down[i - 1, j] - extend_gap)
        right[i, j] = np.maximum(table[i, j - 1] - open_gap, right[i, j - 1] - extend_gap)
        matched = table[i - 1, j - 1] + scores[i - 1, j - 1]
        table[i, j] = np.maximum(np.maximum(matched, 0), np.maximum(down[i, j], right[i, j]))
    return int(table.max())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8832, help="pairs of sequences")
    parser.add_argument("--as-they-come", action="store_true", help="add the vertices in the order of the pairs")
    parser.add_argument("--report", help="write the report to this file, for abele view")
    arguments = parser.parse_args()
    pairs = proteins(arguments.pairs)
    cells = sum(len(one) * len(other) for one, other in pairs)
    with alignment(pairs, longest_first=not arguments.as_they_come) as engine:
        engine.run()
        best = engine["best"]
        some = range(0, len(pairs), max(1, len(pairs) // 20))
        wrong = sum(int(best[p]) != reference(*pairs[p]) for p in some)
        seconds = float(engine.report.runs["wall_seconds"][0])
        print(f"{len(pairs)} pairs, {cells:,} cells; {wrong} of {len(some)} checked scores differ from NumPy")
        print(f"median score {np.median(best[1::2]):.0f} of related pairs, {np.median(best[::2]):.0f} of others")
        print(f"{cells / seconds / 1e6:,.0f} million cells a second on this host")
        print(engine.report.summary())
        if arguments.report:
            engine.report.save(arguments.report)


if __name__ == "__main__":
    main()
