"""Compiling a captured model: from a call's arguments to an engine with the weights on it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from abele.compiler import Executable, compile_program
from abele.errors import OutOfMemoryError
from abele.frontends.poptorch.advice import advised
from abele.frontends.poptorch.batching import Batching
from abele.frontends.poptorch.capture import CapturedModel, capture
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.progress import compilation_progress
from abele.frontends.poptorch.rules import read_optimiser
from abele.frontends.poptorch.weights import plain
from abele.graph import Graph
from abele.parallel import Group, InputChecks, NetworkProgram, inference_program, training_program
from abele.report import Report
from abele.runtime import Engine

Array = npt.NDArray[Any]


@dataclass
class CompiledModel:
    """A model that is ready to run.

    Attributes:
        captured: The network, and how its results are nested.
        program: Streams and weights on the device.
        executable: The compiled program with its account.
        options: What it was compiled with.
        batching: How host batches are cut.
        seconds: Time that compiling took.
        checks: What the inputs of every call must keep to.
    """

    captured: CapturedModel
    program: NetworkProgram
    executable: Executable
    options: Options
    batching: Batching
    seconds: float
    checks: InputChecks
    _engine: Engine | None = field(default=None, repr=False)

    @property
    def engine(self) -> Engine:
        """The engine; made on first use."""
        if self._engine is None:
            settings = self.options.Abele
            keep = [*self.program.weights.values(), *(t for group in self.program.groups for t in group.state)]
            if self.program.seed is not None:
                keep.append(self.program.seed)
            self._engine = Engine(
                self.executable, mode=settings.engine_mode, threads=settings.num_threads or None, keep=keep
            )
        return self._engine

    def attach(self) -> bool:
        """Make the engine ready; returns whether that is the first time."""
        first = self._engine is None
        return self.engine is not None and first

    def report(self) -> Report:
        """What the program costs on the machine, and what runs took on the host if there were any."""
        return self.executable.report if self._engine is None else self._engine.report

    def run(self, tensors: list[torch.Tensor]) -> Any:
        """Run once on the inputs of one host batch; returns the model's results."""
        engine, program = self.engine, self.program
        self.checks.check([t.detach().cpu().numpy() for t in map(_viewable, tensors)], program.schedule.micro_batches)
        for stream, tensor in zip(program.inputs, tensors, strict=True):
            engine.connect(stream, to_stream(tensor, stream.dtype.np))
        results = [np.empty((program.schedule.returned, *s.shape), s.dtype.np) for s in program.outputs]
        changed = [np.empty((program.schedule.micro_batches, *s.shape), s.dtype.np) for s in program.changed]
        for stream, result in zip((*program.outputs, *program.changed), (*results, *changed), strict=True):
            engine.connect(stream, result)
        engine.run()
        self._change_inputs(tensors, changed)
        return self.captured.rebuild([self.batching.combine(from_stream(r)) for r in results])

    def _change_inputs(self, tensors: list[torch.Tensor], changed: list[Array]) -> None:
        """Give the caller's tensors what the model made of them, as PyTorch does."""
        net = self.captured.net
        for value, result in zip(net.changed_inputs, changed, strict=True):
            tensor = tensors[net.inputs.index(value)].detach()
            tensor.copy_(from_stream(result).reshape(tensor.shape))

    def upload_weights(self) -> None:
        """Copy what the host's tensors hold to the device."""
        with torch._C.DisableTorchFunctionSubclass():
            for name, tensor in self.captured.weights.items():
                place = self.program.weights[name]
                self.engine.write(place, to_stream(tensor.detach(), place.dtype.np))

    def download_weights(self, wanted: Callable[[torch.Tensor], bool]) -> None:
        """Copy the device's weights to those of the host's tensors that are wanted."""
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            for name, tensor in self.captured.weights.items():
                if not wanted(tensor):
                    continue
                tensor.copy_(from_stream(self.engine.read(self.program.weights[name])))

    def upload_hyper(self, groups: list[dict[str, float]]) -> None:
        """Write the numbers of the optimiser that live on the device."""
        for update, numbers in zip(self.program.groups, groups, strict=True):
            for name, place in update.hyper.items():
                self.engine.write(place, np.float32(numbers[name]))

    @property
    def random_state(self) -> list[int]:
        """The state of random ops; the seed first."""
        return [] if self.program.seed is None else [int(v) for v in self.engine.read(self.program.seed)]

    @random_state.setter
    def random_state(self, state: list[int]) -> None:
        if self.program.seed is not None:
            self.engine.write(self.program.seed, np.array(state, np.int64).astype(np.uint32))

    def close(self) -> None:
        """Let go of the engine and its threads."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def to_stream(tensor: torch.Tensor, dtype: np.dtype[Any]) -> Array:
    """The elements of a tensor as the device takes them, contiguous."""
    return np.asarray(_viewable(tensor).detach().cpu().numpy(), dtype, order="C")


def _viewable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in a type that NumPy knows."""
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def from_stream(array: Array) -> torch.Tensor:
    """A tensor of what came from the device."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.asarray(array, order="C"))


def compile_model(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    batching: Batching,
    optimiser: torch.optim.Optimizer | None,
    weights: list[torch.Tensor],
) -> CompiledModel:
    """Capture and compile a model for one kind of call; nothing runs.

    Args:
        model: The model.
        args: Arguments of one micro-batch.
        kwargs: Keyword arguments.
        batching: How the device loops over micro-batches.
        optimiser: How weights are updated; None for inference.
        weights: The model's parameters and buffers.

    Raises:
        AbeleError: See :func:`~abele.frontends.poptorch.capture.capture` and
            :func:`~abele.compiler.compile_program`.
    """
    start = time.perf_counter()
    options = batching.options
    with _collector_paused(), compilation_progress(options.show_compilation_progress_bar) as progress:
        progress("capture", 0.0)
        with plain(weights):
            captured = capture(model, args, kwargs, training=batching.training)
        progress("lower to libraries", 0.0)
        checks = InputChecks(captured.net)
        graph = Graph(options.Abele.target())
        program = _build(captured, graph, batching, optimiser)
        try:
            executable = compile_program(
                graph,
                program.program,
                allow_out_of_memory=options.Abele.allow_out_of_memory,
                progress=progress,
                meta=_described(model, captured, batching),
            )
        except OutOfMemoryError as error:
            raise advised(error, captured.net, batching) from None
    return CompiledModel(captured, program, executable, options, batching, time.perf_counter() - start, checks)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Nothing that compiling makes is garbage before it ends, so looking for some again and again only takes time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _described(model: torch.nn.Module, captured: CapturedModel, batching: Batching) -> dict[str, Any]:
    """What the report says about the model."""
    options = batching.options
    batched = [v.shape[0] for v in captured.net.inputs if v.shape]
    samples = {"samples_per_run": batched[0] * batching.micro_batches, "sample_name": "sample"} if batched else {}
    return samples | {
        "name": options.model_name if options.exists("model_name") else type(model).__name__,
        "steps_per_run": options.device_iterations,
        "step_name": "weight update" if batching.training else "batch",
        "options": {
            "device_iterations": options.device_iterations,
            "gradient_accumulation": options.Training.gradient_accumulation,
            "engine_mode": options.Abele.engine_mode,
        },
    }


def _build(
    captured: CapturedModel, graph: Graph, batching: Batching, optimiser: torch.optim.Optimizer | None
) -> NetworkProgram:
    proportion = batching.options.available_memory_proportion.get("IPU0")
    planning = None if proportion is None else {"available_memory_proportion": proportion}
    exceptions = batching.options.Precision.floating_point_exceptions
    if optimiser is None:
        return inference_program(captured.net, graph, batching.schedule(), planning=planning, exceptions=exceptions)
    groups = _groups(captured, optimiser)
    schedule = batching.schedule()
    return training_program(captured.net, graph, schedule, groups, planning=planning, exceptions=exceptions)


def _groups(captured: CapturedModel, optimiser: torch.optim.Optimizer) -> list[Group]:
    trained = {
        id(captured.weights[value.name]): value
        for value in captured.net.parameters
        if captured.weights[value.name].requires_grad
    }
    return read_optimiser(optimiser, trained)
