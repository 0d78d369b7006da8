"""The strategy: what a ``Trainer`` asks for runs on the modelled machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

import torch

from abele.errors import InvalidOptionError
from abele.frontends import poptorch
from abele.frontends.poptorch import PoplarExecutor, logs
from abele.frontends.poptorch.training.optimizer_state import SessionState
from abele.frontends.poptorch.values import structures
from abele.lightning.accelerator import AbeleAccelerator, pl
from abele.lightning.steps import RecordedStep

# Host batches: as many batches of a user's loader, one after the other, as one call of the device takes.
#
# A loader of 10 batches of 8 samples, with 4 micro-batches per call, gives 2 host batches of 32. The 2 batches that
# are left come one by one where nothing may be lost (validation, test, prediction), and are left out of training.


class HostBatches:
    """The batches of a loader, several at a time.

    Args:
        loader: The user's loader.
        count: Batches that one call takes.
        training: True if what does not make a host batch is left out.

    Attributes:
        counts: Batches in a host batch, by its number of samples.
    """

    def __init__(self, loader: Iterable[Any], count: int, *, training: bool) -> None:
        self.loader, self.count, self._training = loader, count, training
        self.counts: dict[int, int] = {}
        self._told = False

    @property
    def sampler(self) -> Any:
        """The loader's sampler, which is told of epochs."""
        return getattr(self.loader, "sampler", None)

    @property
    def batch_sampler(self) -> Any:
        """The loader's batch sampler, which is told of epochs."""
        return getattr(self.loader, "batch_sampler", None)

    def __len__(self) -> int:
        total: int = len(self.loader)  # type: ignore[arg-type]  # TypeError for those without, as the loader's own
        whole = self._whole(total)
        return whole // self.count + (0 if self._training else whole % self.count + total - whole)

    def _whole(self, total: int) -> int:
        """Batches of full size."""
        size, sampler = getattr(self.loader, "batch_size", None), self.sampler
        if size is None or getattr(self.loader, "drop_last", True) or not isinstance(sampler, Sized):
            return total
        return total if len(sampler) % size == 0 else total - 1

    def __iter__(self) -> Iterator[Any]:
        if self._training and isinstance(self.loader, Sized):
            # Now: a trainer that knows the length never asks for the rest.
            self._tell(len(self.loader) - self.count * len(self))
        gathered: list[Any] = []
        size = None
        for batch in self.loader:
            samples = samples_in(batch)
            size = samples if size is None else size
            if samples != size:
                yield from self._loose([batch])
                continue
            gathered.append(batch)
            if len(gathered) == self.count:
                whole = joined(gathered)
                self.counts[samples_in(whole)] = self.count
                yield whole
                gathered = []
        yield from self._loose(gathered)

    def _loose(self, batches: list[Any]) -> Iterator[Any]:
        """Batches that fill no host batch."""
        if self._training:
            self._tell(len(batches))
            return
        for batch in batches:
            self.counts.setdefault(samples_in(batch), 1)
            yield batch

    def _tell(self, left: int) -> None:
        """Warn, once, of batches that are not trained on."""
        if left and not self._told:
            self._told = True
            logs.warn(
                f"{left} of the loader's batches are not trained on: they fill no host batch of {self.count} equal "
                f"ones. DataLoader(drop_last=True), and as many batches as {self.count} divides, leave nothing over."
            )


def samples_in(batch: Any) -> int:
    """Samples of a batch: the first dimension of its first tensor; 1 without any."""
    tensors = (leaf for leaf in structures.leaves(batch) if isinstance(leaf, torch.Tensor))
    first = next(tensors, None)
    return 1 if first is None or not first.dim() else first.shape[0]


def joined(batches: list[Any]) -> Any:
    """One batch of several alike.

    Args:
        batches: Trees of tensors [samples, …] and of constants.

    Raises:
        InvalidOptionError: They differ in structure or constants.
    """
    if len(batches) == 1:
        return batches[0]
    columns = list(zip(*(list(structures.leaves(batch)) for batch in batches), strict=False))
    rows = iter(columns)

    def join(_: Any) -> Any:
        first, *rest = parts = next(rows)
        if isinstance(first, torch.Tensor):
            return torch.cat(list(parts)) if first.dim() else torch.stack(list(parts))
        if any(part != first for part in rest):
            raise InvalidOptionError(
                f"batches cannot be joined: {first!r} in one is {next(p for p in rest if p != first)!r} in another",
                because="one call of the device takes several batches",
                remedy="tensors with a dimension of samples, or constants that are the same in all batches",
            )
        return first

    return structures.map_leaves(join, batches[0])


_Ready = tuple[RecordedStep, PoplarExecutor]

_PRECISIONS = ("32-true", "16-true")

_STATE = {
    "Adam": {"Accl1": "exp_avg", "Accl2": "exp_avg_sq", "Step": "step"},
    "AdamW": {"Accl1": "exp_avg", "Accl2": "exp_avg_sq", "Step": "step"},
    "RMSprop": {"Accl1": "square_avg", "Accl2": "momentum_buffer", "Accl3": "grad_avg", "Step": "step"},
    "SGD": {"Accl1": "momentum_buffer"},
}
"""PyTorch's names of an optimiser's state, by those of the device."""


class AbeleStrategy(pl.strategies.SingleDeviceStrategy):  # type: ignore[misc]  # Lightning may not be installed
    """Runs the steps of a ``LightningModule`` on the modelled machine.

    One batch of the ``Trainer`` is a host batch: as many batches of the loader as one call of the device takes, which
    is device iterations x accumulation x replicas.

    Args:
        options: Of training; ``Trainer(accumulate_grad_batches=)`` and ``devices=`` are accumulation and replicas where
            these say 1. Options of PopTorch; the defaults when left out.
        inference_options: Of validation, test and prediction; those of training without accumulation when left out.
        checkpoint_io: As any strategy of Lightning has it.
        precision_plugin: The same.
    """

    strategy_name = "abele"

    def __init__(
        self,
        options: poptorch.Options | None = None,
        inference_options: poptorch.Options | None = None,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
    ) -> None:
        super().__init__(device="cpu", checkpoint_io=checkpoint_io, precision_plugin=precision_plugin)
        self._machine = AbeleAccelerator()  # Not _accelerator: the trainer takes that for a flag of the user.
        self._training, self._inference = options, inference_options
        self._replicas, self._accumulation = 1, 1
        self._steps: dict[tuple[Any, ...], _Ready] = {}
        self._loaders: list[HostBatches] = []
        self._numbers: Any = None
        self._random: list[int] | None = None

    # --- what the trainer chooses ------------------------------------------------------------------------------------

    @property
    def accelerator(self) -> Any:
        """The machine, whatever accelerator the trainer found."""
        return self._machine

    @accelerator.setter
    def accelerator(self, accelerator: Any) -> None:
        if isinstance(accelerator, AbeleAccelerator):
            self._machine = accelerator

    @property
    def parallel_devices(self) -> list[torch.device]:
        """None of its own: the trainer would take them for another accelerator."""
        return []

    @parallel_devices.setter
    def parallel_devices(self, devices: list[torch.device] | None) -> None:
        if devices and all(torch.device(device).type == "cpu" for device in devices):
            self._replicas = len(devices)

    def setup(self, trainer: Any) -> None:
        """Take over accumulation, and check that the device can do all that the trainer asks for.

        Raises:
            InvalidOptionError: Manual optimisation, another precision, or gradients clipped by the trainer.
        """
        self._refuse(trainer)
        self._accumulation, trainer.accumulate_grad_batches = trainer.accumulate_grad_batches, 1
        super().setup(trainer)

    def _refuse(self, trainer: Any) -> None:
        module, precision = self.lightning_module, self.precision_plugin.precision
        if not module.automatic_optimization:
            raise InvalidOptionError(
                "automatic_optimization is False",
                because="back-propagation and the update are part of the compiled program",
                remedy="automatic optimization, with one optimizer",
            )
        if precision not in _PRECISIONS:
            raise InvalidOptionError(f"precision {precision!r}", remedy="precision='32-true' or '16-true'")
        if trainer.gradient_clip_val:
            raise InvalidOptionError(
                f"gradient_clip_val={trainer.gradient_clip_val}: gradients are clipped where they are, on the device",
                remedy="an optimizer of poptorch.optim with max_grad_norm=",
            )

    def model_to_device(self) -> None:
        """Move nothing: sessions read the host's weights."""

    def process_dataloader(self, dataloader: Any) -> Any:
        """The loader as one of host batches; loaders of PopTorch give these already."""
        if isinstance(dataloader, poptorch.DataLoader):
            return dataloader
        training = bool(self.lightning_module.trainer.training)
        loader = HostBatches(dataloader, _micro_batches(self._options(training=training)), training=training)
        self._loaders.append(loader)
        return loader

    # --- steps -------------------------------------------------------------------------------------------------------

    def training_step(self, batch: Any, *indices: int) -> Any:
        """One call of the device: as many updates of the weights as it has iterations."""
        if self.lightning_module.trainer.accumulate_grad_batches != 1:
            raise InvalidOptionError(
                "accumulate_grad_batches changed while training",
                because="accumulation is compiled in",
                remedy="Trainer(accumulate_grad_batches=n), without a scheduler of it",
            )
        return self._run("training_step", batch, indices)

    def validation_step(self, batch: Any, *indices: int) -> Any:
        """One call of the device."""
        return self._run("validation_step", batch, indices)

    def test_step(self, batch: Any, *indices: int) -> Any:
        """One call of the device."""
        return self._run("test_step", batch, indices)

    def predict_step(self, batch: Any, *indices: int) -> Any:
        """One call of the device."""
        return self._run("predict_step", batch, indices)

    def _run(self, name: str, batch: Any, indices: tuple[int, ...]) -> Any:
        training = name == "training_step"
        options = self._options(training=training)
        if not training and self._count(batch) != _micro_batches(options):
            options = options.clone().deviceIterations(1).replicationFactor(1)
            options.Training.gradientAccumulation(1)
        key = (name, *indices[1:], *(() if training else (samples_in(batch), _micro_batches(options))))
        if key not in self._steps:
            self._steps[key] = self._compiled(RecordedStep(self.lightning_module, name, indices), options, batch)
        step, executor = self._steps[key]
        if training:
            self._follow(executor)
        return step.results(executor(batch))

    def _count(self, batch: Any) -> int:
        """Batches of the loader in a host batch."""
        samples = samples_in(batch)
        known = (loader.counts[samples] for loader in reversed(self._loaders) if samples in loader.counts)
        return next(known, _micro_batches(self._options(training=False)))

    def _compiled(self, step: RecordedStep, options: poptorch.Options, batch: Any) -> _Ready:
        if step._name != "training_step":
            return step, poptorch.inferenceModel(step, options)
        (optimizer,) = self.optimizers
        executor = poptorch.trainingModel(step, options, optimizer)
        executor.compile(batch)
        self._to_device(executor, optimizer)
        if self._random is not None:
            executor._continue_random(self._random)
        self._numbers = _numbers(optimizer)
        return step, executor

    def _options(self, *, training: bool) -> poptorch.Options:
        """Options of one use: the user's, and what the trainer says where they say nothing."""
        chosen = (self._training or poptorch.Options()).clone()
        if chosen.replication_factor == 1:
            chosen.replicationFactor(self._replicas)
        if training and chosen.Training.gradient_accumulation == 1:
            chosen.Training.gradientAccumulation(self._accumulation)
        if not training:
            chosen = chosen if self._inference is None else self._inference.clone()
            chosen.Training.gradientAccumulation(1)
        return chosen.outputMode(poptorch.OutputMode.All)

    # --- optimisers --------------------------------------------------------------------------------------------------

    def backward(self, closure_loss: torch.Tensor, optimizer: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Do nothing: the device has back-propagated."""
        return closure_loss

    def optimizer_step(self, optimizer: Any, closure: Any, model: Any = None, **kwargs: Any) -> Any:
        """Run the closure; the device makes the update in it."""
        return closure()

    def _follow(self, executor: PoplarExecutor) -> None:
        """Give the device the optimiser's numbers where a scheduler changed them."""
        (optimizer,) = self.optimizers
        numbers = _numbers(optimizer)
        if numbers != self._numbers:
            executor.setOptimizer(optimizer)
            self._numbers = numbers

    @property
    def _trained(self) -> PoplarExecutor | None:
        found = self._steps.get(("training_step",))
        return found[1] if found is not None and found[1].isCompiled() else None

    def _to_device(self, executor: PoplarExecutor, optimizer: torch.optim.Optimizer) -> None:
        """Take over what an optimiser of PyTorch has kept on the host, as after a checkpoint was read."""
        if isinstance(optimizer, poptorch.optim.Optimizer) or not optimizer.state:
            return
        state = _session_state(executor, optimizer)
        given = {}
        for parameter, name in _named(state, optimizer):
            for shown, own in _STATE[type(optimizer).__name__].items():
                value = optimizer.state[parameter].get(own)
                if value is not None:
                    given[f"{shown}___{name}"] = torch.as_tensor(value)
        state.write(given, {}, optimizer)
        optimizer.state.clear()

    def _to_host(self, executor: PoplarExecutor, optimizer: torch.optim.Optimizer) -> None:
        """Let an optimiser of PyTorch have what the device keeps for it."""
        if isinstance(optimizer, poptorch.optim.Optimizer):
            return
        state = _session_state(executor, optimizer)
        kept, _ = state.read()
        for parameter, name in _named(state, optimizer):
            slots = _STATE.get(type(optimizer).__name__, {}).items()
            found = {own: kept[f"{shown}___{name}"] for shown, own in slots if f"{shown}___{name}" in kept}
            optimizer.state[parameter] = {k: v.float() if k == "step" else v for k, v in found.items()}

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """The newest weights, as plain tensors."""
        state = self.lightning_module.state_dict()
        return {k: v.as_subclass(torch.Tensor) if isinstance(v, torch.Tensor) else v for k, v in state.items()}

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """The state of an optimiser, in PyTorch's form, so that training goes on from it anywhere."""
        plain = getattr(optimizer, "_optimizer", optimizer)
        if self._trained is not None:
            self._to_host(self._trained, plain)
        state: dict[str, Any] = plain.state_dict()
        if self._trained is not None and not isinstance(plain, poptorch.optim.Optimizer):
            plain.state.clear()
        return state

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Write a checkpoint; the state of random operations on the device is in it."""
        if self._trained is not None:
            checkpoint["abele_random_state"] = list(self._trained.rng_state)
        super().save_checkpoint(checkpoint, filepath, storage_options=storage_options)

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Read a checkpoint; random operations go on from its state."""
        checkpoint: dict[str, Any] = super().load_checkpoint(*args, **kwargs)
        self._random = checkpoint.get("abele_random_state")
        return checkpoint

    def teardown(self) -> None:
        """Bring weights and state to the host, and let go of the compiled program."""
        if self._trained is not None:
            self._to_host(self._trained, self.optimizers[0])
        for _, executor in self._steps.values():
            executor.destroy()
        self._steps.clear()
        self._loaders.clear()
        if self.lightning_module is not None:
            self.lightning_module.trainer.accumulate_grad_batches = self._accumulation
        super().teardown()


def _micro_batches(options: poptorch.Options) -> int:
    """Batches of the loader that one call takes."""
    replicas = options.replication_factor // options.input_group_size
    return int(options.device_iterations * replicas * options.Training.gradient_accumulation)


def _numbers(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Numbers of an optimiser's groups."""
    return [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]


def _session_state(executor: PoplarExecutor, optimizer: torch.optim.Optimizer) -> SessionState:
    compiled = executor._require()
    return SessionState(compiled.session, compiled.trained_names(optimizer), False)


def _named(state: SessionState, optimizer: torch.optim.Optimizer) -> list[tuple[torch.Tensor, str]]:
    """Trained parameters of an optimiser, each with its name on the device."""
    trained = [[p for p in group["params"] if p.requires_grad] for group in optimizer.param_groups]
    return [pair for ps, names in zip(trained, state.groups, strict=True) for pair in zip(ps, names, strict=True)]
