"""Prefetch: while the device computes on one batch, the host has the next one ready.

A stream with a buffering depth of 2 asks its callback for data ahead of time: ``prefetch`` fills a spare buffer in the
background, so that the next copy finds its data waiting. With a depth of 1 the program waits for ``fetch`` every time.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import abele as ab
from abele import InOut, Vector, f32

ROWS, COLUMNS = 1472, 256


@ab.codelet
class Work(ab.Vertex):
    """Something that takes a while."""

    x: InOut[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            value = self.x[i]
            for _ in range(24):
                value = 0.5 * (value + 1.0 / (value + 0.25))
            self.x[i] = value


class Loader:
    """Gives one batch after another, each of which takes a while to load."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.calls = {"prefetch": 0, "fetch": 0, "complete": 0}
        self._next = 0

    def prefetch(self, buffer: np.ndarray) -> bool:
        """Called ahead of time; True says that the buffer is filled."""
        self._load("prefetch", buffer)
        return True

    def fetch(self, buffer: np.ndarray) -> None:
        """Called when the program is waiting."""
        self._load("fetch", buffer)

    def complete(self) -> None:
        """Called when a batch has been taken."""
        self.calls["complete"] += 1

    def invalidate_prefetched(self) -> None:
        """Called when a batch that was loaded ahead will not be taken."""
        self._next -= 1

    def _load(self, how: str, buffer: np.ndarray) -> None:
        time.sleep(self.seconds)
        buffer[...] = self._next
        self._next += 1
        self.calls[how] += 1


def build(batches: int, depth: int) -> ab.Engine:
    graph = ab.Graph("bow")
    x = graph.variable(f32, (ROWS, COLUMNS), name="x").map_rows(range(ROWS))
    work = graph.compute_set("work")
    work.vertices(Work, tile=range(ROWS), x=x)
    data = graph.host_stream_in("data", f32, x.shape, buffering_depth=depth)
    return ab.Engine(graph, ab.Repeat(batches, ab.Sequence(ab.Copy(data, x), ab.Execute(work))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.02, help="time that loading a batch takes")
    arguments = parser.parse_args()
    for depth in (1, 2):
        loader = Loader(arguments.seconds)
        with build(arguments.batches, depth) as engine:
            engine.connect("data", loader)
            engine.run()
            seconds = float(engine.report.runs["wall_seconds"][0])
            print(f"buffering depth {depth}: {seconds:.3f} s, calls {loader.calls}")


if __name__ == "__main__":
    main()
