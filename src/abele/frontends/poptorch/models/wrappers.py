"""``trainingModel`` and ``inferenceModel``: how a user gets a wrapped model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from abele.frontends.poptorch.capture.capture import check_initialised
from abele.frontends.poptorch.enums import ConnectionType
from abele.frontends.poptorch.errors import ArgumentError, Error, as_poptorch_errors
from abele.frontends.poptorch.models.executor import PoplarExecutor
from abele.frontends.poptorch.models.exporting import check_exported, model_path, read
from abele.frontends.poptorch.models.user_models import owner_of
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.training.rules import check_parameters
from abele.frontends.poptorch.version import VERSION

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
    """True if Python knows the parameters of a function; of those written in C it often does not."""
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
        ArgumentError: The model, the options or the optimizer is something else.
        Error: The optimizer holds parameters that the model does not have.
    """
    user_model = model.model if isinstance(model, PoplarExecutor) else model
    if not isinstance(user_model, torch.nn.Module):
        raise ArgumentError(f"the model is {user_model!r}, not a torch.nn.Module")
    check_initialised(user_model)
    if owner_of(user_model) is not None:
        raise RuntimeError(
            "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the model to unwrap "
            "before wrapping again."
        )
    if optimizer is None:
        optimizer = torch.optim.SGD(user_model.parameters(), lr=DEFAULT_LEARNING_RATE)
    check_parameters(optimizer, user_model)
    return PoplarExecutor(user_model, _checked(options), training=True, optimizer=optimizer)


def inferenceModel(
    model: torch.nn.Module | PoplarExecutor | Callable[..., Any], options: Options | None = None
) -> PoplarExecutor:
    """Wrap a model, in evaluation mode, or a function: every call runs it on one host batch.

    Weights are shared with a training wrapper of the same model and refreshed before each call.

    Args:
        model: The model, another wrapper of it, or a function of tensors.
        options: Batching and the machine; the defaults when left out. Frozen here.

    Raises:
        ArgumentError: The model cannot be called, or the options are something else.
    """
    if isinstance(model, PoplarExecutor):
        model = model.model
    if not callable(model) or isinstance(model, type):
        remedy = f"make one: {model.__name__}(...)" if isinstance(model, type) else None
        raise ArgumentError(f"the model is {model!r}, not a torch.nn.Module or a function", remedy=remedy)
    if not isinstance(model, torch.nn.Module):
        model = _Callable(model)
    return PoplarExecutor(model, _checked(options), training=False)


def load(filename: str | Path, edit_opts_fn: Callable[[Options], Any] | None = None) -> PoplarExecutor:
    """A wrapped and compiled model from a file that ``save`` or ``compileAndExport`` wrote with the model in it.

    Nothing in the file is executed or imported: the program imports the classes of its model first. What was compiled
    without a device (``useOfflineIpuTarget``, ``ConnectionType.Never``) gets one.

    Args:
        filename: The file; in a folder, ``model.poptorch``.
        edit_opts_fn: May change options of running, such as threads or the connection, before they are used.

    Raises:
        Error: The file is of another version, has no model, or names classes that are not imported.
        FileFormatError: The file is damaged, or none.
    """
    with as_poptorch_errors():
        path = model_path(filename)
        saved = read(path, VERSION)
        options = check_exported(saved, path)
        if options.connection_type == ConnectionType.Never:
            # Compiled without a device, to be run with one: that is what such files are for.
            options.connectionType(ConnectionType.Always)
        if edit_opts_fn is not None:
            edit_opts_fn(options)
        model, optimizer = saved.state["model"], saved.state["optimizer"]
        if not isinstance(model, torch.nn.Module):
            raise Error(f"{path}: its model is a {type(model).__name__}, not a torch.nn.Module")
        executor = PoplarExecutor(model, options, training=saved.training, optimizer=optimizer)
        executor._adopt(saved, path)
        return executor


def _checked(options: Options | None) -> Options:
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise ArgumentError(f"the options are {options!r}, not poptorch.Options")
    return options
