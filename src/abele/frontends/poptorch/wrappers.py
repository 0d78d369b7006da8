"""``trainingModel`` and ``inferenceModel``: how a user gets a wrapped model."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

import torch

from abele.frontends.poptorch.executor import PoplarExecutor
from abele.frontends.poptorch.options import Options

_WRAPPED: weakref.WeakKeyDictionary[torch.nn.Module, weakref.ref[PoplarExecutor]] = weakref.WeakKeyDictionary()

DEFAULT_LEARNING_RATE = 0.01


class _Callable(torch.nn.Module):
    """A plain function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function if _tells_parameters(function) else self._forward
        self.function = function

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def _tells_parameters(function: Callable[..., Any]) -> bool:
    """Whether Python knows the parameters of a function; of those written in C it often does not."""
    try:
        return inspect.signature(function) is not None
    except ValueError:
        return False


def trainingModel(
    model: torch.nn.Module | PoplarExecutor,
    options: Options | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> PoplarExecutor:
    """Wrap a model whose ``forward`` computes a loss: every call trains it on one host batch.

    Args:
        model: The model, or another wrapper of it.
        options: Batching, accumulation and the machine; the defaults when left out. Frozen here.
        optimizer: SGD, Adam or AdamW of torch or poptorch; SGD with a rate of 0.01 when left out.

    Raises:
        RuntimeError: The model is wrapped for training already.
    """
    user_model = model.model if isinstance(model, PoplarExecutor) else model
    previous = _WRAPPED.get(user_model, lambda: None)()
    if previous is not None and previous.isCompiled():
        raise RuntimeError(
            "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the model to unwrap "
            "before wrapping again."
        )
    if optimizer is None:
        optimizer = torch.optim.SGD(user_model.parameters(), lr=DEFAULT_LEARNING_RATE)
    executor = PoplarExecutor(user_model, options or Options(), training=True, optimizer=optimizer)
    _WRAPPED[user_model] = weakref.ref(executor)
    return executor


def inferenceModel(
    model: torch.nn.Module | PoplarExecutor | Callable[..., Any], options: Options | None = None
) -> PoplarExecutor:
    """Wrap a model, in evaluation mode, or a function: every call runs it on one host batch.

    Weights are shared with a training wrapper of the same model and refreshed before each call.

    Args:
        model: The model, another wrapper of it, or a function of tensors.
        options: Batching and the machine; the defaults when left out. Frozen here.
    """
    if isinstance(model, PoplarExecutor):
        model = model.model
    if not isinstance(model, torch.nn.Module):
        model = _Callable(model)
    return PoplarExecutor(model, options or Options(), training=False)
