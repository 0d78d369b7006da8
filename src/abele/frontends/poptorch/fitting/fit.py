"""``fit``: the smallest machine that holds a PyTorch model, and the fastest way to spread it over a machine."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from abele.errors import InvalidOptionError
from abele.fitting import (
    FitSpace,
    Fitted,
    Miss,
    Model,
    Ranked,
    Recomputation,
    Spreading,
    StatePlace,
    check_counts,
    fit_network,
    fitted_card,
    fitted_dict,
    fitted_text,
    sizes_around,
)
from abele.frontends.poptorch.capture import CapturedModel, capture
from abele.frontends.poptorch.capture.capture import check_initialised
from abele.frontends.poptorch.enums import CommGroupType
from abele.frontends.poptorch.errors import ArgumentError, Error
from abele.frontends.poptorch.functions.tensor_parallel import Style, parallelize_module
from abele.frontends.poptorch.models.sharding import OwnValues
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.program.recording import COMPILING, recording
from abele.frontends.poptorch.training.rules import check_parameters, groups_of
from abele.frontends.poptorch.values import structures
from abele.machine import System, systems

# Examples: arguments of a micro-batch, in other sizes.


def batch_of(example: Any) -> int:
    """Samples of an example: the first dimension of its first tensor that has any.

    Raises:
        Error: It has no such tensor.
    """
    for leaf in structures.leaves(example):
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            return int(leaf.shape[0])
    raise Error("the example inputs have no tensor with a batch dimension", remedy="pass the inputs of one micro-batch")


def resized(example: Any, size: int) -> Any:
    """An example of another number of samples: tensors whose first dimension is the batch are cut or repeated."""
    batch = batch_of(example)

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.dim() or tensor.shape[0] != batch or size == batch:
            return tensor
        times = -(-size // batch)
        return tensor.repeat(times, *(1 for _ in tensor.shape[1:]))[:size]

    return structures.map_tensors(changed, example)


def arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An example as arguments and keyword arguments of a call.

    Raises:
        ArgumentError: It is neither a tensor nor a tuple, list or mapping of arguments.
    """
    if isinstance(example, torch.Tensor):
        return (example,), {}
    if isinstance(example, dict):
        return (), dict(example)
    if isinstance(example, (tuple, list)):
        return tuple(example), {}
    raise ArgumentError(
        f"the example inputs are {type(example).__name__}, not a tensor, or a tuple or mapping of the model's arguments"
    )


# Code: a plan as PopTorch code, ready to be pasted where the model is wrapped.

_NOTHING = 0
"""PopART's ``RecomputationType.NoRecompute``."""


def plan_code(
    fitted: Fitted, plan: Spreading, model: torch.nn.Module, first: str, split: SplitPlan | None = None
) -> str:
    """The options and blocks of a plan.

    Args:
        fitted: Plans that were found.
        plan: The plan.
        model: The model.
        first: Module path at which the model's first block begins; empty for the model itself.
        split: Plan by which replicas that compute the model together split layers.
    """
    lines = ["from abele import poptorch  # or: import poptorch", ""]
    if plan.group > 1:
        lines += [*_split_layers(plan, split or {}), ""]
    if plan.stages > 1:
        lines += [*_blocks(fitted, plan, model, first), ""]
    if fitted.training and plan.ipus > 1 and plan.recompute == Recomputation.SEGMENTS:
        lines += [*_checkpoints(fitted, plan, model), ""]
    return "\n".join([*lines, *_options(fitted, plan)])


def _split_layers(plan: Spreading, split: SplitPlan) -> Iterator[str]:
    yield "from abele.poptorch import tensor_parallel"
    yield ""
    yield f"tensor_parallel.parallelize_module(model, {plan.group}, {{"
    for name, style in split.items():
        yield f"    {name!r}: {style!r}," if isinstance(style, str) else f"    {name!r}: tensor_parallel.{style!r},"
    yield "})"


def _options(fitted: Fitted, plan: Spreading) -> list[str]:
    lines = ["opts = poptorch.Options()", f"opts.Abele.system({fitted.space.system.name.partition(':')[0]!r})"]
    lines.append(f"opts.replicationFactor({plan.replicas})")
    if plan.group > 1:
        lines.append(f"opts.inputReplicaGrouping({plan.group}, poptorch.CommGroupType.Consecutive)")
    if fitted.training:
        lines.append(f"opts.Training.gradientAccumulation({plan.accumulation})")
    else:
        lines.append(f"opts.deviceIterations({plan.accumulation})")
    if plan.phases:
        lines.append("opts.setExecutionStrategy(poptorch.SerialPhasedExecution(")
        lines += [f'    poptorch.Phase(poptorch.Stage("phase{p}").ipu(0)),' for p in range(plan.stages)]
        lines.append(").setTensorsLiveness(poptorch.Liveness.OffChipAfterEachPhase))  # all is in streaming memory")
    elif plan.stages > 1:
        lines.append("opts.setExecutionStrategy(poptorch.PipelinedExecution(")
        lines += [f'    poptorch.Stage("stage{s}").ipu({plan.ipu_of(s)}),' for s in range(plan.stages)]
        lines.append("))")
        if fitted.training and plan.recompute == Recomputation.NOTHING:
            lines.append(f'opts._Popart.set("autoRecomputation", {_NOTHING})  # all activations are kept')
    if fitted.space.settings.partials == "f16":
        lines.append("opts.Precision.setPartialsType(torch.half)")
    if fitted.space.settings.sync_pattern != "full":
        lines.append("opts.syncPattern(poptorch.SyncPattern.SinglePipeline)")
    if plan.plans_smaller:
        shares = ", ".join(f'"IPU{i}": {share:g}' for i, share in enumerate(plan.proportions) if share is not None)
        lines.append(f"opts.setAvailableMemoryProportion({{{shares}}})")
    if plan.io_tiles:
        lines.append(f"opts.TensorLocations.numIOTiles({plan.io_tiles})")
    if plan.turns:
        lines.append('opts.Abele.pipelineSchedule("interleaved")')
    if plan.narrow_stash:
        lines.append('opts.Abele.stash("F143")  # activations wait as 8-bit floats')
    if plan.waits_off_chip and not plan.phases:
        lines.append(
            "opts.TensorLocations.setActivationLocation(poptorch.TensorLocationSettings().useOnChipStorage(False))"
        )
    if plan.shared_functions:
        lines.append("opts.Abele.sharedFunctions(True)")
    if plan.state != StatePlace.ON_CHIP and not plan.phases:
        where = "poptorch.TensorLocationSettings()"
        where += ".useOnChipStorage(False)" if plan.state.is_off_chip else ".useOnChipStorage(True)"
        where += ".useReplicatedTensorSharding(True)" if plan.state.is_sharded else ""
        lines.append(f"opts.TensorLocations.setOptimizerLocation({where})")
    lines.append(
        f"# micro-batches of {plan.micro_batch}: a DataLoader with these options has batch_size={plan.micro_batch}"
    )
    return lines


def _blocks(fitted: Fitted, plan: Spreading, model: torch.nn.Module, first: str) -> list[str]:
    modules, name = [first, *fitted.modules(plan)[1:]], "phase" if plan.phases else "stage"
    return [
        f'poptorch.BeginBlock({module_expression(model, module)}, "{name}{stage}", ipu_id={plan.ipu_of(stage)})'
        for stage, module in enumerate(modules)
    ]


def _checkpoints(fitted: Fitted, plan: Spreading, model: torch.nn.Module) -> list[str]:
    segments = fitted.chains[plan.model_size].segments
    inside = [segments[number].module for number in plan.checkpoints]
    if not inside:
        return []
    lines = ["# What these layers read is kept; the rest of their stages is computed again.", "for layer in ["]
    lines += [f"    {module_expression(model, module)}," for module in inside]
    lines.append("]:")
    lines.append("    layer.register_forward_pre_hook(")
    lines.append("        lambda module, args: (poptorch.recomputationCheckpoint(args[0]), *args[1:])")
    lines.append("    )")
    return lines


def module_expression(model: torch.nn.Module, path: str) -> str:
    """A submodule as an expression, such as ``model.layers[3].attended``.

    Args:
        model: The model.
        path: Names of submodules joined by ``/``; empty for the model itself.
    """
    text, here = "model", model
    for name in path.split("/") if path else ():
        indexed = isinstance(here, (torch.nn.ModuleList, torch.nn.Sequential))
        text += f"[{name}]" if indexed and name.isdigit() else _attribute(name)
        here = here.get_submodule(name)
    return text


def _attribute(name: str) -> str:
    return f".{name}" if name.isidentifier() else f".get_submodule({name!r})"


SplitPlan = Mapping[str, str | Style]
"""Styles of splitting layers, by name, as ``parallelize_module`` takes them."""
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Fit:
    """Best ways to spread a model over a machine; ``print`` shows them.

    Attributes:
        fitted: The plans found.
        model: The model.
        split: Plan by which replicas that compute the model together split layers; None without one.
    """

    fitted: Fitted
    model: torch.nn.Module
    split: SplitPlan | None = None

    @property
    def ranking(self) -> tuple[Ranked, ...]:
        """Plans that fit, the fastest first, each with its estimate and the reason why it is not the best."""
        return self.fitted.ranking

    @property
    def best(self) -> Ranked:
        """The fastest plan."""
        return self.fitted.best

    @property
    def misses(self) -> tuple[Miss, ...]:
        """Plans that do not fit, with the largest lack of a stage."""
        return self.fitted.misses

    @property
    def smallest(self) -> int:
        """IPUs of the smallest machine that holds the model."""
        return self.fitted.smallest

    def code(self, ranked: Ranked | Spreading | None = None) -> str:
        """A plan, by default the best, as PopTorch code: blocks and options for ``model``."""
        plan = ranked.plan if isinstance(ranked, Ranked) else ranked or self.best.plan
        return plan_code(self.fitted, plan, self.model, self._first(plan), self.split)

    def _first(self, plan: Spreading) -> str:
        """The outermost submodule that the model begins with; empty where it begins with a call of its own."""
        ops = self.fitted.chains[plan.model_size].net.ops
        path = next((op.debug.path for op in ops if op.kind != "constant"), "")
        names = path.split("/") if path else []
        starts = self.fitted.space.starts or frozenset()
        paths = ("/".join(names[: n + 1]) for n in range(len(names)))
        return next((p for p in paths if p in starts), "")

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return {**fitted_dict(self.fitted), "code": self.code()}

    def __str__(self) -> str:
        return f"{fitted_text(self.fitted)}\n\n{self.code()}"

    def _repr_html_(self) -> str:
        return fitted_card(self.fitted)


def fit(
    model: torch.nn.Module,
    example_inputs: Any,
    *,
    system: System | str = "pod16",
    batch: int | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    micro_batches: Sequence[int] | None = None,
    io_tiles: Sequence[int] | None = None,
    tensor_parallel: SplitPlan | None = None,
    group_sizes: Sequence[int] | None = None,
    options: Options | None = None,
    check: int = 1,
    progress: Progress | None = None,
) -> Fit:
    """Find the smallest machine that holds a model and the fastest way to spread it over a machine; nothing runs.

    Args:
        model: The model. Its weights need no meaning.
        example_inputs: Arguments of one micro-batch: a tensor, a tuple, a mapping of keyword arguments; or a function
            that gives them for a number of samples.
        system: The machine: a preset's name, a file, or a System.
        batch: Samples of one update; None for as many as make the rest of an update hardly count.
        optimizer: Optimiser that trains the model; None to run it forward alone.
        micro_batches: Sizes to try; by default the example's, doubled while it pays, or halved until it fits.
        io_tiles: Numbers of IO tiles to try; by default that of the options alone.
        tensor_parallel: Plan that splits layers over groups of replicas, each of which computes one model, for
            :func:`~abele.frontends.poptorch.functions.tensor_parallel.parallelize_module`. The model stays as it is.
        group_sizes: Sizes of such groups to try; with 1 each replica is a model. By default 1, and 2 where there is a
            plan.
        options: Further options of the model, such as its precision and its IO tiles.
        check: Number of the fastest plans that are compiled as a whole, to set figures side by side.
        progress: Called with what is done and the part of it that is.

    Raises:
        FittingError: Nothing fits, nothing can be cut, or no division of the batch is left.
        InvalidOptionError: Groups without a plan, or for which the machine has no IPUs.
        MachineError: An unknown system.
        Error: The model cannot be recorded, or not be split as the plan says.
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(f"fit takes a torch.nn.Module, got {model!r}")
    check_counts(batch, micro_batches, check)
    check_initialised(model)
    if optimizer is not None:
        check_parameters(optimizer, model)
    make = example_inputs if callable(example_inputs) else lambda size: resized(example_inputs, size)
    own = 1 if callable(example_inputs) else batch_of(example_inputs)
    sizes = tuple(dict.fromkeys(micro_batches)) if micro_batches is not None else sizes_around(own, batch)
    groups = _group_sizes(tensor_parallel, group_sizes)
    space = FitSpace(
        system=systems.resolve(system),
        batch=batch,
        micro_batches=sizes,
        first=None if micro_batches is not None else own,
        io_tiles=((options or Options()).io_tiles,) if io_tiles is None else tuple(dict.fromkeys(io_tiles)),
        settings=replace((options or Options()).settings(type(model).__name__), cache=None),
        starts=frozenset(_starts(model)),
        group_sizes=groups,
    )
    # A plan that does not go with the model is refused before anything is compiled.
    parts = {n: _SplitModel.of(model, n, tensor_parallel or {}) for n in groups if n > 1}

    def model_of(size: int, group: int = 1) -> Model:
        if group > 1:
            return parts[group].recorded(make(size), optimizer)
        captured = recorded(model, make(size), training=optimizer is not None)
        return Model(captured.net, groups_of(captured, optimizer))

    return Fit(fit_network(model_of, space, check=check, progress=progress), model, tensor_parallel)


def _group_sizes(plan: SplitPlan | None, sizes: Sequence[int] | None) -> tuple[int, ...]:
    """Sizes of groups to try.

    Raises:
        InvalidOptionError: They are no numbers of replicas, or need a plan.
    """
    found = tuple(dict.fromkeys(sizes)) if sizes is not None else (1, 2) if plan else (1,)
    for size in found:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidOptionError(f"fit: group_sizes takes positive whole numbers, got {size!r}")
    if not plan and any(size > 1 for size in found):
        raise InvalidOptionError(
            f"fit: groups of {max(found)} replicas, and no layer to split over them",
            remedy='tensor_parallel={"layers.*.up": "column", "layers.*.down": "row"}, or group_sizes=(1,)',
        )
    return found


@dataclass(frozen=True)
class _SplitModel:
    """A model as one replica of a group computes it.

    Attributes:
        model: A copy with split layers, which has the weights of the model itself.
        group: Replicas of the group.
    """

    model: torch.nn.Module
    group: int

    @staticmethod
    def of(model: torch.nn.Module, group: int, plan: SplitPlan) -> _SplitModel:
        """The model split by a plan.

        Raises:
            Error: As of :func:`~abele.frontends.poptorch.functions.tensor_parallel.parallelize_module`.
        """
        weights = {id(t): t for t in (*model.parameters(), *model.buffers())}
        return _SplitModel(parallelize_module(copy.deepcopy(model, dict(weights)), group, plan), group)

    def recorded(self, example: Any, optimizer: torch.optim.Optimizer | None) -> Model:
        """The network of one replica, with arguments of a micro-batch."""
        options = Options().replicationFactor(self.group)
        own = OwnValues.of(self.model, options.inputReplicaGrouping(self.group, CommGroupType.Consecutive))
        with COMPILING.held(), recording(), own.one_each(self.model) as whole:
            captured = recorded(self.model, example, training=optimizer is not None)
        splits = tuple((name, own.splits[name]) for name in captured.weights if name in own.splits)
        # The optimiser holds whole weights.
        weights = {name: whole.get(id(t), t) for name, t in captured.weights.items()}
        return Model(captured.net, groups_of(replace(captured, weights=weights), optimizer), splits)


def recorded(model: torch.nn.Module, example: Any, *, training: bool) -> CapturedModel:
    """A model as a network, in the mode that it runs in.

    Args:
        model: The model.
        example: Arguments of a micro-batch.
        training: True if it is trained.
    """
    args, kwargs = arguments(example)
    with _mode(model, training=training):
        return capture(model, args, kwargs, training=training)


def _starts(model: torch.nn.Module) -> Iterator[str]:
    """Module paths of submodules that are called: lists of modules are not."""
    plain = torch.nn.Module().forward.__func__  # type: ignore[attr-defined]
    for name, module in model.named_modules():
        if name and getattr(type(module), "forward", plain) is not plain:
            yield name.replace(".", "/")


@contextmanager
def _mode(model: torch.nn.Module, *, training: bool) -> Iterator[None]:
    """The model in the mode that it is recorded in."""
    before = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(before)
