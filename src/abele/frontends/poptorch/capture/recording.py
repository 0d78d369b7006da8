"""Context in which PyTorch records a model: functions with backward passes of their own, and checkpoints, leave marks.

PyTorch's export runs the forward pass of a ``torch.autograd.Function`` and forgets its backward pass, and runs
checkpointed code as if it were not. So that both are honoured on the device, for as long as a model is recorded

* a call of a user's function records its backward pass too, on gradients that are marks (:mod:`.marks`): call 0 with
  the result y and a backward pass ``2 * grad`` of x records ``own_backward(0, [y], [x], [2 * incoming(y, 0)])``;
* calls under ``torch.utils.checkpoint`` are noted on their nodes, and so are calls under ``torch.no_grad``: export
  makes regions of the latter, but drops all of them where it meets control flow.

Names that a program has imported from PyTorch (``quantise = Quantise.apply``) stay the same objects, so changes are
made below them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
import torch.utils.checkpoint as checkpoints
from torch.autograd.function import _SingleLevelFunction
from torch.fx import traceback
from torch.fx.traceback import preserve_node_meta
from torch.overrides import TorchFunctionMode

from abele.frontends.poptorch.capture.patches import patched
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.program.blocks import annotate

CHECKPOINT = "abele_checkpoint"
"""Under this name a node's notes have the checkpoints that it is in: their numbers, the outermost first."""

QUIET = "abele_quiet"
"""Under this name a node's notes say that it was called under ``torch.no_grad``."""

_training: ContextVar[bool] = ContextVar("poptorch_training", default=False)


def is_training() -> bool:
    """True while a model is recorded of which gradients will be taken."""
    return _training.get()


@contextmanager
def recording(*, training: bool) -> Iterator[None]:
    """Let functions and checkpoints leave marks inside, if gradients will be taken."""
    token = _training.set(training)
    try:
        with preserve_node_meta(), _own_notes(), _marked_gradients():
            if not training:
                yield
                return
            with _marked_functions(), _noted_checkpoints(), _noted_quiet():
                yield
    finally:
        _training.reset(token)


@contextmanager
def _own_notes() -> Iterator[None]:
    """Notes on nodes are those of users and ours: PyTorch's tracer notes its own inner workings too, and then refuses
    programs whose notes disagree."""
    original = traceback.annotate

    @functools.wraps(original)
    def noted(notes: dict[str, Any]) -> AbstractContextManager[Any]:
        return nullcontext() if "_torchdynamo_disable" in notes else original(notes)

    with patched(traceback, annotate=noted):
        yield


class _QuietNotes(TorchFunctionMode):
    """Notes on nodes what runs without gradients."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The function's result."""
        made = function(*args, **(kwargs or {}))
        if function is torch._C._set_grad_enabled:
            _note_quiet(not args[0])
        return made


@contextmanager
def _noted_quiet() -> Iterator[None]:
    try:
        with _QuietNotes():
            yield
    finally:
        _note_quiet(False)


def _note_quiet(quiet: bool) -> None:
    module: Any = traceback
    notes = {name: note for name, note in module.current_meta.get("custom", {}).items() if name != QUIET}
    module.current_meta["custom"] = {**notes, QUIET: True} if quiet else notes


# --- gradients in forward passes --------------------------------------------------------------------------------------


@contextmanager
def _marked_gradients() -> Iterator[None]:
    """Let ``torch.autograd.grad`` leave a mark; PyTorch's engine would run on tensors that have no values."""
    module: Any = torch.autograd
    engine = module._engine_run_backward

    def run(outputs: Sequence[Any], given: Sequence[Any], *rest: Any, **options: Any) -> tuple[torch.Tensor, ...]:
        if any(torch._C._functorch.is_gradtrackingtensor(t) for t in outputs):
            made: tuple[torch.Tensor, ...] = engine(outputs, given, *rest, **options)
            return made  # Of a transform, which is worked out below the recorder.
        _, keep, inputs = rest[:3] if len(rest) > 2 else (*rest[:2], ())
        if options.get("accumulate_grad") or not inputs:
            raise Error(
                "backward() cannot be called while a model is recorded: the device runs the backward pass by itself",
                remedy="return the loss, or use torch.autograd.grad for gradients that forward needs",
            )
        grads = [torch.ones_like(t) if g is None else g for t, g in zip(outputs, given, strict=True)]
        return tuple(torch.ops.abele.gradients(list(outputs), grads, list(inputs), bool(keep)))

    with patched(module, _engine_run_backward=run):
        yield


# --- checkpoints ------------------------------------------------------------------------------------------------------


class _Checkpoints:
    """Numbers of checkpoints, and which of them are open."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._open: tuple[int, ...] = ()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note a new checkpoint on the nodes that are recorded inside."""
        before = self._open
        self._open = (*before, next(self._numbers))
        try:
            with annotate({CHECKPOINT: self._open}):
                yield
        finally:
            self._open = before

    def around(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        """In place of the generator that PyTorch steps before and after the function of a checkpoint."""
        with self.noted():
            yield


@contextmanager
def _noted_checkpoints() -> Iterator[None]:
    open_ones = _Checkpoints()

    class Reentrant:
        """In place of the function whose backward pass runs the checkpoint again."""

        @staticmethod
        def apply(function: Any, preserve: bool, *args: Any) -> Any:
            with open_ones.noted():
                return function(*args)

    replaced = {"_checkpoint_without_reentrant_generator": open_ones.around, "CheckpointFunction": Reentrant}
    with patched(checkpoints, **replaced):
        yield


# --- functions with backward passes -----------------------------------------------------------------------------------


@contextmanager
def _marked_functions() -> Iterator[None]:
    numbers = itertools.count()

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls.__module__.split(".")[0] == "torch" or not torch.is_grad_enabled():
            return super(_SingleLevelFunction, cls).apply(*args, **kwargs)
        return _recorded(cls, next(numbers), args, kwargs)

    # `Function.apply` asks its superclass, which inherits this from C.
    function: Any = _SingleLevelFunction
    function.apply = classmethod(apply)
    try:
        yield
    finally:
        del function.apply


class _Context:
    """State that the two passes of a function share, as PyTorch's own ``ctx`` does."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()
        self.materialize_grads = True
        self.non_differentiable: set[int] = set()
        self.dirty_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Do nothing: derivatives are taken backward."""

    def mark_non_differentiable(self, *tensors: torch.Tensor) -> None:
        self.non_differentiable = {id(t) for t in tensors}

    def mark_dirty(self, *tensors: torch.Tensor) -> None:
        self.dirty_tensors = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value


def _recorded(cls: Any, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results of a function's forward pass, marked with its backward pass."""
    context = _Context(tuple(isinstance(a, torch.Tensor) and a.is_floating_point() for a in args))
    if cls.setup_context is not torch.autograd.Function.setup_context:
        made = cls.forward(*args, **kwargs)
        cls.setup_context(context, args, made)
    else:
        made = cls.forward(context, *args, **kwargs)
    results = list(made) if isinstance(made, (tuple, list)) else [made]
    graded = [
        place
        for place, value in enumerate(results)
        if isinstance(value, torch.Tensor) and value.is_floating_point() and id(value) not in context.non_differentiable
    ]
    if not graded or not any(context.needs_input_grad):
        return made
    chosen = [results[place] for place in graded]
    sources, gradients = _backward(cls, context, number, args, results=results, graded=graded)
    marked = torch.ops.abele.own_backward(number, chosen, sources, gradients)
    for place, value in zip(graded, marked, strict=True):
        results[place] = value
    return type(made)(results) if isinstance(made, (tuple, list)) else results[0]


def _backward(
    cls: Any, context: _Context, number: int, args: tuple[Any, ...], *, results: Sequence[Any], graded: Sequence[int]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Arguments with gradients, and the gradients, from incoming ones that are marks."""
    incoming = [
        torch.ops.abele.incoming(value, number)
        if place in graded
        else (torch.zeros_like(value) if context.materialize_grads and isinstance(value, torch.Tensor) else None)
        for place, value in enumerate(results)
    ]
    with torch.no_grad():
        given = _backward_of(cls)(context, *incoming)
        given = given if isinstance(given, (tuple, list)) else (given,)
        if len(given) < len(args):
            raise Error(
                f"function {cls.__name__}Backward returned an incorrect number of gradients (expected {len(args)}, got "
                f"{len(given)})"
            )
        pairs = [
            (argument, _fitted(gradient, argument))
            for argument, gradient, needs in zip(args, given, context.needs_input_grad, strict=False)
            if needs and gradient is not None
        ]
    return [argument for argument, _ in pairs], [gradient for _, gradient in pairs]


def _backward_of(cls: Any) -> Any:
    """The backward pass, under either of its names."""
    return cls.vjp if cls.vjp is not torch.autograd.Function.vjp else cls.backward


def _fitted(gradient: torch.Tensor, argument: torch.Tensor) -> torch.Tensor:
    """A gradient in the shape and type of its tensor, as PyTorch makes it."""
    if gradient.shape != argument.shape:
        gradient = gradient.sum_to_size(argument.shape)
    return gradient.to(argument.dtype)
