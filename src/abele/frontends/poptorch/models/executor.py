"""``PoplarExecutor``: a wrapped model that is compiled on its first call and runs on the modelled machine."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import torch

from abele.compiler import Executable
from abele.compiler.compile import collector_paused
from abele.errors import InvalidOptionError
from abele.frontends.poptorch import logs
from abele.frontends.poptorch.capture.capture import check_initialised, own_tensors
from abele.frontends.poptorch.capture.source_lines import origins
from abele.frontends.poptorch.enums import ConnectionType
from abele.frontends.poptorch.errors import CheckError, Error, as_poptorch_errors
from abele.frontends.poptorch.models.batching import Batching
from abele.frontends.poptorch.models.compiling import CompiledModel, PerfCounters, compile_model
from abele.frontends.poptorch.models.exporting import Exporting, ModelWatch
from abele.frontends.poptorch.models.grouping import choices_of, choose, offer
from abele.frontends.poptorch.models.sharding import OwnValues
from abele.frontends.poptorch.models.user_models import as_plain, disown, own, plain_class
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.options.environment import tell_of_waiting
from abele.frontends.poptorch.options.popart import validate_options
from abele.frontends.poptorch.program.recording import COMPILING, isRunningOnIpu, recording
from abele.frontends.poptorch.program.tracing import TRACED
from abele.frontends.poptorch.training.optim import Optimizer
from abele.frontends.poptorch.training.optimizer_checks import warn_of_optimizer
from abele.frontends.poptorch.training.optimizer_state import SessionState
from abele.frontends.poptorch.training.rules import check_parameters, parameter_groups, read_rules
from abele.frontends.poptorch.values import structures
from abele.frontends.poptorch.values.signature import ForwardSignature
from abele.job.progress import PROGRESS
from abele.session import Session
from abele.session.array_sync import ForkLock
from abele.trace.shared import release_recording

# Results of calls: plain tensors that explain why they cannot be differentiated.

BACKWARD = (
    "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, the "
    "backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, you should "
    "use a trainingModel instead."
)


def _refuse_backward(*args: Any, **kwargs: Any) -> None:
    raise Error(BACKWARD)


def mark_results(tree: Any) -> Any:
    """The tree, with ``backward()`` of every tensor in it refused."""
    for leaf in structures.leaves(tree):
        if isinstance(leaf, torch.Tensor):
            vars(leaf)["backward"] = _refuse_backward
    return tree


__all__ = ["PoplarExecutor", "isRunningOnIpu"]


_OFF_THE_MACHINE = frozenset(
    ("bfloat16", "cpu", "cuda", "double", "float", "half", "ipu", "to", "to_empty", "type", "xpu"),
)
"""Methods of ``torch.nn.Module`` that move or convert weights and return the module: the user's model, on the host."""


class _CallArguments(NamedTuple):
    """Arguments that a model was compiled for; tensors have shape and type, and no data."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


class PoplarExecutor(Exporting):
    """A model on the modelled machine.

    Calls take and return what the model's ``forward`` does, for a whole host batch: the micro-batch that the model
    sees times device iterations times gradient accumulation. Other attributes are those of the model.

    Args:
        model: The model.
        options: Frozen here.
        training: True if calls train.
        optimizer: Optimiser that trains them.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        options: Options,
        *,
        training: bool,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        options._freeze()
        self._options = options.clone()
        self._batching = Batching(self._options, training)
        self._options.set(output_mode=self._batching.output_mode)
        if optimizer is not None:
            self._options.Training._follow_optimizer(optimizer)
        self._options._freeze()
        self._model = model
        self._training = training
        self._optimizer = optimizer
        self._signature = ForwardSignature(model.forward)
        self._compiled: CompiledModel | None = None
        self._inputs: _CallArguments | None = None
        self._watch: ModelWatch | None = None
        self._lock = ForkLock()
        self._told: set[str] = set()
        self._told_of_optimizer: set[tuple[str, str]] = set()
        self._counters = PerfCounters()
        logs.limit_repeats(self._options.max_repeat_logs)
        if optimizer is not None:
            self._warn_of(optimizer)
        if training:
            own(model, self)

    # --- calling -------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compile on the first call, then run on one host batch.

        Calls from several threads wait for each other. Inputs that ``forward`` changes in place are changed.

        Raises:
            Error: Arguments that differ from those compiled for, or a model that changed since.
            CheckError: A batch that does not divide; a device that may not be attached.
            TensorIndexError: A label that no class has.
            ElementRangeError: An int64 that does not fit in the 32 bits of the device.
        """
        if self._options.connection_type == ConnectionType.Never:
            raise CheckError(
                "Trying to run a model on an offline device (ConnectionType.Never): use model.compile(inputs) instead "
                "of model(inputs)"
            )
        with as_poptorch_errors(), self._lock.held():
            return self._call(*self._signature.bind(args, kwargs))

    @TRACED.traced("call")
    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        compiled = self._compiled or self._compile(args, kwargs)
        self._check_unchanged()
        tensors = self._signature.match(args, kwargs)
        if not self.isAttachedToDevice():
            self.attachToDevice()
        results = mark_results(compiled.run(tensors, self._counters))
        if self._optimizer is not None:
            # The device has taken the optimiser's steps; PyTorch's schedulers ask for this before theirs.
            self._optimizer._opt_called = True  # type: ignore[attr-defined]
            self._forget_loaded_state()
        if self._options.log_cycle_count:
            logs.LOGGER.info("Total number of IPU cycles: %d", self.cycleCount())
        return results

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile for arguments like these without running; a second time does nothing but warn."""
        if self._compiled is not None:
            logs.warn("Call to compile() ignored: model is already compiled")
            return
        with as_poptorch_errors(), self._lock.held():
            self._compile(*self._signature.bind(args, kwargs))

    def _check_unchanged(self) -> None:
        """Warn, once for each change, where the model differs from the compiled one."""
        change = self._watch.change() if self._watch is not None else None
        if change is not None and change not in self._told:
            self._told.add(change)
            logs.warn(
                f"The model changed after it was compiled: {change}. The compiled program goes on with what it was "
                "compiled for: call destroy() to compile again with the next call.",
                stacklevel=4,
            )

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CompiledModel:
        self._begin_trace()
        try:
            return self._compile_now(args, kwargs)
        except Exception:
            # The model can be wrapped again, with other options.
            disown(self._model, self)
            release_recording(self)
            raise

    @PROGRESS.during("compile")
    @TRACED.traced("compile")
    @collector_paused()
    def _compile_now(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CompiledModel:
        validate_options(self._options.toDict(), self._options.known_names)
        self._batching.schedule()
        check_initialised(self._model)
        OwnValues.of(self._model, self._options)  # Before batches are cut as other options would have it.
        self._signature.record(args, kwargs)
        micro_args, micro_kwargs = structures.map_tensors(self._batching.micro_batch, (args, kwargs))
        weights = list(own_tensors(self._model).values())
        if self._optimizer is not None:
            check_parameters(self._optimizer, self._model)
            self._warn_of(self._optimizer)
        if self._training:
            own(self._model, self)
        excludes, named = self._options.source_location_excludes, self._options.module_namescope_enabled
        with (
            COMPILING.held(),
            as_plain(self._model),
            self._modes(),
            origins(excludes, modules=named),
            recording(),
        ):
            compiled = compile_model(self._model, micro_args, micro_kwargs, self._batching, self._optimizer, weights)
        self._compiled = compiled
        self._inputs = _CallArguments(*structures.map_tensors(_meta, (args, kwargs)))
        self._told.clear()
        self._watch = ModelWatch(self._model, training=self._training)
        self._share_state(compiled)
        self._write_profile(compiled)
        self._export_proto(compiled)
        if self._options.connection_type == ConnectionType.Always:
            self.attachToDevice()
        return compiled

    @contextlib.contextmanager
    def _modes(self) -> Iterator[None]:
        """The model in evaluation mode for inference, as it is for training."""
        modes = [(module, module.training) for module in self._model.modules()]
        if not self._training:
            self._model.eval()
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode

    # --- device --------------------------------------------------------------------------------------------------

    def attachToDevice(self) -> None:
        """Load the compiled program and the host's weights.

        Raises:
            Error: Not compiled, attached already, or offline.
        """
        session = self._require().session
        if session.attached:
            raise Error("Device is already attached")
        if self._options.connection_type == ConnectionType.Never:
            raise Error("Trying to attach to an offline device (ConnectionType.Never)")
        tell_of_waiting()
        with TRACED.tracepoint("attach to device"):
            is_first = session.attach()
        if is_first:
            session.random_state = self._rng_state or [self._first_seed(), 0]

    def detachFromDevice(self) -> None:
        """Bring the weights to the host and let another model use the device; optimiser state is kept.

        Raises:
            Error: Not compiled, or not attached.
        """
        session = self._require().session
        if not session.attached:
            raise Error("Device is not attached")
        session.detach()

    def isAttachedToDevice(self) -> bool:
        """True if the model is on the device."""
        return self._compiled is not None and self._compiled.session.attached

    def isCompiled(self) -> bool:
        """True if the model was compiled."""
        return self._compiled is not None

    def destroy(self) -> None:
        """Bring the weights to the host, let go of the model and of its program; the next call compiles again."""
        if self._compiled is not None:
            if isinstance(self._optimizer, Optimizer):
                self._optimizer.detach_state(keep=True)
            self._compiled.session.close()
            self._compiled = self._watch = self._inputs = None
        if self._training:
            disown(self._model, self)
        release_recording(self)

    def _first_seed(self) -> int:
        chosen = self._options.random_seed if self._options.exists("random_seed") else torch.initial_seed()
        return int(chosen) & 0xFFFFFFFF

    # --- weights -------------------------------------------------------------------------------------------------

    def copyWeightsToHost(self) -> None:
        """Copy weights from the device to the host's tensors, but for those that another wrapper trained since."""
        session = self._require().session
        with TRACED.tracepoint("copy weights to host"):
            session.download()

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Copy weights to the host if the device changed them since the last copy; returns whether it did."""
        return self._compiled is not None and self._compiled.session.bring_to_host()

    def copyWeightsToDevice(self) -> None:
        """Copy what the host's tensors hold to the device; what the device has learnt and nobody looked at is lost."""
        session = self._require().session
        with TRACED.tracepoint("copy weights to device"):
            session.upload()

    def copyNamedBuffersToDevice(self) -> None:
        """Copy the buffers that ``Options.updatableNamedBuffers`` names to the device, and nothing else.

        Raises:
            Error: None is named, or one that the model does not have; nothing is compiled.
        """
        names = self._options.updatable_named_buffers
        if not names:
            raise Error("No named buffers marked as updatable via updatableNamedBuffers option")
        compiled = self._require()
        buffers = dict(self._model.named_buffers(remove_duplicate=False))
        unknown = [name for name in names if name not in buffers]
        if unknown:
            raise Error(f"{unknown[0]!r} is no buffer of the model", because=f"it has {', '.join(buffers) or 'none'}")
        own = {id(buffers[name]) for name in names}
        compiled.session.upload([name for name, t in compiled.captured.weights.items() if id(t) in own])

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> Any:
        """Load weights into the host's model and, if it is there, onto the device."""
        self.copyWeightsToHostIfNeeded()
        keys = self._model.load_state_dict(state_dict, strict)
        if self.isAttachedToDevice():
            self.copyWeightsToDevice()
        return keys

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The newest weights."""
        self.copyWeightsToHostIfNeeded()
        return self._model.state_dict(*args, **kwargs)

    # --- optimiser -----------------------------------------------------------------------------------------------

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Take over the numbers of ``optimizer``; those compiled as constants may not change.

        Raises:
            Error: An inference model, another number of groups, or a constant that changed.
        """
        if not self._training:
            raise Error("An inference model has no optimizer")
        check_parameters(optimizer, self._model)
        self._warn_of(optimizer)
        if self._compiled is not None:
            self._replace_rules(self._compiled.session, optimizer)
            self._forget_loaded_state()
        if self._optimizer is not optimizer and isinstance(self._optimizer, Optimizer):
            self._optimizer.detach_state(keep=False)
        self._optimizer = optimizer
        if self._compiled is not None:
            self._share_state(self._compiled)

    def _forget_loaded_state(self) -> None:
        """Let the optimiser read its state from the device again, where one was loaded."""
        if isinstance(self._optimizer, Optimizer) and self._optimizer._device is not None:
            self._optimizer._device.note_run()

    def _warn_of(self, optimizer: torch.optim.Optimizer) -> None:
        """Warn of an optimiser's settings that the device does not take, unless options say not to."""
        if not self._options.relax_optimizer_checks:
            warn_of_optimizer(optimizer, self._told_of_optimizer)

    def _share_state(self, compiled: CompiledModel) -> None:
        """Let the optimiser read and write its state on the device."""
        optimizer = self._optimizer
        if not isinstance(optimizer, Optimizer):
            return
        assert isinstance(optimizer, torch.optim.Optimizer)
        if optimizer._device is None or optimizer._device.session is not compiled.session:
            combined = bool(getattr(optimizer, "use_combined_accum", False))
            optimizer.attach_state(SessionState(compiled.session, compiled.trained_names(optimizer), combined))

    def _replace_rules(self, session: Session, optimizer: torch.optim.Optimizer) -> None:
        """Give a session the numbers of an optimiser over the groups that it was compiled with."""
        rules, groups = read_rules(optimizer), session.compiled.optimisers or ()
        if len(rules) != len(groups):
            raise Error(f"the optimizer has {len(rules)} groups, the model was compiled for {len(groups)}")
        assert self._optimizer is not None
        if parameter_groups(optimizer) != parameter_groups(self._optimizer):
            raise Error(
                "the optimizer's groups hold other parameters than those that the model was compiled for",
                remedy="call destroy() to compile again with the next call",
            )
        try:
            session.replace_optimisers(rules)
        except InvalidOptionError as error:
            raise Error(error.message, remedy=error.remedy) from error

    # --- what is known -------------------------------------------------------------------------------------------

    @property
    def model(self) -> torch.nn.Module:
        """The wrapped model."""
        return self._model

    def train(self, mode: bool = True) -> Self:
        """Put the user's model into training or evaluation mode; a compiled program stays as it is."""
        self._model.train(mode)
        return self

    def eval(self) -> Self:
        """Put the user's model into evaluation mode; a compiled program stays as it is."""
        return self.train(False)

    # Frameworks above PopTorch read the private attributes that follow.

    @property
    def _user_model(self) -> torch.nn.Module:
        return self._model

    @property
    def _poptorch_optimizer(self) -> torch.optim.Optimizer | None:
        return self._optimizer

    @property
    def _executable(self) -> Executable | None:
        return None if self._compiled is None else self.executable

    @property
    def _executable_inputs(self) -> _CallArguments | None:
        return self._inputs

    @property
    def _is_attached(self) -> bool:
        return self.isAttachedToDevice()

    @property
    def options(self) -> Options:
        """The frozen options."""
        return self._options

    @property
    def rng_state(self) -> list[int]:
        """State of random ops, the seed first; can be set. Of a model without any it is what it was set to."""
        return self._require().session.random_state or self._rng_state or [self._first_seed(), 0]

    @rng_state.setter
    def rng_state(self, state: list[int]) -> None:
        self._require().session.random_state = state
        self._rng_state = list(state)

    def _continue_random(self, state: list[int]) -> None:
        """Let random ops go on from a state: at once, or when the model comes to the device."""
        self._rng_state = list(state)
        if self.isAttachedToDevice():
            self._require().session.random_state = state

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._model, name)
        if name in _OFF_THE_MACHINE and callable(value):
            return self._warning(name, value)
        offer(value, compiled=self.isCompiled())
        return value

    def _warning(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Changing method of the user's model, with a warning: its result runs on the host."""

        @functools.wraps(method)
        def warned(*args: Any, **kwargs: Any) -> Any:
            logs.warn(
                f"{name}() of a wrapped model changes the model inside and returns that: what it returns runs on the "
                f"host, not on the IPU, and a compiled program stays as it is. Call {name}() on the model before it is "
                "wrapped, and go on with the wrapped model.",
                stacklevel=2,
            )
            return method(*args, **kwargs)

        return warned

    def __reduce__(self) -> Any:
        """Pickled, and copied, as model, options and optimiser: the copy compiles on its first call, and its
        optimiser starts anew."""
        from abele.frontends.poptorch.models import wrappers

        grouped = choices_of(self._model)
        if self._training:
            return wrappers.trainingModel, (self._model, self._options, self._optimizer), grouped
        return wrappers.inferenceModel, (self._model, self._options), grouped

    def __setstate__(self, grouped: dict[str, tuple[int, int, int]]) -> None:
        """Group the weights of a copy across replicas as they were."""
        choose(self._model, grouped)

    def __del__(self) -> None:
        """Bring the weights to the host, so that training is not lost with its wrapper."""
        if not sys.is_finalizing() and "_lock" in self.__dict__:
            with contextlib.suppress(Exception):
                self.destroy()

    def __repr__(self) -> str:
        kind = "training" if self._training else "inference"
        return f"PoplarExecutor({kind}, {plain_class(self._model).__name__})"
