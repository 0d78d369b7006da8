"""The part of a wrapped model that writes it to files and reads it from them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from abele.frontends.poptorch import logs
from abele.frontends.poptorch.capture.capture import CapturedModel, OutputLeaf, own_tensors
from abele.frontends.poptorch.enums import ConnectionType
from abele.frontends.poptorch.errors import Error, as_poptorch_errors
from abele.frontends.poptorch.models import saving
from abele.frontends.poptorch.models.batching import Batching
from abele.frontends.poptorch.models.compiling import CompiledModel
from abele.frontends.poptorch.models.grouping import choices_of, choose, without_choices
from abele.frontends.poptorch.models.inspection import Inspection
from abele.frontends.poptorch.models.saving import SavedModel
from abele.frontends.poptorch.models.sharding import OwnValues
from abele.frontends.poptorch.models.user_models import as_plain, plain_class
from abele.frontends.poptorch.models.watch import ModelWatch
from abele.frontends.poptorch.models.weights import cell_of, plain
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.training.rules import read_rules
from abele.frontends.poptorch.values.signature import ForwardSignature
from abele.frontends.poptorch.version import VERSION
from abele.session import Session, SharedArrays
from abele.session.store import load_compiled, save_compiled


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
            self._save(saving.model_path(filename), compiled, export_model, save_rng_state)

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
            saving.write(path, VERSION, SavedModel(self._training, export_model, state, content))

    def loadExecutable(self, filename: str | Path) -> None:
        """Take the program from a file, in place of compiling; weights are those of the model.

        Raises:
            Error: The model is compiled already, or the file is of another version, use, or model.
            FileFormatError: The file is damaged, or none.
        """
        with as_poptorch_errors():
            path = saving.model_path(filename)
            self._adopt(saving.read(path, VERSION), path)

    def load(self, filename: str | Path) -> None:
        """Take the weights from a file that :meth:`save` wrote; nothing in the file is executed."""
        with as_poptorch_errors():
            path = saving.model_path(filename)
            saved = saving.read(path, VERSION)
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
