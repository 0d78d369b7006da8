"""The part of a wrapped model that writes it to files and reads it from them."""

from __future__ import annotations

import dataclasses
import enum
import io
import json
import sys
import tempfile
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from abele.errors import FileFormatError
from abele.frontends.poptorch import logs
from abele.frontends.poptorch.capture.capture import CapturedModel, OutputLeaf, own_tensors
from abele.frontends.poptorch.enums import ConnectionType
from abele.frontends.poptorch.errors import Error, OptionValueError, as_poptorch_errors
from abele.frontends.poptorch.models.batching import Batching
from abele.frontends.poptorch.models.compiling import CompiledModel
from abele.frontends.poptorch.models.grouping import choices_of, choose, without_choices
from abele.frontends.poptorch.models.inspection import Inspection
from abele.frontends.poptorch.models.sharding import OwnValues
from abele.frontends.poptorch.models.user_models import as_plain, plain_class
from abele.frontends.poptorch.models.weights import cell_of, plain
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.options.checked import Freezable
from abele.frontends.poptorch.options.strategies import Phase, Stage
from abele.frontends.poptorch.program import recording
from abele.frontends.poptorch.training.optim import VariableAttributes
from abele.frontends.poptorch.training.rules import read_rules
from abele.frontends.poptorch.values.signature import ForwardSignature, LevelSpec, TensorSpec
from abele.frontends.poptorch.version import VERSION
from abele.session import Session, SharedArrays
from abele.session.store import load_compiled, save_compiled
from abele.writing import writing_whole

# Watching a compiled model: replaced parts are found by a few look-ups before each call.


@dataclass(frozen=True)
class _Members:
    """Modules, parameters or buffers of one module, as they were."""

    path: str
    kind: str
    table: dict[str, Any]
    then: dict[str, Any]

    def change(self) -> str | None:
        for name in (*self.then, *self.table):
            if self.table.get(name) is not self.then.get(name):
                change = "gone" if name not in self.table else "new" if name not in self.then else "another one"
                return f"the {self.kind} {self.path + name!r} is {change}"
        return None


class ModelWatch:
    """Attributes of a model that were compiled in.

    Args:
        model: The model.
        training: True if it matters which parameters are trained.
    """

    def __init__(self, model: torch.nn.Module, *, training: bool) -> None:
        self._training = training
        self._members = list(_members(model))
        self._tensors = {
            f"{m.path}{name}": t
            for m in self._members
            if m.kind != "module"
            for name, t in m.then.items()
            if t is not None
        }
        self._form = self._forms()

    def _forms(self) -> list[tuple[torch.dtype, torch.Size, bool]]:
        with torch._C.DisableTorchFunctionSubclass():
            return [(t.dtype, t.shape, t.requires_grad) for t in self._tensors.values()]

    def change(self) -> str | None:
        """First difference from the compiled model, in words; None if there is none."""
        for members in self._members:
            change = members.change()
            if change is not None:
                return change
        forms = self._forms()
        if forms == self._form:
            return None
        for name, then, now in zip(self._tensors, self._form, forms, strict=True):
            for what, before, after in zip(("type", "shape"), then, now, strict=False):
                if before != after:
                    return f"the {what} of {name!r} is {after}, and was {before}"
            if self._training and then != now:
                return f"{name!r} has requires_grad={now[2]}, and had {then[2]}"
        return None


def _members(model: torch.nn.Module) -> Iterator[_Members]:
    for path, module in model.named_modules():
        start = f"{path}." if path else ""
        tables = {"module": module._modules, "parameter": module._parameters, "buffer": module._buffers}
        for kind, table in tables.items():
            if table:
                yield _Members(start, kind, table, dict(table))


# Wrapped models as files: the program, and with it, where that is asked for, the model and its optimiser.
#
# A file is a zip of a compiled network (:mod:`abele.session.store`), a state that PyTorch wrote, and a head. The state
# is read by PyTorch's own reader of weights, which knows numbers, text, containers and tensors. Of other classes it
# makes objects only where they are layers or optimisers whose modules are imported already, or options and
# enumerations of PopTorch. A file therefore cannot name a function to be called, nor have a module imported: a program
# that loads a file imports the classes of its model first.

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


# Metadata of custom operations and saved files, and the tensors of a model that is being recorded.


def accessAttributes(attribute_id_str: str) -> dict[str, Any]:
    """Attributes of a custom operation from the text that stands for them: a JSON object.

    Raises:
        OptionValueError: It is not.
    """
    if not isinstance(attribute_id_str, str):
        raise OptionValueError(f"Wrong type for attribute_id_str: {type(attribute_id_str)}")
    try:
        attributes = json.loads(attribute_id_str)
    except json.JSONDecodeError as error:
        raise OptionValueError(f"{attribute_id_str!r} stands for no attributes", because=str(error)) from error
    if not isinstance(attributes, dict):
        raise OptionValueError(f"{attribute_id_str!r} stands for no attributes: it is no JSON object")
    return attributes


def getIpuTensorId(tensor: torch.Tensor) -> int:
    """A number of a tensor while the model that computes it is being recorded; another one for each tensor.

    Raises:
        Error: No model is being recorded.
    """
    if not isinstance(tensor, torch.Tensor) or not recording.isRunningOnIpu():
        raise Error("tensors have numbers on the IPU only while a model is being recorded")
    return id(tensor)


def importPoptorchMetadataFromFile(filename: str | Path) -> SavedModel:
    """Contents of a file that ``save`` wrote, without a wrapper of the model.

    Raises:
        Error: The file is of another version.
        FileFormatError: The file is damaged, or none.
    """
    return read(model_path(filename), VERSION)


class Exporting(Inspection):
    """Methods of a wrapped model for files."""

    _model: torch.nn.Module
    _training: bool
    _optimizer: torch.optim.Optimizer | None
    _batching: Batching
    _signature: ForwardSignature
    _watch: ModelWatch | None
    _rng_state: list[int] | None = None

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile without running."""
        raise NotImplementedError

    def attachToDevice(self) -> None:
        """Load the compiled program and the host's weights."""
        raise NotImplementedError

    def _share_state(self, compiled: CompiledModel) -> None:
        """Let the optimiser read and write its state on the device."""
        raise NotImplementedError

    def compileAndExport(self, filename: str | Path, *args: Any, export_model: bool = True, **kwargs: Any) -> None:
        """Compile for arguments like these, and :meth:`save`."""
        if self._compiled is None:
            self.compile(*args, **kwargs)
        self.save(filename, export_model=export_model, save_rng_state=False)

    def save(self, filename: str | Path, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Write the program, the newest weights and the state of training to a file; see :func:`poptorch.load`.

        Args:
            filename: The file; in a folder, ``model.poptorch``. Folders above it are made.
            export_model: True to write the model, its optimizer and its options too; otherwise :meth:`loadExecutable`
                alone can use the file.
            save_rng_state: True to write the state of random ops too.

        Raises:
            Error: Nothing is compiled yet, or the model holds what files cannot.
            FileFormatError: The file cannot be written.
        """
        with as_poptorch_errors():
            compiled = self._require()
            self._save(model_path(filename), compiled, export_model, save_rng_state)

    def _save(self, path: Path, compiled: CompiledModel, export_model: bool, save_rng_state: bool) -> None:
        compiled.session.bring_to_host()
        captured, session = compiled.captured, compiled.session
        attached = session.attached
        state: dict[str, Any] = {
            "weights": {name: tensor.detach() for name, tensor in captured.weights.items()},
            "optimizer_state": {name: torch.from_numpy(session.state[name]) for name in session.state},
            "rng_state": session.random_state if save_rng_state and attached else None,
            "signature": self._signature.compiled,
            "outputs": [(leaf.position, leaf.dtype) for leaf in captured.outputs],
            "returned": captured.returned,
            "schedule": repr(self._batching.schedule()),
            "groupings": {name: list(map(int, choice)) for name, choice in choices_of(self._model).items()},
        }
        if export_model:
            state |= {"model": self._model, "optimizer": self._optimizer, "options": self._options}
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / "compiled"
            save_compiled(session.compiled, captured.net, part)
            content = part.read_bytes()
        weights = list(own_tensors(self._model).values())
        with as_plain(self._model), plain(weights), without_choices(self._model):
            write(path, VERSION, SavedModel(self._training, export_model, state, content))

    def loadExecutable(self, filename: str | Path) -> None:
        """Take the program from a file, in place of compiling; weights are those of the model.

        Raises:
            Error: The model is compiled already, or the file is of another version, use, or model.
            FileFormatError: The file is damaged, or none.
        """
        with as_poptorch_errors():
            path = model_path(filename)
            self._adopt(read(path, VERSION), path)

    def load(self, filename: str | Path) -> None:
        """Take the weights from a file that :meth:`save` wrote; nothing in the file is executed."""
        with as_poptorch_errors():
            path = model_path(filename)
            saved = read(path, VERSION)
            self.load_state_dict({**self.state_dict(), **saved.state["weights"]})

    def _adopt(self, saved: SavedModel, path: Path) -> None:
        """Be compiled as a file says."""
        if self._compiled is not None:
            logs.warn("The model is compiled already: what was compiled is replaced", stacklevel=2)
            self._compiled.session.close()
        if saved.training != self._training:
            use = "training" if saved.training else "inference"
            raise Error(f"{path}: holds an executable for {use}, which this wrapper is not for")
        schedule, state = self._batching.schedule(), saved.state
        if state["schedule"] != repr(schedule):
            raise Error(
                f"{path}: was compiled for another schedule than the options say",
                because=f"{state['schedule']}, and not {schedule!r}",
                remedy="change nothing that is compiled in, or compile the model again",
            )
        choose(self._model, state.get("groupings", {}))
        schedule = OwnValues.of(self._model, self._options).added_to(schedule, state["weights"])
        settings = self._options.settings(plain_class(self._model).__name__)
        rules = None if self._optimizer is None else read_rules(self._optimizer)
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / "compiled"
            part.write_bytes(saved.compiled)
            compiled, net = load_compiled(part, schedule, settings, rules)
        tensors = {**state["weights"], **own_tensors(self._model)}
        weights = {name: tensors[name] for name in compiled.ends.weights if name in tensors}
        for name, end in compiled.ends.weights.items():
            found, shape = tuple(weights[name].shape) if name in weights else None, end.host_shape(schedule.replicas)
            if found != shape:
                raise Error(f"{path}: is of a model with {name!r} of shape {list(shape)}; this one has {found}")
        outputs = [OutputLeaf(*leaf) for leaf in state["outputs"]]
        captured = CapturedModel(net, outputs, state["returned"], weights)
        cells = SharedArrays({name: cell_of(tensor) for name, tensor in weights.items()})
        optimizer_state = SharedArrays({name: tensor.numpy() for name, tensor in state["optimizer_state"].items()})
        session = Session(compiled, weights=cells, state=optimizer_state, follow_host=False)
        self._signature.compiled = state["signature"]
        self._rng_state = state["rng_state"]
        self._compiled = CompiledModel(captured, session, compiled.seconds)
        self._watch = ModelWatch(self._model, training=self._training)
        self._share_state(self._compiled)
        if self._options.connection_type == ConnectionType.Always:
            self.attachToDevice()


def check_exported(saved: SavedModel, path: Path) -> Options:
    """The options of a file that a wrapper can be made from, so that they can be changed.

    Raises:
        Error: It holds no model.
    """
    options = saved.state.get("options")
    if not saved.exported or not isinstance(options, Options) or "model" not in saved.state:
        raise Error(
            f"{path}: holds an executable without its model (export_model=False)",
            remedy="wrap the model, and call loadExecutable on the wrapper",
        )
    return options.clone()
