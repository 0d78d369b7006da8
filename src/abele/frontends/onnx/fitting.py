"""``fit``: the smallest machine that holds an ONNX model, and the fastest way to spread it over a machine.

A model with an open batch is read once for each size of the micro-batch; one whose batch is fixed has that size alone.
A stage may begin where a module of the exporter's names does, or a node where names say no modules. With a batch of
512 for a Bow-2000, a model of four layers is read with micro-batches of 1, 2, 4, …, for as long as that pays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import onnx

from abele.errors import InvalidOptionError
from abele.fitting import (
    FitSpace,
    Fitted,
    Ranked,
    Recomputation,
    Spreading,
    check_counts,
    fit_network,
    fitted_card,
    fitted_dict,
    fitted_text,
    sizes_around,
)
from abele.fitting import Model as FitModel
from abele.frontends.onnx.errors import ModelShapeError
from abele.frontends.onnx.files import Source, file_name, read_model
from abele.frontends.onnx.model import Model, Shapes, bound_shapes
from abele.frontends.onnx.training import Loss, trained
from abele.machine import System, systems
from abele.network import Adam, Group, Network, Optimiser, OutputMode, Schedule
from abele.report import Report
from abele.session import Settings
from abele.session import changes_to_fit as changes_of_network
from abele.session.remedies import NetworkCase

Progress = Callable[[str, float], None]
Begins = list[tuple[int, str]]
"""Number of ops before each node, and the first tensor that the node makes."""


@dataclass(frozen=True, kw_only=True)
class FitCase:
    """A model that is fitted: a file, its shapes, and how it is trained.

    Attributes:
        source: The file.
        shapes: As :func:`~abele.frontends.onnx.model.load` takes them; the batch is bound for each size anew.
        values: As there.
        loss: As :class:`~abele.frontends.onnx.training.ModelTraining` takes it.
        optimizer: Update rule; None to run the model forward alone.
        parameters: Names of the initialisers to train; all of floats if left out.
    """

    source: Source
    shapes: Shapes = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    loss: str | Loss | None = None
    optimizer: Optimiser | None = None
    parameters: Sequence[str] | None = None

    @cached_property
    def graph(self) -> onnx.GraphProto:
        """The file's graph, read once; nothing changes it."""
        return read_model(self.source)[0].graph

    def own_size(self) -> int:
        """Samples of the model as it is, the first dimension of its inputs; 1 for an open one."""
        graph = self.graph
        bound = bound_shapes(graph, self.sized(graph, 1) if self._is_unbound(graph) else self.shapes, self._held)
        return next((shape[0] for shape in bound.values() if shape), 1)

    def read(self, size: int) -> tuple[Network, tuple[Group, ...] | None, Begins]:
        """Its network with micro-batches of a size.

        Raises:
            ModelShapeError: The model has another size in all its inputs.
        """
        proto, folder = read_model(self.source)
        shapes, begins = self.sized(proto.graph, size), Begins()
        model = Model(proto, folder, shapes, self.values, file=file_name(self.source))
        own = next((p.shape[0] for p in model.inputs if p.shape), size)
        if own != size:
            raise ModelShapeError(
                f"the model takes {own} samples, not {size}",
                because="its batch is fixed in the file",
                remedy=f"--micro-batch {own}, or export the model with an open first dimension",
            )
        if self.optimizer is None:
            network = model.read(begins=begins)[2]
            return network, None, begins
        network = trained(model, self.loss, self.parameters, begins)[2]
        return network, (Group(self.optimizer, network.parameters),), begins

    @property
    def _held(self) -> frozenset[str]:
        return frozenset(self.values)

    def batched(self, graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
        """Inputs whose first dimension is the batch, if that is open: as is the first dimension of the first input."""
        known = {t.name for t in graph.initializer} | self._held
        inputs = [v for v in graph.input if v.name not in known and len(v.type.tensor_type.shape.dim)]
        firsts = [v.type.tensor_type.shape.dim[0] for v in inputs]
        if not inputs or firsts[0].HasField("dim_value"):
            return []
        name = firsts[0].dim_param
        alike = [not dim.HasField("dim_value") and dim.dim_param == name for dim in firsts]
        return [v for v, is_so in zip(inputs, alike, strict=True) if is_so]

    def _is_unbound(self, graph: onnx.GraphProto) -> bool:
        return any(
            v.name not in self.shapes and v.type.tensor_type.shape.dim[0].dim_param not in self.shapes
            for v in self.batched(graph)
        )

    def sized(self, graph: onnx.GraphProto, size: int) -> dict[str, int | Sequence[int]]:
        """Shapes with another number of samples."""
        made = dict(self.shapes)
        for declared in self.batched(graph):
            given, name = made.get(declared.name), declared.type.tensor_type.shape.dim[0].dim_param
            if isinstance(given, Sequence):
                made[declared.name] = (size, *given[1:])
            elif given is not None:
                made[declared.name] = size
            elif name:
                made[name] = size
        return made


def _starts(network: Network) -> frozenset[str] | None:
    """Paths at which a stage may begin: those of modules, and nodes outside of any; None where nothing has a name."""
    paths = {op.debug.path for op in network.ops if op.debug.path}
    every = {"/".join(names[: n + 1]) for names in (p.split("/") for p in paths) for n in range(len(names))}
    return frozenset(every) or None


@dataclass(frozen=True)
class ModelFit:
    """Best ways to spread an ONNX model over a machine; ``print`` shows them.

    Attributes:
        fitted: The plans found.
        case: The model.
        begins: Number of ops before each node, and the first tensor that it makes, by size of the micro-batch.
    """

    fitted: Fitted
    case: FitCase
    begins: Mapping[int, Begins] = field(repr=False)

    @property
    def ranking(self) -> tuple[Ranked, ...]:
        """Plans that fit, the fastest first, each with its estimate and the reason why it is not the best."""
        return self.fitted.ranking

    @property
    def best(self) -> Ranked:
        """The fastest plan."""
        return self.fitted.best

    @property
    def smallest(self) -> int:
        """IPUs of the smallest machine that holds the model."""
        return self.fitted.smallest

    def stages(self, ranked: Ranked | Spreading | None = None) -> dict[str, int]:
        """Stages of a plan, by default the best, as :func:`~abele.frontends.onnx.model.load` takes them."""
        plan = ranked.plan if isinstance(ranked, Ranked) else ranked or self.best.plan
        segments, begins = self.fitted.chains[plan.model_size].segments, self.begins[plan.micro_batch]
        places = [place for place, _ in begins]
        found = {}
        for stage, cut in enumerate(plan.cuts, 1):
            node = bisect_right(places, segments[cut].begin) - 1
            found[begins[node][1]] = plan.ipu_of(stage)
        return found

    def code(self, ranked: Ranked | Spreading | None = None) -> str:
        """A plan, by default the best, as code that loads the model so and runs it."""
        plan = ranked.plan if isinstance(ranked, Ranked) else ranked or self.best.plan
        return "\n".join(_code(self, plan))

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return {**fitted_dict(self.fitted), "code": self.code()}

    def __str__(self) -> str:
        return f"{fitted_text(self.fitted)}\n\n{self.code()}"

    def _repr_html_(self) -> str:
        return fitted_card(self.fitted)


def fit(
    source: Source,
    shapes: Shapes | None = None,
    *,
    loss: str | Loss | None = None,
    optimizer: Optimiser | None = None,
    system: System | str = "pod16",
    batch: int | None = None,
    micro_batches: Sequence[int] | None = None,
    io_tiles: Sequence[int] = (0,),
    settings: Settings | None = None,
    check: int = 1,
    progress: Progress | None = None,
    **more: Any,
) -> ModelFit:
    """Find the smallest machine that holds a model and the fastest way to spread it over a machine; nothing runs.

    Args:
        source: The file, its bytes, or a model.
        shapes: As :func:`~abele.frontends.onnx.model.load` takes them. The first dimension of the first input is the
            batch; where the model leaves it open, micro-batches of other sizes are tried.
        loss: As :class:`~abele.frontends.onnx.training.ModelTraining` takes it; the model's first output if left out.
        optimizer: Update rule that trains the model, :class:`~abele.network.Adam` where there is a loss; without either
            the model runs forward alone.
        system: The machine: a preset's name, a file, or a System.
        batch: Samples of one update; None for as many as make the rest of an update hardly count.
        micro_batches: Sizes to try; by default the shapes' own, doubled while it pays, or halved until it fits.
        io_tiles: Numbers of IO tiles to try.
        settings: Settings of compilation.
        check: Number of the fastest plans that are compiled as a whole, to set figures side by side.
        progress: Called with what is done and the part of it that is.
        **more: ``values`` and ``parameters``, as :func:`~abele.frontends.onnx.model.load` and
            :class:`~abele.frontends.onnx.training.ModelTraining` take them.

    Raises:
        FittingError: Nothing fits, nothing can be cut, or no division of the batch is left.
        InvalidOptionError: Numbers that are no numbers of samples or plans.
        ModelError: As of reading the model.
    """
    check_counts(batch, micro_batches, check)
    rule = optimizer if optimizer is not None or loss is None else Adam()
    case = FitCase(source=source, shapes=shapes or {}, loss=loss, optimizer=rule, **more)
    own, begins = case.own_size(), dict[int, Begins]()

    def model_of(size: int, group: int = 1) -> FitModel:
        if group > 1:
            raise InvalidOptionError("fit: an ONNX model has no plan that splits its layers over replicas")
        net, groups, begins[size] = case.read(size)
        return FitModel(net, groups)

    first = model_of(micro_batches[0] if micro_batches else own)
    fixed = not case.batched(case.graph)
    sizes = tuple(dict.fromkeys(micro_batches)) if micro_batches else (own,) if fixed else sizes_around(own, batch)
    space = FitSpace(
        system=systems.resolve(system),
        batch=batch,
        micro_batches=sizes,
        first=None if micro_batches else own,
        io_tiles=tuple(dict.fromkeys(io_tiles)),
        settings=replace(settings or Settings(), cache=None),
        starts=_starts(first.net),
    )
    return ModelFit(fit_network(model_of, space, check=check, progress=progress), case, begins)


def changes_to_fit(
    case: FitCase,
    *,
    system: System | str = "bow-2000",
    micro_batch: int | None = None,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> Report:
    """Report of a model on one IPU, with the changes that make it fit there, found by compiling it so.

    Args:
        case: The model.
        system: The machine: a preset's name, a file, or a System.
        micro_batch: Samples of a micro-batch; None for those of the model's shapes.
        settings: Settings of compilation.
        progress: Called with each stage of each compilation, and the part of it that is done.
    """
    size = micro_batch or case.own_size()
    chosen = replace(settings or Settings(), system=systems.resolve(system))
    trains = case.optimizer is not None

    def schedule(parts: int) -> Schedule:
        return Schedule(accumulation=parts, outputs=OutputMode.FINAL) if trains else Schedule(device_iterations=parts)

    def smaller(parts: int) -> NetworkCase | None:
        if size % parts or not case.batched(case.graph):
            return None
        cut, groups, _ = case.read(size // parts)
        return NetworkCase(cut, schedule(parts), groups, chosen)

    net, groups, _ = case.read(size)
    return changes_of_network(
        net, schedule(1), groups=groups, settings=chosen, smaller=smaller, halved=None, progress=progress
    )


# --- code -------------------------------------------------------------------------------------------------------------


def _code(found: ModelFit, plan: Spreading) -> Iterator[str]:
    """A plan as lines of Python."""
    case, space = found.case, found.fitted.space
    graph = case.graph
    trains, several = found.fitted.training, plan.stages > 1 and not plan.phases
    classes = [type(case.optimizer).__name__] if trains else []
    schedule = list(_schedule(plan, trains))
    named = ("Locations", "OutputMode", "PipelineSchedule", "TensorLocation")
    classes += [name for name in named if name in " ".join(schedule)]
    yield "from abele import onnx"
    yield f"from abele.network import {', '.join(sorted([*classes, 'Schedule']))}"
    if plan.narrow_stash:
        yield "from abele.numerics import quarter"
    yield ""
    source = case.source if isinstance(case.source, (str, bytes)) else str(case.source)
    shown = repr(source) if isinstance(source, str) and len(source) < 500 else "model"
    stages = f", stages={found.stages(plan)!r}" if several else ""
    yield f"model = onnx.load({shown}, shapes={case.sized(graph, plan.micro_batch)!r}{stages})"
    settings = [repr(space.system.name.partition(":")[0])]
    shares = {share for share in plan.proportions if share is not None}
    if shares:
        settings.append(f"memory_proportion={min(shares):g}")
    if space.settings.partials != "f32":
        settings.append(f"partials={space.settings.partials!r}")
    if plan.shared_functions:
        settings.append("shared_functions=True")
    if several and trains and plan.recompute == Recomputation.NOTHING:
        settings.append("recompute_stages=False")
    yield f"model.configure({', '.join(settings)})"
    yield f"schedule = Schedule({', '.join(schedule)})"
    if trains:
        yield f"step = model.train({_loss(case.loss)}, {_short(case.optimizer)}, schedule=schedule)"
    else:
        yield "session = model.session(schedule)"
    if plan.phases:
        yield f"# the plan runs in {plan.stages} phases with all tensors in streaming memory, which load does not take"
    if plan.checkpoints:
        yield f"# and keeps what parts {', '.join(map(str, plan.checkpoints))} read, which load does not take"


def _loss(loss: str | Loss | None) -> str:
    return f"onnx.{_short(loss)}" if isinstance(loss, Loss) else repr(loss)


def _short(made: Any) -> str:
    """A dataclass as it would be written: with the fields that differ from their defaults."""
    changed = [f"{f.name}={getattr(made, f.name)!r}" for f in fields(made) if getattr(made, f.name) != f.default]
    return f"{type(made).__name__}({', '.join(changed)})"


def _schedule(plan: Spreading, trains: bool) -> Iterator[str]:
    """Arguments of the schedule of a plan."""
    yield f"{'accumulation' if trains else 'device_iterations'}={plan.accumulation}"
    if trains:
        yield "outputs=OutputMode.FINAL"
    if plan.replicas > 1:
        yield f"replicas={plan.replicas}"
    if plan.io_tiles:
        yield f"io_tiles={plan.io_tiles}"
    if plan.turns:
        yield "pipeline=PipelineSchedule.INTERLEAVED"
    if plan.narrow_stash:
        yield 'stash=quarter("F143", 0)'
    places = []
    if plan.state.is_off_chip or plan.state.is_sharded:
        places.append(
            f"optimiser=TensorLocation(on_chip={not plan.state.is_off_chip}, sharded={plan.state.is_sharded})"
        )
    if plan.waits_off_chip and not plan.phases:
        places.append("activations=TensorLocation(on_chip=False)")
    if places and not plan.phases:
        yield f"locations=Locations({', '.join(places)})"
