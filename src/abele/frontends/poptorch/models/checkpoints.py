"""Checkpoints of training: all that is needed to go on, in one file that is there whole or not at all.

All ranks have the same weights and the same state of the optimiser, so the first writes and all read; the file does not
know how many ranks or replicas there were.
"""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from abele.errors import FileFormatError
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.models.executor import PoplarExecutor
from abele.frontends.poptorch.training.optim import Optimizer
from abele.writing import writing_whole

FORMAT = "abele-checkpoint"


def save_checkpoint(path: str | Path, model: PoplarExecutor, **more: Any) -> None:
    """Write a checkpoint; ranks other than the first only look on. It replaces the one before at once.

    Args:
        path: The file; its folder is made.
        model: A model that trains and has run.
        more: Plain data or tensors to keep beside, such as how many updates were made.

    Raises:
        Error: The model does not train.
        FileFormatError: The file cannot be written.
    """
    optimizer = _optimizer_of(model)
    state = {
        "format": FORMAT,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": model.rng_state,
        "more": more,
    }
    if model.options.Distributed.processId != 0:
        return
    with writing_whole(path) as part:
        torch.save(state, part)
    # Parts that were left by a process that was killed.
    for part in Path(path).parent.glob(f"{Path(path).name}*.part"):
        part.unlink(missing_ok=True)


def load_checkpoint(path: str | Path, model: PoplarExecutor) -> dict[str, Any]:
    """Go on from a checkpoint, before or after the model was compiled; every rank reads it.

    Args:
        path: The file.
        model: The wrapped model; its optimiser is of the same kind as when the file was written.

    Returns:
        The further entries of the checkpoint.

    Raises:
        Error: The model does not train.
        FileFormatError: The file is missing, damaged, or no checkpoint.
    """
    optimizer = _optimizer_of(model)
    try:
        state = torch.load(path, weights_only=True)
    except (OSError, pickle.UnpicklingError, zipfile.BadZipFile, EOFError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).partition("\n")[0]
        raise FileFormatError(f"{path}: cannot be read as a checkpoint", because=reason) from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise FileFormatError(f"{path}: is no checkpoint", remedy="a file that poptorch.save_checkpoint wrote")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    model._continue_random(state["random"])
    more: dict[str, Any] = state["more"]
    return more


def _optimizer_of(model: PoplarExecutor) -> torch.optim.Optimizer:
    """The optimiser of a model, whose state can be read from the device.

    Raises:
        Error: There is none, or it is one of PyTorch's.
    """
    optimizer = model._optimizer
    if optimizer is None:
        raise Error("a checkpoint is of a model that trains", remedy="the model that poptorch.trainingModel gave")
    if not isinstance(optimizer, Optimizer):
        raise Error(
            f"the state of torch.optim.{type(optimizer).__name__} stays on the device",
            remedy=f"poptorch.optim.{type(optimizer).__name__}, whose state comes to the host",
        )
    assert isinstance(optimizer, torch.optim.Optimizer)
    return optimizer
