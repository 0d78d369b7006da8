"""Programs whose files the fuzzer changes: small, and between them with every part that a file can have.

Each has variables called ``sentinel`` between its own, which it does not use: whatever a changed file does, they keep
what they hold unless the changed program itself names them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import abele as ab
from abele import InOut, Input, Output, Vector, f16, f32, i32, popops
from abele.graph import (
    AbortOnCondition,
    AssumeEqualAcrossReplicas,
    Block,
    CrossReplicaCopy,
    CrossReplicaExchange,
    CycleCount,
    HostCall,
    PrintTensorFmt,
    SetFloatingPointBehaviour,
    Switch,
    Sync,
)

Made = tuple[ab.Graph, dict[str, ab.Program]]


@ab.codelet
class Work(ab.MultiVertex):
    x: InOut[Vector[f32]]
    rows: Vector[Input[Vector[f32]]]
    weights: Vector[f32]
    seen: i32

    def compute(self, worker_id):
        for i in range(worker_id, len(self.x), self.num_workers):
            self.x[i] = self.helper(self.x[i]) + self.weights[1]
        if worker_id == 5:
            self.seen += 1
            for r in range(len(self.rows)):
                row = self.rows[r]
                self.x[0] += row[0]

    def helper(self, value):
        return 3.0 * value if value > 0.5 else -value


@ab.codelet
class Reach(ab.Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]
    scale: Input[f16]
    at: i32

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = self.x[i] * f32(self.scale)
        self.y[self.at] = 1.0
        if self.at == 1:
            print(f"here {self.at}: {self.y[0]:.2f}")


def sentinel(graph: ab.Graph) -> None:
    number = len(graph.variables)
    graph.variable(i32, (24,), name=f"sentinel{number}", initial=np.arange(24) + 1000 * number).map(number % 4)


def vertices() -> Made:
    graph = ab.Graph("bow")
    sentinel(graph)
    x = graph.variable(f32, (4, 30), name="x", initial=np.linspace(0, 1, 120).reshape(4, 30)).map_rows(range(4))
    sentinel(graph)
    y = graph.constant(f32, (4, 3), np.arange(12).reshape(4, 3), name="y")
    z = graph.variable(f32, (4, 15), name="z").map_rows(range(4))
    sentinel(graph)
    scale = graph.variable(f16, (), name="scale", initial=2).map(1)
    step = graph.compute_set("work")
    rows = [[y[i], y[3 - i]] for i in range(4)]
    step.vertices(Work, tile=range(4), x=x, rows=rows, weights=np.ones((4, 3)), seen=0)
    second = graph.compute_set("reach")
    second.vertices(Reach, tile=range(4), x=x[:, ::2], y=z, scale=[scale] * 4, at=[0, 1, 2, 14])
    sentinel(graph)
    both = ab.Sequence(ab.Execute(step), ab.Execute(second))
    return graph, {"work": ab.Repeat(3, both), "other": ab.Execute(second)}


def streams() -> Made:
    graph = ab.Graph("bow")
    sentinel(graph)
    x = graph.variable(f32, (6, 5), name="x", initial=0).map_rows(range(6))
    y = graph.variable(f32, (5, 6), name="y", initial=0).map_linear()
    sentinel(graph)
    row = graph.variable("u32", (2,), name="row", initial=[1, 2]).map(0)
    rows = graph.variable(f32, (2, 30), name="rows", initial=3).map_rows([1, 2])
    given, taken = graph.host_stream_in("in", f32, (6, 5)), graph.host_stream_out("out", f32, (5, 6))
    buffer = graph.remote_buffer("buffer", f32, 30, 4)
    sentinel(graph)
    host = graph.host_function("twice", [(f32, 30)], [(f32, 30)])
    graph.expose(y, "y")
    program = ab.Sequence(
        ab.Copy(given, x),
        ab.Copy(x.T, y),
        ab.Copy(y[::-1], taken),
        ab.Copy(x.flatten(), buffer),
        ab.Copy(buffer, rows.flatten(), offset=row),
        HostCall(host, (x.flatten(),), (y.flatten(),)),
        ab.Copy(ab.concat([x[:2], x[4:]]), x[1:5]),
        ab.PrintTensor(row, "row", PrintTensorFmt(digits=2)),
    )
    return graph, {"main": program}


def control() -> Made:
    graph = ab.Graph("bow-2000", replicas=2)
    sentinel(graph)
    x = graph.variable(f32, (6,), name="x", initial=range(6)).map(0)
    y = graph.variable(f32, (6,), name="y", initial=0).map(1)
    sentinel(graph)
    which = graph.variable(i32, (), name="which", initial=1).map(0)
    go = graph.variable("bool", (), name="go", initial=False).map(0)
    counter = graph.variable("u32", (2,), name="counter").map(0)
    number = graph.replica_index()
    sentinel(graph)
    function = graph.function(ab.Copy(x, y), parameters=[x], results=[y])
    graph.sync_group([4, 5], "io")
    program = ab.Sequence(
        AssumeEqualAcrossReplicas(which),
        AssumeEqualAcrossReplicas(go),
        Switch(which, {0: ab.Sequence(), 1: ab.Copy(x[::-1], y)}),
        ab.If(go, ab.Sequence(), Block(ab.Copy(y[:3], x[3:]), "part")),
        ab.RepeatWhileTrue(ab.Sequence(), go, ab.Copy(y, x)),
        ab.Call(function, [y], [x]),
        ab.Call(function, [x], [y]),
        CycleCount(ab.Repeat(2, ab.Copy(x, y)), counter),
        CrossReplicaCopy(y, x, {0: 1, 1: 0}),
        CrossReplicaExchange([CrossReplicaCopy(y, x, {0: 1, 1: 0}), CrossReplicaCopy(x, y, {0: 0, 1: 1})]),
        SetFloatingPointBehaviour(invalid=False),
        Sync("external"),
        AbortOnCondition(go, "never"),
        ab.WriteUndef(y),
        ab.PrintTensor(number, "number"),
    )
    return graph, {"main": program}


def library() -> Made:
    graph = ab.Graph("bow")
    sentinel(graph)
    a, b = (graph.variable(f16, (8, 12), name=n, initial=1).map_linear() for n in "ab")
    sentinel(graph)
    program = ab.Sequence()
    product = ab.poplin.matmul(graph, a, b.T, program)
    sentinel(graph)
    mapped = popops.map(graph, lambda x: x * x + 1.0, [product], program)
    total = popops.reduce(graph, mapped, [0], "MAX", program)
    graph.expose(total, "total", writable=False)
    return graph, {"main": ab.Repeat(2, program)}


PROGRAMS: dict[str, Callable[[], Made]] = {f.__name__: f for f in (vertices, streams, control, library)}


def save_all(folder: Path) -> dict[str, Path]:
    """The executables and reports of all programs, in files by name."""
    files = {}
    for name, make in PROGRAMS.items():
        graph, programs = make()
        executable = ab.compile_program(graph, programs)
        files[name] = folder / f"{name}.exe"
        files[f"{name}-report"] = folder / f"{name}.report"
        executable.save(files[name])
        engine = ab.Engine(executable, threads=1)
        if name in ("vertices", "library"):
            engine.run()
        engine.report.with_meta(name=name, samples_per_run=8, steps_per_run=2).save(files[f"{name}-report"])
    return files
