"""Reports made up for the viewer's benchmarks and tests: of any size, by arithmetic alone, and the same each time.

A report describes a pipeline that has one stage on each IPU: every stage carries out its steps once for each
micro-batch, waits for the stage before it, and all of them meet for the weight update. Columns agree with each other as
those of a compiled program do: cycles of a step are those of its slowest tile, spans follow one another and add up to
what their sync groups are busy, the critical path adds up to the run, the liveness curve and the memory of the tiles
follow from where variables lie and when they live.

From the command line, ``python benchmarks/viewer_reports.py pod64 OUT.abele-report`` writes one of them; ``big`` is a
file of more than 2 GB.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import viewer_program

from abele.arrays import Int64
from abele.machine import systems
from abele.report import (
    BUFFER_TILES,
    CRITICAL,
    GROUPS,
    HOST_LEAVES,
    LIFETIMES,
    LIVENESS,
    OPS,
    PHASE_TILES,
    PROGRAM_TILES,
    RUNS,
    SPANS,
    STEP_GROUPS,
    STEPS,
    VARIABLE_TILES,
    VARIABLES,
    Memory,
    Report,
    Table,
)
from abele.report.text_column import Text
from abele.report.tiles import dense_runs

LOADING = 55
"""Steps of the second program, which loads weights."""
_BLOCKS = ("attention/query", "attention/scores", "attention/out", "feed_forward/in", "feed_forward/out", "norm")
_CALLS = ("poplin.matmul", "poplin.matmul", "popops.softmax", "popops.add", "popnn.gelu", "popops.layer_norm")
_KINDS = np.array(["compute", "exchange", "copy", "stream", "control"])


@dataclass(frozen=True)
class Shape:
    """Size of a report.

    Attributes:
        num_ipus: IPUs, each with one sync group and one stage of the pipeline.
        stage_steps: Steps of each stage.
        shared_steps: Steps of the weight update, in which all IPUs take part.
        micro_batches: Times that each stage is carried out in a run.
        variables: Variables of all stages.
        ops: Operations: as many of each stage, the weight update, and the loading of weights.
        pieces: In how many runs of tiles the work of a step may fall, each a divisor of 1,472.
        seed: Of the random numbers.
    """

    num_ipus: int
    stage_steps: int
    shared_steps: int
    micro_batches: int
    variables: int
    ops: int
    pieces: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    seed: int = 17


POD64 = Shape(num_ipus=64, stage_steps=780, shared_steps=25, micro_batches=20, variables=100_000, ops=2_050)
"""94,208 tiles, 10⁶ spans, 10⁵ variables, 5·10⁴ steps of the liveness curve."""
SMALL = Shape(num_ipus=1, stage_steps=180, shared_steps=20, micro_batches=4, variables=400, ops=60)
BIG = replace(POD64, micro_batches=800, pieces=(46, 184, 368, 736, 1472))
"""Its file has more than 2 GB."""


def pod64() -> Report:
    """A Pod64's report."""
    return made(POD64, "pipelined transformer on a Pod64")


def small() -> Report:
    """The report of one IPU."""
    return made(SMALL, "small transformer")


def made(shape: Shape, name: str) -> Report:
    """A report of a given size."""
    system = systems.bow_pod(64) if shape.num_ipus > 4 else systems.bow_2000()
    target = {**system.with_ipus(shape.num_ipus).figures(), "num_replicas": 1}
    tiles_per_ipu = int(target["tiles_per_ipu"])
    rng = np.random.default_rng(shape.seed)
    work = _Work(rng, shape, tiles_per_ipu)
    times = _Times(work, shape)
    held = _Held(rng, shape, tiles_per_ipu, work.num_steps)
    steps = _steps(work, times, shape)
    ops = _ops(steps, shape)
    spans, loops = viewer_program.whole_runs(steps, work.stage, shape.micro_batches, times.periods)
    ipus, links = viewer_program.between_ipus(steps, work.stage, shape.num_ipus)
    used = held.by_tile(always=True) + held.by_tile_at_worst()
    tile_bytes = int(target["tile_bytes"])
    others = {"vertex_code": 9_400, "control_code": 6_200, "stacks": 3_072, "stream_buffers": 1_024}
    others["exchange_code"] = 14_000
    assert int(used.max()) + sum(others.values()) < tile_bytes
    return Report(
        target=target,
        graph={
            "num_variables": shape.variables,
            "num_compute_sets": int((steps["kind"] == "compute").sum()),
            "num_vertices": int(steps["num_vertices"].sum()),
            "num_edges": 4 * int(steps["num_vertices"].sum()),
            "num_steps": work.num_steps,
            "num_supersteps": work.num_steps,
            "num_estimated_steps": 0,
            "num_assumed_steps": 0,
        },
        steps=steps,
        ops=ops,
        memory=Memory.of(
            len(used),
            tile_bytes - 1_104,
            variables=held.by_tile(always=True),
            temporaries=held.by_tile_at_worst(),
            vertex_state=np.repeat(rng.integers(2_000, 20_000, shape.num_ipus * 8), tiles_per_ipu // 8),
            gaps=rng.integers(0, 64, len(used)) * 4,
            **others,
        ),
        variables=held.variables,
        liveness=held.liveness(),
        runs=_runs(times.total, shape),
        groups=times.groups(work, tiles_per_ipu),
        spans=times.spans(),
        critical=times.critical(),
        step_groups=work.step_groups(),
        phase_tiles=work.phase_tiles(),
        program_tiles=work.program_tiles(),
        variable_tiles=held.variable_tiles,
        lifetimes=held.lifetimes,
        buffer_tiles=work.buffer_tiles(),
        program_tree=viewer_program.program_tree(steps, ops, work.stage, shape.micro_batches),
        supersteps=viewer_program.supersteps(steps, ops, work.exchanged),
        codelets=viewer_program.codelets(len(used)),
        vertices=viewer_program.vertices(steps, np.maximum(work.stage, 0) * tiles_per_ipu),
        superstep_variables=viewer_program.superstep_variables(held.variables, work.num_steps),
        run_spans=spans,
        run_loops=loops,
        phase_ipus=ipus,
        phase_links=links,
        exchange_blocks=viewer_program.exchange_blocks(rng, steps, work.stage, tiles_per_ipu, work.executions),
        host_leaves=_host_leaves(rng),
        meta={
            "name": name,
            "abele_version": "0.1.0",
            "created": "2026-11-27T13:38:43+00:00",
            "programs": ["train", "load weights"],
            "figures_of": ["run 3", "assumptions"],
            "compile_seconds": 184.25,
            "samples_per_run": 16 * shape.micro_batches,
            "steps_per_run": 1,
            "sample_name": "sequences",
            "step_name": "weight update",
            "options": {"device_iterations": 1, "gradient_accumulation": shape.micro_batches, "engine_mode": "native"},
        },
    )


class _Work:
    """Work of each step on its tiles: steps of stage 0, of stage 1, …, the shared ones, and the second program."""

    def __init__(self, rng: np.random.Generator, shape: Shape, tiles_per_ipu: int) -> None:
        own = shape.num_ipus * shape.stage_steps
        self.num_steps = own + shape.shared_steps + LOADING
        self.num_ipus, self.tiles_per_ipu = shape.num_ipus, tiles_per_ipu
        self.stage = np.full(self.num_steps, -1, np.int64)
        self.stage[:own] = np.repeat(np.arange(shape.num_ipus), shape.stage_steps)
        self.program = (np.arange(self.num_steps) >= own + shape.shared_steps).astype(np.int64)
        self.executions = np.where(self.stage >= 0, shape.micro_batches, 1)
        self.kind = rng.choice(5, self.num_steps, p=[0.5, 0.3, 0.17, 0.02, 0.01])
        self.kind[self.program == 1] = 3
        pieces = rng.choice(np.array(shape.pieces), self.num_steps)
        self.phase = np.repeat(np.arange(self.num_steps), pieces)
        place = np.arange(len(self.phase)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        whole = np.where(self.stage >= 0, tiles_per_ipu, tiles_per_ipu * shape.num_ipus)
        self.num_tiles = (whole // pieces)[self.phase]
        self.first_tile = np.maximum(self.stage, 0)[self.phase] * tiles_per_ipu + place * self.num_tiles
        kind = self.kind[self.phase]
        typical = rng.lognormal(7.5, 1.2, self.num_steps)[self.phase]
        self.compute = np.where(kind <= 2, typical * rng.uniform(0.3, 1.0, len(kind)) * (kind != 1), 0).astype(np.int64)
        moves = (kind >= 1) & (kind <= 3)
        self.sent = np.where(moves, typical * 0.4 * rng.uniform(0.5, 1.0, len(kind)), 0).astype(np.int64) & ~3
        # What one run of tiles sends, the mirrored one receives: runs of a step have equal length.
        self.received = self.sent[np.cumsum(pieces)[self.phase] - 1 - place]
        starts = np.cumsum(pieces) - pieces
        self.compute_cycles = np.maximum.reduceat(self.compute, starts)
        self.most_received = np.maximum.reduceat(self.received, starts)
        self.exchanged = np.add.reduceat(self.sent * self.num_tiles, starts)
        mean = np.add.reduceat(self.compute * self.num_tiles, starts) / whole
        self.balance = mean / np.maximum(self.compute_cycles, 1)
        self.active = np.add.reduceat(np.where((self.compute > 0) | moves, self.num_tiles, 0), starts)
        stream = self.kind == 3
        self.exchange_cycles = np.where(stream, 0, self.most_received // 4)
        self.host_cycles = np.where(stream, 2_000 + self.exchanged // 7, 0)
        self.sync_cycles = np.where(self.stage >= 0, 96, 640)
        self.cycles = self.compute_cycles + self.exchange_cycles + self.host_cycles + self.sync_cycles

    def phase_tiles(self) -> Table:
        return PHASE_TILES.table(
            phase=self.phase,
            first_tile=self.first_tile,
            num_tiles=self.num_tiles,
            compute_cycles=self.compute,
            sent_bytes=self.sent,
            received_bytes=self.received,
        )

    def program_tiles(self) -> Table:
        found = []
        for program in (0, 1):
            rows = self.program[self.phase] == program
            sums = {
                name: _spread(self.first_tile[rows], self.num_tiles[rows], (values * self.executions[self.phase])[rows],
                              self.num_ipus * self.tiles_per_ipu)
                for name, values in (
                    ("compute_cycles", self.compute), ("sent_bytes", self.sent), ("received_bytes", self.received)
                )
            }  # fmt: skip
            first, count, values = dense_runs(**sums)
            found.append({"program": np.full(len(first), program), "first_tile": first, "num_tiles": count, **values})
        return PROGRAM_TILES.table(**{name: np.concatenate([part[name] for part in found]) for name in found[0]})

    def step_groups(self) -> Table:
        alone = self.stage >= 0
        return STEP_GROUPS.table(
            step=np.arange(self.num_steps),
            first_group=np.where(alone, self.stage, self.program * self.num_ipus),
            num_groups=np.where(alone, 1, self.num_ipus),
        )

    def buffer_tiles(self) -> Table:
        """Room for what steps receive; the number of a superstep is that of its step."""
        rows = self.received > 0
        return BUFFER_TILES.table(
            superstep=self.phase[rows],
            first_tile=self.first_tile[rows],
            num_tiles=self.num_tiles[rows],
            bytes=self.received[rows],
        )


class _Times:
    """Times of each step."""

    def __init__(self, work: _Work, shape: Shape) -> None:
        self.work, self.shape = work, shape
        stages, batches, length = shape.num_ipus, shape.micro_batches, shape.stage_steps
        own = stages * length
        self.stage_cycles = work.cycles[:own].reshape(stages, length)
        per_batch = self.stage_cycles.sum(axis=1)
        begin = np.zeros((stages, batches), np.int64)
        after_stage_before = np.zeros((stages, batches), dtype=bool)
        free = np.zeros(batches, np.int64)
        for stage in range(stages):
            # A stage begins a micro-batch when the stage before has ended it and it has itself ended the one before:
            # the running maximum of what is given, less what has been done until there.
            done = np.arange(batches) * per_batch[stage]
            begin[stage] = np.maximum.accumulate(free - done) + done
            after_stage_before[stage] = (begin[stage] == free) & (stage > 0)
            free = begin[stage] + per_batch[stage]
        self.begin, self.per_batch = begin, per_batch
        self.periods = np.maximum.accumulate(per_batch)
        self.shared = slice(own, own + shape.shared_steps)
        self.update_start = int((begin[:, -1] + per_batch).max())
        self.total = self.update_start + int(work.cycles[self.shared].sum())
        self._on_path = self._path(after_stage_before)

    def _path(self, after_stage_before: npt.NDArray[np.bool_]) -> Int64:
        """Number of micro-batches of each stage on the critical path, int64[stages]."""
        counts = np.zeros(self.shape.num_ipus, np.int64)
        stage, batch = int(np.argmax(self.begin[:, -1] + self.per_batch)), self.shape.micro_batches - 1
        while True:
            counts[stage] += 1
            if after_stage_before[stage, batch]:
                stage -= 1
            elif batch:
                batch -= 1
            else:
                return counts

    def start_cycles(self) -> Int64:
        """First start of each step, int64[steps]."""
        inside = np.cumsum(self.stage_cycles, axis=1) - self.stage_cycles
        rest = np.cumsum(self.work.cycles[self.shared]) - self.work.cycles[self.shared]
        loading = self.work.cycles[self.shared.stop :]
        return np.concatenate(
            [(self.begin[:, :1] + inside).ravel(), self.update_start + rest, np.cumsum(loading) - loading]
        )

    def spans(self) -> Table:
        stages, batches, length = self.shape.num_ipus, self.shape.micro_batches, self.shape.stage_steps
        inside = np.cumsum(self.stage_cycles, axis=1) - self.stage_cycles
        starts = (self.begin[:, :, None] + inside[:, None, :]).ravel()
        shared = np.arange(self.shared.start, self.shared.stop)
        step = np.broadcast_to(np.arange(stages * length).reshape(stages, 1, length), (stages, batches, length)).ravel()
        group = np.repeat(np.arange(stages), batches * length)
        step = np.concatenate([step, np.repeat(shared, stages)])
        group = np.concatenate([group, np.tile(np.arange(stages), len(shared))])
        starts = np.concatenate([starts, np.repeat(self.start_cycles()[self.shared], stages)])
        order = np.argsort(starts, kind="stable")
        step, group, starts = step[order], group[order], starts[order]
        return SPANS.table(group=group, step=step, start_cycle=starts, cycles=self.work.cycles[step])

    def critical(self) -> Table:
        times = np.zeros(self.work.num_steps, np.int64)
        own = self.shape.num_ipus * self.shape.stage_steps
        times[:own] = np.repeat(self._on_path, self.shape.stage_steps)
        times[own:] = 1
        rows = np.flatnonzero(times)
        return CRITICAL.table(program=self.work.program[rows], step=rows, cycles=(times * self.work.cycles)[rows])

    def groups(self, work: _Work, tiles: int) -> Table:
        parts = {}
        own = self.shape.num_ipus * self.shape.stage_steps
        for part in ("compute", "exchange", "sync", "host"):
            cycles = getattr(work, f"{part}_cycles")
            mine = cycles[:own].reshape(self.shape.num_ipus, -1).sum(axis=1) * self.shape.micro_batches
            loading = np.full(self.shape.num_ipus, cycles[self.shared.stop :].sum())
            parts[f"{part}_cycles"] = np.concatenate([mine + cycles[self.shared].sum(), loading])
        busy = sum(parts.values())
        end = np.where(np.arange(len(busy)) < self.shape.num_ipus, self.total, busy)
        return GROUPS.table(
            name=[f"IPU {i}" for i in range(self.shape.num_ipus)] * 2,
            program=np.repeat([0, 1], self.shape.num_ipus),
            tiles=tiles,
            busy_cycles=busy,
            idle_cycles=end - busy,
            **parts,
            end_cycle=end,
            tile_balance=0.65,
        )


class _Held:
    """Places and lifetimes of variables."""

    def __init__(self, rng: np.random.Generator, shape: Shape, tiles_per_ipu: int, num_steps: int) -> None:
        count = shape.variables
        self.num_tiles, self.num_steps, self.length = tiles_per_ipu * shape.num_ipus, num_steps, shape.stage_steps
        self.tiles_per_ipu, self.num_ipus = tiles_per_ipu, shape.num_ipus
        self.stage = np.sort(rng.integers(0, shape.num_ipus, count))
        self.always = rng.random(count) < 0.4
        pieces = rng.choice([1, 2, 4, 8, 16], count)
        self.owner = np.repeat(np.arange(count), pieces)
        place = np.arange(len(self.owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        room = (tiles_per_ipu // pieces)[self.owner]
        self.count = np.maximum(room * rng.integers(1, 5, count)[self.owner] // 4, 1)
        self.first = self.stage[self.owner] * tiles_per_ipu + place * room
        typical = np.where(self.always, rng.lognormal(5.2, 0.8, count), rng.lognormal(7.0, 0.8, count)) / 3
        self.bytes = np.maximum((typical[self.owner] * rng.uniform(0.8, 1.2, len(self.owner))).astype(np.int64), 2) & ~1
        self.padded = (self.bytes + 7) & ~7
        born = rng.integers(0, shape.stage_steps, count)
        dies = np.minimum(born + rng.geometric(1 / 12, count), shape.stage_steps - 1)
        offset = self.stage * shape.stage_steps
        self.born, self.dies = np.where(self.always, -1, born + offset), np.where(self.always, -1, dies + offset)
        starts = np.cumsum(pieces) - pieces
        layer = rng.integers(0, 6, count)
        which = np.array([f"stage{s}/{_BLOCKS[b]}" for s in range(shape.num_ipus) for b in range(len(_BLOCKS))])
        ends = np.where(self.always, "weights", "activations")
        scopes = which[self.stage * len(_BLOCKS) + layer].tolist()
        names = [f"{scope}/{end}_{i}" for i, (scope, end) in enumerate(zip(scopes, ends.tolist(), strict=True))]
        self.variables = VARIABLES.table(
            name=Text(np.arange(count, dtype=np.int32), tuple(names)),
            type=Text(rng.integers(0, 3, count).astype(np.int32), ("f16", "f32", "i32")),
            bytes=np.add.reduceat(self.bytes * self.count, starts),
            tiles=np.add.reduceat(self.count, starts),
            always_live=self.always,
            first_step=self.born,
            last_step=self.dies,
            shape=Text(rng.integers(0, 3, count).astype(np.int32), ("32 x 128", "64", "8 x 16 x 16")),
            role=Text(np.where(self.always, 1, 0).astype(np.int32), ("temporary", "weight")),
            file=Text(np.zeros(count, np.int32), ("model/transformer.py",)),
            line=10 + np.arange(count) % 240,
            op=np.where(self.always, -1, _op_of_rows(self.born, shape)),
            alignment_bytes=8,
            interleaved=np.arange(count) % 11 == 0,
        )
        self.variable_tiles = VARIABLE_TILES.table(
            variable=self.owner,
            first_tile=self.first,
            num_tiles=self.count,
            bytes=self.bytes,
            padded_bytes=self.padded,
        )
        rows = np.flatnonzero(~self.always)
        self.lifetimes = LIFETIMES.table(variable=rows, first_step=self.born[rows], last_step=self.dies[rows])
        self._live_bytes, self._most_on_tile, self._worst = self._followed()

    def by_tile(self, *, always: bool) -> Int64:
        """Bytes of variables that live always, or not, on each tile, int64[tiles]."""
        rows = self.always[self.owner] == always
        return _spread(self.first[rows], self.count[rows], self.padded[rows], self.num_tiles)

    def by_tile_at_worst(self) -> Int64:
        """Bytes of the others at the step at which each tile holds most of them, int64[tiles]."""
        return self._worst

    def liveness(self) -> Table:
        return LIVENESS.table(
            step=np.arange(self.num_steps), live_bytes=self._live_bytes, max_tile_bytes=self._most_on_tile
        )

    def _followed(self) -> tuple[Int64, Int64, Int64]:
        """Live bytes and the most on a tile by step, and the most of any step by tile: an IPU at a time."""
        live, most = np.zeros(self.num_steps, np.int64), np.zeros(self.num_steps, np.int64)
        worst = np.zeros(self.num_tiles, np.int64)
        for ipu in range(self.num_ipus):
            rows = (self.stage[self.owner] == ipu) & ~self.always[self.owner]
            variable, size = self.owner[rows], self.padded[rows]
            born, dead = self.born[variable] - ipu * self.length, self.dies[variable] - ipu * self.length + 1
            left = self.first[rows] - ipu * self.tiles_per_ipu
            right = left + self.count[rows]
            held = np.zeros((self.length + 1, self.tiles_per_ipu + 1), np.int64)
            for step, tile, sign in ((born, left, 1), (born, right, -1), (dead, left, -1), (dead, right, 1)):
                np.add.at(held, (step, tile), sign * size)
            held = held.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
            place = slice(ipu * self.length, (ipu + 1) * self.length)
            live[place], most[place] = held.sum(axis=1), held.max(axis=1)
            worst[ipu * self.tiles_per_ipu : (ipu + 1) * self.tiles_per_ipu] = held.max(axis=0)
        return live, most, worst


def _spread(first: Int64, count: Int64, values: Int64, num_tiles: int) -> Int64:
    change = np.zeros(num_tiles + 1, np.int64)
    np.add.at(change, first, values)
    np.subtract.at(change, first + count, values)
    return np.cumsum(change[:-1])


def _op_of(work: _Work, shape: Shape) -> Int64:
    """The operation of each step, int64[steps]; those of a stage are neighbours."""
    own = shape.num_ipus * shape.stage_steps
    op = _op_of_rows(np.arange(work.num_steps), shape)
    op[own:] = shape.ops - 2
    op[own + shape.shared_steps :] = shape.ops - 1
    return op


def _op_of_rows(rows: Int64, shape: Shape) -> Int64:
    """The operation of steps of stages, by their rows."""
    of_stage = (shape.ops - 2) // shape.num_ipus
    stage, inside = np.divmod(rows, shape.stage_steps)
    return stage * of_stage + inside * of_stage // shape.stage_steps


def _steps(work: _Work, times: _Times, shape: Shape) -> Table:
    op, words = _op_of(work, shape), _KINDS.tolist()
    names = tuple(f"{path}/{name}/{word}" for path, name in _op_names(shape) for word in words)
    return STEPS.table(
        name=Text((op * len(words) + work.kind).astype(np.int32), names),
        kind=Text(work.kind.astype(np.int32), tuple(words)),
        program=work.program,
        op=op,
        superstep=np.arange(work.num_steps),
        executions=work.executions,
        cycles=work.cycles,
        compute_cycles=work.compute_cycles,
        exchange_cycles=work.exchange_cycles,
        sync_cycles=work.sync_cycles,
        host_cycles=work.host_cycles,
        tile_balance=work.balance,
        exchanged_bytes=work.exchanged,
        max_receive_bytes=work.most_received,
        num_vertices=np.where(work.compute_cycles > 0, work.active * 6, 0),
        active_tiles=work.active,
        start_cycle=times.start_cycles(),
        basis="static",
        phase=np.arange(work.num_steps),
        partner=Text(np.where(work.kind == 3, 1, 0).astype(np.int32), ("", "host")),
    )


def _op_names(shape: Shape) -> list[tuple[str, str]]:
    """Path and name of each operation."""
    named = []
    for op in range(shape.ops - 2):
        stage = op // ((shape.ops - 2) // shape.num_ipus)
        block = _BLOCKS[op % len(_BLOCKS)]
        named.append((f"model/stage{stage}/layer{op // len(_BLOCKS)}/{block.split('/')[0]}", f"{block}_{op}"))
    return [*named, ("optimizer", "weight_update"), ("", "load_weights")]


def _ops(steps: Table, shape: Shape) -> Table:
    op, program = steps["op"], steps["program"]
    times = steps["executions"] * (program == 0)
    sums = {}
    for name in ("cycles", "compute_cycles", "exchange_cycles", "sync_cycles", "host_cycles"):
        sums[name] = np.bincount(op, times * steps[name], shape.ops).astype(np.int64)
    numbers = np.arange(shape.ops)
    names = _op_names(shape)
    return OPS.table(
        name=[name for _, name in names],
        kind=Text((numbers % len(_CALLS)).astype(np.int32), _CALLS),
        path=[path for path, _ in names],
        file=Text((numbers % 3).astype(np.int32), ("model/transformer.py", "model/attention.py", "train.py")),
        line=10 + numbers % 240,
        executions=shape.micro_batches,
        **sums,
        flops=sums["compute_cycles"] * 90_000,
        code_bytes=400 + numbers % 37 * 64,
        share=sums["cycles"] / max(int(sums["cycles"].sum()), 1),
    )


def _runs(cycles: int, shape: Shape) -> Table:
    return RUNS.table(
        name=["load weights", "train", "train", "train"],
        program=[1, 0, 0, 0],
        mode="native",
        threads=2,
        wall_seconds=[0.8, 3.2, 3.1, 3.15],
        waiting_seconds=[0.0, 0.4, 0.1, 0.1],
        sending_seconds=0.05,
        reading_seconds=0.02,
        samples=[0, *([16 * shape.micro_batches] * 3)],
        cycles=[0, cycles, cycles, cycles],
    )


def _host_leaves(rng: np.random.Generator) -> Table:
    count = 50
    seconds = rng.lognormal(-4, 1, count)
    return HOST_LEAVES.table(
        name=[f"stage{i}/attention" for i in range(count)],
        kind="kernel",
        calls="poplin.matmul",
        executions=20,
        seconds=seconds,
        busy_seconds=seconds * 1.9,
        best_seconds=seconds / 25,
        balance=0.95,
        units=64,
        flops=rng.integers(10**6, 10**9, count),
        read_bytes=rng.integers(10**4, 10**7, count),
        written_bytes=rng.integers(10**4, 10**7, count),
        lanes=8,
    )


def tiny() -> Report:
    """One tile and one step: 100 cycles, 64 bytes."""
    target = {**systems.bow_2000().with_ipus(1).figures(), "num_tiles": 1, "tiles_per_ipu": 1}
    return Report(
        target=target,
        graph={"num_variables": 1, "num_compute_sets": 1, "num_vertices": 1, "num_steps": 1},
        steps=STEPS.table(
            name=["add/compute"], kind=["compute"], op=[0], superstep=[0], cycles=[100], compute_cycles=[80],
            sync_cycles=[20], tile_balance=[1.0], num_vertices=[1], active_tiles=[1], start_cycle=[0], basis=["static"],
            phase=[0],
        ),
        ops=OPS.table(
            name=["add"], kind=["popops.add"], file=["one.py"], line=[3], cycles=[100], compute_cycles=[80],
            sync_cycles=[20], flops=[16], code_bytes=[40], share=[1.0],
        ),
        memory=Memory.of(1, 637_872, variables=64, vertex_code=40, stacks=512),
        variables=VARIABLES.table(name=["x"], type=["f32"], bytes=[64], tiles=[1], always_live=[True]),
        liveness=LIVENESS.table(step=[0]),
        groups=GROUPS.table(
            name=["IPU 0"], tiles=[1], busy_cycles=[100], compute_cycles=[80], sync_cycles=[20], end_cycle=[100],
            tile_balance=[1.0],
        ),
        spans=SPANS.table(cycles=[100]),
        critical=CRITICAL.table(cycles=[100]),
        step_groups=STEP_GROUPS.table(step=[0]),
        phase_tiles=PHASE_TILES.table(phase=[0], compute_cycles=[80]),
        program_tiles=PROGRAM_TILES.table(program=[0], compute_cycles=[80]),
        variable_tiles=VARIABLE_TILES.table(variable=[0], bytes=[64], padded_bytes=[64]),
        meta={"name": "tiny", "abele_version": "0.1.0", "programs": ["main"], "figures_of": ["assumptions"]},
    )  # fmt: skip


def empty() -> Report:
    """One tile of memory, and no row in any table: as little as a file may hold."""
    target = {**systems.bow_2000().with_ipus(1).figures(), "num_tiles": 1, "tiles_per_ipu": 1}
    tables: dict[str, Any] = {schema.name: schema.empty() for schema in (STEPS, OPS, VARIABLES, LIVENESS)}
    return Report(target=target, graph={}, memory=Memory.of(1, 637_872), **tables)


def out_of_memory() -> Report:
    """The small report on a machine whose tiles have less memory than its fullest ones need."""
    report = small()
    held = report.memory
    short = int(held.run_bytes.sum(axis=0).max()) * 9 // 10
    memory = Memory(held.run_bytes, short, held.categories, held.run_tiles)
    name = "small transformer that does not fit"
    return replace(report, memory=memory, runs=RUNS.empty(), meta={**report.meta, "name": name})


def write_big(path: Path) -> int:
    """Write a report file of more than 2 GB; takes about 8 GB of memory and a minute.

    Returns:
        Bytes of the file.
    """
    made(BIG, "a long run on a Pod64").save(path)
    return path.stat().st_size


MADE = {"pod64": pod64, "small": small, "tiny": tiny, "empty": empty, "out_of_memory": out_of_memory}
"""Reports by name."""


def main(arguments: list[str]) -> int:
    """Write the report of the first argument's name to the file of the second."""
    if len(arguments) != 2 or arguments[0] not in {*MADE, "big"}:
        print(f"viewer_reports.py {'|'.join([*MADE, 'big'])} OUT.abele-report", file=sys.stderr)
        return 2
    path = Path(arguments[1])
    if arguments[0] == "big":
        write_big(path)
    else:
        MADE[arguments[0]]().save(path)
    print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
