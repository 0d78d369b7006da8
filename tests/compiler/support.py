"""Small machines and codelets that the compiler's tests share."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from abele.codelet import InOut, Input, MultiVertex, Output, Vector, Vertex, codelet
from abele.compiler.traffic import LinkBytes
from abele.machine import System, systems
from abele.numerics import f16, f32, i32

SLOTS = 10
"""Cost of each single-worker vertex here."""


def small_system(num_tiles: int = 8, num_ipus: int = 1) -> System:
    """A Bow-2000 with fewer tiles and IPUs, whose host is near enough for programs of little work."""
    return systems.get("bow-2000").evolve(
        ipu={"num_tiles": num_tiles, "sync": {"host_seconds": 2e-6}},
        num_ipus=num_ipus,
        name=f"small-{num_tiles}",
        title="a small machine",
    )


def link_bytes(traffic: Mapping[tuple[int, int], int]) -> LinkBytes:
    """Bytes between pairs of IPUs."""
    source, target = np.array(list(traffic), dtype=np.int64).reshape(-1, 2).T
    return LinkBytes.of(source, target, np.array(list(traffic.values()), dtype=np.int64))


@codelet
class Reader(Vertex):
    x: Input[Vector[f32]]

    def compute(self):
        pass

    @staticmethod
    def cycles(v, ipu):
        return np.full(v.num, SLOTS)


@codelet
class Writer(Vertex):
    y: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.y)):
            self.y[i] = 0.0

    @staticmethod
    def cycles(v, ipu):
        return np.full(v.num, SLOTS)


@codelet
class Update(Vertex):
    x: Input[Vector[f32]]
    y: InOut[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] += self.x[i]

    @staticmethod
    def cycles(v, ipu):
        return np.full(v.num, SLOTS)


@codelet
class Move(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = self.x[i]


@codelet
class Bump(Vertex):
    x: InOut[i32]

    def compute(self):
        self.x += 1


@codelet
class ReadHalf(Vertex):
    x: Input[Vector[f16]]

    def compute(self):
        pass


@codelet
class Multi(MultiVertex):
    x: Input[Vector[f32]]

    def compute(self, worker_id):
        pass


@codelet
class Search(Vertex):
    """Its cost depends on data: how far the first zero is."""

    x: Input[Vector[f32]]
    y: Output[i32]

    def compute(self):
        i = 0
        while i < len(self.x) and self.x[i] != 0.0:
            i += 1
        self.y = i
