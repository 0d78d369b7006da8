"""Spreads of a language model over IPUs, and what a decode step costs in one.

A spread has ``replicas`` models side by side, each in ``stages`` of a pipeline, each of which is a group of ``group``
IPUs. Llama-2 13B in 4 stages of 4 IPUs has 10 layers per stage. Sequences of one model are in ``stages`` groups that
follow each other round, so that all stages work where there are as many sequences.

A stage's cycles and bytes are those of two compiled layers, and of what a third adds for each further one. Weights that
come from streaming memory come layer by layer: one layer's program is there, and its weights take the place of the last
one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from abele.compiler.durations import remote_cycles
from abele.fitting.traffic import transfer_cycles
from abele.graph import Graph
from abele.llm.config import ModelConfig
from abele.llm.sizing.measure import WORK, Bytes, ModelPart, PartCost, measured
from abele.llm.sizing.parts import PAGE, ends_part, layers_part, share_of
from abele.machine import System
from abele.session import Settings

PREFILL_TOKENS, STREAMED_PREFILL_TOKENS = 128, 512
"""Most tokens of a prompt that one run takes; more where each run brings all weights from streaming memory. Chosen:
work for the matrix unit, and scores that fit on tiles."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A task of a model: sizes of prompts and answers.

    Attributes:
        config: The model.
        prompt: Tokens of a prompt.
        new: Tokens that follow.
        batch: Sequences at a time on the whole machine.
        format: Number format of weights.
    """

    config: ModelConfig
    prompt: int
    new: int
    batch: int
    format: str = "f16"

    @property
    def positions(self) -> int:
        """Positions of the cache of each sequence."""
        return self.prompt + self.new


@dataclass(frozen=True, kw_only=True)
class DecodePlan:
    """A spread of a model.

    Attributes:
        group: IPUs that compute each layer together.
        stages: Stages of the pipeline.
        replicas: Models side by side.
        streamed: True if weights come from streaming memory, layer by layer.
        cache_off_chip: True if keys and values lie in streaming memory.
    """

    group: int
    stages: int = 1
    replicas: int = 1
    streamed: bool = False
    cache_off_chip: bool = False

    @property
    def ipus(self) -> int:
        """IPUs of all models."""
        return self.group * self.stages * self.replicas

    @property
    def ipus_of_model(self) -> int:
        """IPUs of one model."""
        return self.group * self.stages

    def sequences(self, batch: int) -> tuple[int, int]:
        """Sequences that a stage works on at a time, and the number of such groups in a model."""
        own = -(-batch // self.replicas)
        turns = min(self.stages, own)
        return -(-own // turns), turns

    def layers(self, config: ModelConfig) -> tuple[int, ...]:
        """Layers of each stage; those with embedding and head have fewer where they do not divide."""
        each, more = divmod(config.layers, self.stages)
        order = [*range(1, self.stages - 1), 0, self.stages - 1] if self.stages > 1 else [0]
        return tuple(each + (order.index(s) < more) for s in range(self.stages))

    def __str__(self) -> str:
        where = ("weights streamed" if self.streamed else "resident") + (", cache off chip" * self.cache_off_chip)
        return f"{self.replicas} x {self.stages} x {self.group}, {where}"


@dataclass(frozen=True)
class StageSums:
    """Cycles by kind of work, bytes of each tile by category, and joules: what parts add up to."""

    work: Mapping[str, float]
    bytes: Mapping[str, Bytes]
    joules: float

    @property
    def cycles(self) -> float:
        """All cycles."""
        return sum(self.work.values())


_LINEAR = ("weights", "cache", "other", "code", "peak")


@dataclass(frozen=True)
class LayerCosts:
    """Costs of any number of equal layers.

    Attributes:
        two: Two of them, as one program.
        three: Three of them.
    """

    two: PartCost
    three: PartCost

    def of(self, layers: int, *, looped: bool = False) -> StageSums:
        """Costs of ``layers`` layers.

        Args:
            layers: Their number.
            looped: True if one layer's program runs for all of them, whose weights are loaded.
        """
        one = self.two.joules + (layers - 2) * (self.three.joules - self.two.joules)
        work = {name: max(0.0, float(self._line(name, layers))) for name in WORK}
        held = {name: np.maximum(self._line(name, 1 if looped and name != "cache" else layers), 0) for name in _LINEAR}
        held["codelets"] = np.asarray(self.two.vertex_code)
        held["overhead"] = np.asarray(self.two.overhead)
        return StageSums(work, held, one)

    def _line(self, name: str, layers: int) -> Bytes:
        two, three = getattr(self.two, name), getattr(self.three, name)
        found: Bytes = two + (layers - 2) * (three - two)
        return found


@dataclass(frozen=True, kw_only=True)
class StageBytes:
    """Bytes of the fullest tile of a stage, and what IPUs hold.

    Attributes:
        fullest: Bytes that the fullest tile needs.
        available: Bytes that a tile has.
        weights: Bytes of weights of an IPU.
        cache: Bytes of keys and values of an IPU.
        temporaries: Bytes of temporaries of an IPU at their peak.
        code: Bytes of code of an IPU.
    """

    fullest: int
    available: int
    weights: int
    cache: int
    temporaries: int
    code: int

    @property
    def lacking(self) -> int:
        """Bytes that the fullest tile has too few."""
        return max(0, self.fullest - self.available)


@dataclass(frozen=True, eq=False, kw_only=True)
class DecodeCost:
    """Costs of a step of a spread.

    Attributes:
        plan: The spread.
        workload: The task.
        work: Seconds of a sequence's step by kind of work, transfers between stages and waiting included.
        step_seconds: Seconds from a token of a sequence to its next.
        memory: Bytes of each stage.
        joules_per_token: Dynamic energy of a token.
        rated_joules_per_token: The same at rated power.
        first_token_seconds: Seconds of one prompt up to its first token; None where it was not asked.
    """

    plan: DecodePlan
    workload: Workload
    work: Mapping[str, float]
    step_seconds: float
    memory: tuple[StageBytes, ...]
    joules_per_token: float
    rated_joules_per_token: float
    first_token_seconds: float | None = None

    @property
    def fits(self) -> bool:
        """True if every tile of every stage has room."""
        return not any(stage.lacking for stage in self.memory)

    @property
    def fullest(self) -> StageBytes:
        """The stage that is fullest."""
        return max(self.memory, key=lambda stage: stage.fullest)

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all sequences."""
        return self.workload.batch / self.step_seconds

    @property
    def binds(self) -> str:
        """The kind of work that takes most of a step."""
        return max(self.work, key=lambda name: self.work[name])


@dataclass
class Costing:
    """Costs of parts of one model on one machine, each compiled once.

    Attributes:
        config: The model.
        system: The machine.
        settings: Planning of products.
        format: Number format of weights.
        dtype: Type of activations.
    """

    config: ModelConfig
    system: System
    settings: Settings
    format: str = "f16"
    dtype: torch.dtype = torch.float16
    _found: dict[tuple[object, ...], PartCost] = field(default_factory=dict)

    def layers(self, *, group: int, batch: int, tokens: int, cached: int, streamed: bool) -> LayerCosts:
        """Costs of layers that take ``tokens`` new tokens of each of ``batch`` sequences."""
        two, three = (
            self._cost(layers_part, n, group=group, batch=batch, tokens=tokens, cached=cached, streamed=streamed)
            for n in (2, 3)
        )
        return LayerCosts(two, three)

    def ends(self, *, group: int, batch: int, tokens: int, streamed: bool, to_host: bool = False) -> PartCost:
        """Costs of embedding and head."""
        return self._cost(
            ends_part, group=group, batch=batch, tokens=tokens, cached=0, streamed=streamed, to_host=to_host
        )

    def _cost(self, make: object, *args: int, **how: int) -> PartCost:
        key = (make, *args, *sorted(how.items()))
        if key not in self._found:
            part: ModelPart = make(self.config, *args, dtype=self.dtype, format=self.format, **how)  # type: ignore[operator]
            # A function that layers share would copy its caches; in layers of their own they are changed in place.
            settings = replace(self.settings, shared_functions=False)
            self._found[key] = measured(part, how["group"], self.system, settings)
        return self._found[key]

    def decode(self, plan: DecodePlan, workload: Workload, *, with_prefill: bool = True) -> DecodeCost:
        """Costs of a spread.

        Args:
            plan: The spread.
            workload: The task.
            with_prefill: True to cost prompts too, whose programs share tiles with that of a step.

        Raises:
            AbeleError: Layers that do not divide, or an op without lowering.
        """
        batch, turns = plan.sequences(workload.batch)
        stages = self._stages(plan, batch, 1, workload.positions)
        period, moved = self._period([s.cycles for s in stages], batch, plan)
        # A sequence visits all stages, and waits for the slowest of them at each.
        seconds = self.system.seconds(plan.stages * period)
        total: dict[str, float] = {}
        for stage in stages:
            for name, cycles in stage.work.items():
                total[name] = total.get(name, 0.0) + self.system.seconds(cycles)
        if plan.stages > 1:
            total["transfers"] = self.system.seconds(plan.stages * moved)
            total["waiting"] = max(0.0, seconds - sum(total.values()))
        first: float | None = None
        prompts: list[StageSums] = []
        if with_prefill:
            tokens = min(STREAMED_PREFILL_TOKENS if plan.streamed else PREFILL_TOKENS, workload.prompt)
            prompts = self._stages(plan, 1, tokens, workload.positions)
            _, moved = self._period([s.cycles for s in prompts], tokens, plan)
            once = sum(s.cycles for s in prompts) + (plan.stages - 1) * moved
            slowest = max(s.cycles for s in prompts) + moved
            # Pieces of a prompt follow each other through the stages.
            first = self.system.seconds(
                once + (-(-workload.prompt // tokens) - 1) * (slowest if plan.stages > 1 else once)
            )
        # Every group of sequences makes one token each in a step.
        joules = plan.group * sum(s.joules for s in stages) / batch
        rated = self.system.ipu.energy.rated_watts * plan.ipus * seconds / workload.batch
        beside: list[StageSums | None] = [*prompts] or [None] * plan.stages
        memory = tuple(self._memory(step, prompt, turns) for step, prompt in zip(stages, beside, strict=True))
        return DecodeCost(
            plan=plan,
            workload=workload,
            work=total,
            step_seconds=seconds,
            memory=memory,
            joules_per_token=joules,
            rated_joules_per_token=rated,
            first_token_seconds=first,
        )

    def _period(self, cycles: Iterable[float], tokens: int, plan: DecodePlan) -> tuple[float, int]:
        """Cycles of the slowest stage with its transfer, and those of the transfer."""
        if plan.stages == 1:
            return max(cycles), 0
        size = tokens * self.config.hidden * self.dtype.itemsize
        ipus = plan.ipus_of_model
        sent = [
            (s * plan.group + g, (s + 1) * plan.group + g, size)
            for s in range(plan.stages - 1)
            for g in range(plan.group)
        ]
        moved = transfer_cycles(sent, ipus, self.system)
        return max(cycles) + moved, moved

    def _stages(self, plan: DecodePlan, batch: int, tokens: int, positions: int) -> list[StageSums]:
        """Costs of each stage of a step with ``tokens`` new tokens."""
        how = {"group": plan.group, "batch": batch, "tokens": tokens, "streamed": plan.streamed}
        layers = self.layers(cached=positions, **how)  # type: ignore[arg-type]
        ends = self.ends(**how)  # type: ignore[arg-type]
        found = []
        for number, count in enumerate(plan.layers(self.config)):
            stage = layers.of(count, looped=plan.streamed)
            if plan.cache_off_chip:
                stage = self._with_loads(stage, count, batch, tokens, positions, plan)
            share = self._ends_share(number, plan.stages)
            found.append(_joined(stage, ends, share) if share else stage)
        return found

    def _ends_share(self, stage: int, stages: int) -> float:
        """Part of embedding and head that a stage has: the first has the table, the last the head and a tied table."""
        if stages == 1:
            return 1.0
        each = 1.0 if self.config.tied_head else 0.5
        return each if stage in (0, stages - 1) else 0.0

    def _with_loads(
        self, stage: StageSums, layers: int, batch: int, tokens: int, positions: int, plan: DecodePlan
    ) -> StageSums:
        """A stage whose layers load their keys and values, and store the new ones."""
        share = share_of(self.config, plan.group)
        row = 2 * share.kv_heads * share.head_size * self.dtype.itemsize * batch
        pages = -(-positions // PAGE) * PAGE
        graph = Graph(self.system.with_ipus(plan.ipus_of_model), replicas=plan.ipus_of_model)
        cycles = layers * (remote_cycles(row * pages, 1, graph) + remote_cycles(row * tokens, 1, graph))
        held = {**stage.bytes, "cache": -(-stage.bytes["cache"] // layers)}
        work = {**stage.work, "streaming": stage.work["streaming"] + cycles}
        energy = self.system.ipu.energy.dram_joules_per_byte * layers * row * (pages + tokens)
        return StageSums(work, held, stage.joules + energy)

    def _memory(self, step: StageSums, prompt: StageSums | None, turns: int) -> StageBytes:
        """Bytes of a stage with both programs, which share weights, cache and stacks."""
        held = dict(step.bytes)
        held["cache"] = held["cache"] * turns
        if prompt is not None:
            held["code"] = held["code"] + prompt.bytes["code"]
            held["codelets"] = np.maximum(held["codelets"], prompt.bytes["codelets"])
            held["other"] = held["other"] + prompt.bytes["other"]
            held["peak"] = np.maximum(held["peak"], prompt.bytes["peak"])
        by_tile = sum(held.values(), np.zeros_like(held["peak"]))
        return StageBytes(
            fullest=int(by_tile.max()),
            available=next(iter(self._found.values())).available,
            weights=int(held["weights"].sum()),
            cache=int(held["cache"].sum()),
            temporaries=int(held["peak"].sum()),
            code=int((held["code"] + held["codelets"]).sum()),
        )


def _joined(stage: StageSums, ends: PartCost, share: float) -> StageSums:
    """A stage with its share of embedding and head."""
    work = {name: cycles + share * getattr(ends, name) for name, cycles in stage.work.items()}
    whole = share >= 1
    held = {
        name: stage.bytes[name]
        + (getattr(ends, name) if whole else np.ceil(share * getattr(ends, name)).astype(np.int64))
        for name in ("weights", "other", "code")
    }
    held["cache"] = stage.bytes["cache"]
    held["peak"] = np.maximum(stage.bytes["peak"], ends.peak)
    held["codelets"] = np.maximum(stage.bytes["codelets"], ends.vertex_code)
    held["overhead"] = np.maximum(stage.bytes["overhead"], ends.overhead)
    return StageSums(work, held, stage.joules + share * ends.joules)
