"""Wrapped models as files: the program, and with it, where that is asked for, the model and its optimiser.

A file is a zip of a compiled network (:mod:`abele.session.store`), a state that PyTorch wrote, and a head. The state is
read by PyTorch's own reader of weights, which knows numbers, text, containers and tensors. Of other classes it makes
objects only where they are layers or optimisers whose modules are imported already, or options and enumerations of
PopTorch. A file therefore cannot name a function to be called, nor have a module imported: a program that loads a file
imports the classes of its model first.
"""

from __future__ import annotations

import dataclasses
import enum
import io
import json
import sys
import zipfile
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from abele.errors import FileFormatError
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.options.checked import Freezable
from abele.frontends.poptorch.options.strategies import Phase, Stage
from abele.frontends.poptorch.training.optim import VariableAttributes
from abele.frontends.poptorch.values.signature import LevelSpec, TensorSpec
from abele.writing import writing_whole

FORMAT = "abele-poptorch"
_HEAD, _STATE, _COMPILED = "poptorch.json", "state.pt", "compiled.session"
_MOST_HEAD_BYTES = 1 << 16
_PLAIN = (list, tuple, set, frozenset, dict, defaultdict, OrderedDict, slice, complex, bytearray, range)
_OWN = (Freezable, Stage, Phase, VariableAttributes, TensorSpec, LevelSpec)


@dataclass
class SavedModel:
    """Contents of a file.

    Attributes:
        training: True if calls train.
        exported: True if the model is in the file.
        state: Model, optimiser, options, weights, state of random ops; and the signature of calls.
        compiled: The compiled network as a file.
    """

    training: bool
    exported: bool
    state: dict[str, Any]
    compiled: bytes


def model_path(path: str | Path) -> Path:
    """The file that a path means: in a folder, ``model.poptorch``."""
    path = Path(path)
    return path / "model.poptorch" if path.is_dir() else path


def write(path: Path, version: str, saved: SavedModel) -> None:
    """Write a file, whole or not at all; folders are made.

    Raises:
        Error: The model holds something that no file can.
        FileFormatError: The file cannot be written.
    """
    state = io.BytesIO()
    try:
        torch.save(saved.state, state)
    except Exception as error:  # Whatever the owner's own classes raise.
        raise Error(
            f"the model cannot be saved: {error}",
            remedy="export_model=False leaves the model out; classes of models belong at the top of a module",
        ) from error
    _allowed(state, path)
    head = {"format": FORMAT, "version": version, "training": saved.training, "exported": saved.exported}
    with writing_whole(path) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_HEAD, json.dumps(head))
        archive.writestr(_COMPILED, saved.compiled)
        archive.writestr(_STATE, state.getvalue())


def read(path: Path, version: str) -> SavedModel:
    """Contents of a file, read as data.

    Raises:
        FileFormatError: The file is missing, damaged, of another version, or holds what no such file may.
        Error: The model is of a class that this program has not imported.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, path, version)
    except (zipfile.BadZipFile, OSError, KeyError, ValueError, EOFError, RuntimeError) as error:
        if isinstance(error, (Error, FileFormatError)):
            raise
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise FileFormatError(f"{path}: cannot be read as a saved model", because=str(reason)) from error


def _read(archive: zipfile.ZipFile, path: Path, version: str) -> SavedModel:
    size = path.stat().st_size
    for info in archive.infolist():
        # Members are stored as they are, so none can be larger than the file.
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > size:
            raise ValueError(f"its member {info.filename!r:.60} is packed, and none that is saved here is")
    if archive.getinfo(_HEAD).file_size > _MOST_HEAD_BYTES:
        raise ValueError("its head is too large")
    head = json.loads(archive.read(_HEAD))
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError("it is no saved model")
    if head.get("version") != version:
        raise Error(
            f"PopTorch version mismatch: File was created with version: {head.get('version')!s:.60} and this is "
            f"version {version}",
            at=str(path),
            remedy="compile the model again and save it with this version",
        )
    state = _load_state(archive.read(_STATE), path)
    if not isinstance(state, dict):
        raise ValueError("its state is no dictionary")
    return SavedModel(bool(head.get("training")), bool(head.get("exported")), state, archive.read(_COMPILED))


def _load_state(content: bytes, path: Path) -> Any:
    allowed = _allowed(io.BytesIO(content), path)
    with torch.serialization.safe_globals(allowed):
        return torch.load(io.BytesIO(content), weights_only=True)


def _allowed(stream: io.BytesIO, path: Path) -> list[Any]:
    """Classes that a state names, if all may be made; others are refused.

    Raises:
        Error: One may not.
    """
    names = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(stream.getvalue()))
    found = {name: _known(name) for name in names}
    unknown = [name for name, kind in found.items() if kind is None]
    if unknown:
        raise Error(
            f"{path}: holds {unknown[0]!r}, which is no layer, optimizer or option that this program has imported",
            because="files are read as data: nothing that they name is called or imported",
            remedy="import the module of the model's class first, and keep plain data in the model's attributes",
        )
    return list(found.values())


def _known(name: str) -> Any:
    """The class of a name that a file may have objects of; None for anything else."""
    module, _, attribute = name.rpartition(".")
    # Classes in classes are not looked for: a module's own names alone.
    kind = vars(sys.modules[module]).get(attribute) if module in sys.modules else None
    if kind in _PLAIN:
        return kind
    if not isinstance(kind, type) or kind.__module__ != module:
        return None
    is_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    own = issubclass(kind, _OWN)
    enumerated = issubclass(kind, enum.Enum)
    described = module.startswith("abele.machine.") and dataclasses.is_dataclass(kind)
    layered = issubclass(kind, (torch.nn.Module, torch.optim.Optimizer))
    return kind if is_tuple or own or enumerated or described or layered else None
