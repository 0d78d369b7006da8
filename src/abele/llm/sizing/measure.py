"""Costs of part of a language model on one IPU of a group, read off the program that the compiler makes of it.

A part is a module and the shapes of its inputs: some layers of a decode step, or the ends of a model. Nothing holds
weights: the compiler asks for shapes alone. Of 80 layers two are compiled: what the second adds to the first is what
each further one adds, in cycles and in bytes of each tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from abele.compiler import Executable, compile_program
from abele.distribution import NetworkProgram, lower_network
from abele.fitting.measure import bytes_by_category, bytes_of_variables, exchange_registers, meets_replicas
from abele.frontends.poptorch.fitting.fit import recorded
from abele.frontends.poptorch.program.recording import COMPILING, recording
from abele.graph import Graph
from abele.llvm.kept import kept
from abele.machine import System
from abele.network import Locations, Network, Schedule, TensorLocation, inference_pipeline
from abele.poplibs.gcl import CommGroup
from abele.report import Report
from abele.session import Settings
from abele.session.store import content_key

Bytes = npt.NDArray[np.int64]

WORK = ("streaming", "collectives", "products", "attention", "elementwise", "exchange", "sync")
"""Kinds of work: copies from and to streaming memory; sums between IPUs; vertices of products, with their reads of
weights from tile memory; vertices of attention; other vertices; exchange between tiles; sync of tiles."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PartCost:
    """Cycles of one run of a part, and bytes of each tile; arrays are int64[tiles].

    Attributes:
        streaming: Cycles of copies from and to streaming memory.
        collectives: Cycles of supersteps that meet other IPUs.
        products: Compute cycles of products with weights.
        attention: Compute cycles of attention.
        elementwise: Other compute cycles.
        exchange: Cycles of exchange between tiles.
        sync: Cycles of sync.
        host: Cycles of streams of the host.
        weights: Weights on the chip.
        cache: Keys and values on the chip.
        other: Other variables that are always live, with gaps.
        code: Vertex state and code of exchanges and control.
        code_again: The part of it that an equal layer has besides, as in fitting.
        vertex_code: Codelets.
        overhead: Stacks and stream buffers.
        peak: Most bytes of temporaries at a time.
        available: Bytes that a tile has.
        weight_bytes: Bytes of weights over all tiles, wherever they lie.
        streamed_bytes: Bytes of weights that come from streaming memory.
        joules: Likely dynamic energy of one run on one IPU.
    """

    streaming: int
    collectives: int
    products: int
    attention: int
    elementwise: int
    exchange: int
    sync: int
    host: int
    weights: Bytes
    cache: Bytes
    other: Bytes
    code: Bytes
    code_again: Bytes
    vertex_code: Bytes
    overhead: Bytes
    peak: Bytes
    available: int
    weight_bytes: int
    streamed_bytes: int
    joules: float

    @property
    def cycles(self) -> int:
        """Cycles on the chip: without the host's streams."""
        return sum(getattr(self, name) for name in WORK)


@dataclass(frozen=True)
class ModelPart:
    """A module that is compiled by itself.

    Attributes:
        module: The module, on the device "meta".
        inputs: Its arguments, tensors of any content.
        streamed: True if weights come from streaming memory.
    """

    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    streamed: bool = False


def measured(part: ModelPart, group: int, system: System, settings: Settings) -> PartCost:
    """Costs of a part on each IPU of a group; compiled, unless that was done before.

    Args:
        part: The part, with an IPU's share of heads, features and vocabulary.
        group: IPUs that compute a model together, each a replica.
        system: The machine, of which as many IPUs are used.
        settings: Planning of products.

    Raises:
        AbeleError: As of capturing and compiling.
    """
    module = part.module.to_empty(device="cpu").eval()  # Memory that nobody touches.
    with torch.no_grad(), COMPILING.held(), recording():
        net = recorded(module, part.inputs, training=False).net
    if part.streamed:
        net = _with_codes_as_parameters(net)
    target = replace(settings, system=system.with_ipus(group), name="part")
    schedule = _schedule(group, streamed=part.streamed)
    key = f"{content_key(net, schedule, None, target)} {target.system!r}"
    return kept(key, PartCost, lambda: _measured(net, schedule, target))


_CODES = ("codes", "scales", "offsets")
"""Names of the buffers of quantised weights."""


def _with_codes_as_parameters(net: Network) -> Network:
    """The network with quantised weights as parameters, which may lie in streaming memory."""
    codes = tuple(v for v in net.buffers if v.name.rpartition(".")[2] in _CODES and v not in net.updates)
    others = tuple(v for v in net.buffers if v not in codes)
    return replace(net, parameters=(*net.parameters, *codes), buffers=others)


def _schedule(group: int, *, streamed: bool) -> Schedule:
    together = CommGroup.consecutive(group) if group > 1 else CommGroup.none()
    where = Locations(weights=TensorLocation(on_chip=False)) if streamed else Locations()
    return Schedule(replicas=group, input_groups=together, tensor_parallel=together, locations=where)


def _measured(net: Network, schedule: Schedule, settings: Settings) -> PartCost:
    assert isinstance(settings.system, System)
    graph = Graph(settings.system, replicas=schedule.replicas)
    final = inference_pipeline().run(net)
    program = lower_network(final, graph, schedule, planning=settings.planning, modes=settings.modes)
    run = compile_program(graph, program.program, allow_out_of_memory=True)
    found: dict[str, Any] = {**_work(run), **_memory(run, program, final)}
    return PartCost(**found, joules=_joules(run.report, schedule.replicas))


def _work(run: Executable) -> dict[str, int]:
    """Cycles by what they go to."""
    steps = run.report.steps
    times = np.asarray(steps["executions"])
    spent = {name: np.asarray(steps[f"{name}_cycles"]) * times for name in ("compute", "exchange", "sync", "host")}
    partner, name = (np.array([str(word) for word in steps[column]]) for column in ("partner", "name"))
    remote, stream = partner == "streaming memory", np.array([kind == "stream" for kind in steps["kind"]], bool)
    meets = meets_replicas(run)
    inside = ~stream & ~meets
    attends, multiplies = (np.array([_is(words, text) for text in name], bool) for words in (_ATTENDS, _MULTIPLIES))
    whole = sum(spent.values())

    def total(cycles: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_]) -> int:
        return int(cycles[chosen].sum())

    return {
        "streaming": total(whole, stream & remote),
        "collectives": total(whole, meets & ~stream),
        "attention": total(spent["compute"], inside & attends),
        "products": total(spent["compute"], inside & ~attends & multiplies),
        "elementwise": total(spent["compute"], inside & ~attends & ~multiplies),
        "exchange": total(spent["exchange"] + spent["host"], inside),
        "sync": total(spent["sync"], inside),
        "host": total(whole, stream & ~remote),
    }


_ATTENDS = ("cached_attention", "scaled_dot_product_attention", "softmax", "matmul_grouped")
_MULTIPLIES = ("/linear/", "/matmul/", "quantised_linear", "quantised")


def _is(words: Sequence[str], text: str) -> bool:
    return any(word in text for word in words)


def _memory(run: Executable, program: NetworkProgram, net: Network) -> dict[str, Bytes | int]:
    """Bytes of each tile by category, and bytes of weights."""
    held, tiles = bytes_by_category(run), run.system.ipu.num_tiles
    none = np.zeros(tiles, np.int64)
    changed = {value.name for value in net.updates}
    on_chip = program.weights
    weights = _bytes(run, {n: t for n, t in on_chip.items() if n not in changed})
    cache = _bytes(run, {n: t for n, t in on_chip.items() if n in changed})
    every = sum((held[name] for name in ("vertex_state", "control_code", "exchange_code")), none)
    again = held["vertex_state"] + held["control_code"] + exchange_registers(run, range(len(run.plan)))
    entering = [v for v in (*net.parameters, *net.buffers) if v.name not in changed]
    away = program.remote_weights.keys()
    size = {v.name: int(np.prod(v.shape, dtype=np.int64)) * v.dtype.bytes for v in entering}
    return {
        "weights": weights,
        "cache": cache,
        "other": held["variables"] + held["gaps"] - weights - cache,
        "code": every,
        "code_again": again,
        "vertex_code": held["vertex_code"],
        "overhead": held["stacks"] + held["stream_buffers"],
        "peak": held["temporaries"],
        "available": int(run.report.memory.available_bytes),
        "weight_bytes": sum(size.values()),
        "streamed_bytes": sum(count for name, count in size.items() if name in away),
    }


def _bytes(run: Executable, tensors: Mapping[str, object]) -> Bytes:
    variables = dict.fromkeys(v for tensor in tensors.values() for v in tensor.variables)  # type: ignore[attr-defined]
    return bytes_of_variables(run, variables)


def _joules(report: Report, replicas: int) -> float:
    """Likely dynamic energy of one run on each IPU."""
    energy = report.energy
    return 0.0 if energy is None else energy.joules.likely / replicas
