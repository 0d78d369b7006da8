"""Models for ``abele fit``: known ones by name, others from a function in a file."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abele.errors import FileFormatError, InvalidOptionError, nearest

if TYPE_CHECKING:
    import torch

NamedModel = tuple["torch.nn.Module", Any, "torch.optim.Optimizer | None", "Mapping[str, Any] | None"]
"""A model, its example inputs, how it is trained, and how its layers are split over a group of replicas."""


def named_model(name: str, sequence: int | None) -> NamedModel:
    """The model of a name, or of a function in a file.

    Args:
        name: ``bert-large``, or ``path/to/file.py:function``.
        sequence: Positions of a sequence; None for the usual number. A function in a file takes it by this name.

    Raises:
        InvalidOptionError: No model has that name, or it has no sequences.
        FileFormatError: There is no such file or function, or it returns something else.
    """
    if is_file(name):
        return _from_file(name, {} if sequence is None else {"sequence": sequence})
    from abele.garden.models import known_model

    return known_model(name).of_length(sequence)


def is_file(name: str) -> bool:
    """True if a name is that of a function in a file."""
    return ":" in name


def _from_file(name: str, more: Mapping[str, Any]) -> NamedModel:
    path, _, function = name.rpartition(":")
    module = _loaded(Path(path))
    made = getattr(module, function, None)
    if not callable(made):
        names = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        close = nearest(function, names)
        raise FileFormatError(
            f"{path} has no function {function!r}",
            because=f"it has {', '.join(names) or 'none'}",
            remedy=f"did you mean {path}:{close}?" if close else None,
        )
    unknown = more.keys() - inspect.signature(made).parameters.keys()
    if unknown:
        raise InvalidOptionError(
            f"{name} takes no argument {unknown.pop()!r}",
            because="a model of several sequence lengths is made anew for each",
            remedy=f"def {function}(sequence=128): ...",
        )
    return _checked(name, made(**more))


def _checked(name: str, returned: Any) -> NamedModel:
    import torch

    parts = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
    # What is behind model and inputs says itself what it is.
    split = parts[-1] if len(parts) > 2 and isinstance(parts[-1], Mapping) else None
    parts = parts if split is None else parts[:-1]
    if len(parts) not in (2, 3) or not isinstance(parts[0], torch.nn.Module):
        raise FileFormatError(
            f"{name} returned {type(returned).__name__} of {len(parts)}",
            remedy="return the model and the example inputs of one micro-batch, an optimizer to train it, and a plan "
            "that splits its layers; the last two may be left out",
        )
    optimizer = parts[2] if len(parts) == 3 else None
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise FileFormatError(f"{name} returned {type(optimizer).__name__} where an optimizer is wanted")
    return parts[0], parts[1], optimizer, split


def _loaded(path: Path) -> Any:
    if not path.is_file():
        raise FileFormatError(f"there is no file {path}", remedy="abele fit path/to/file.py:function")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise FileFormatError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Classes of the file say the module that they are from; its neighbours are imported by name.
    sys.modules[path.stem], before = module, list(sys.path)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # Whatever a user's file raises.
        raise FileFormatError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        sys.path[:] = before
    return module
