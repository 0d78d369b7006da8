"""Sessions of a task: streams and variables by name, and checkpoints."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from abele.arrays import Array
from abele.frontends import popxl
from abele.frontends.popxl import Tensor
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl_addons.dot_tree import DotTree
from abele.frontends.popxl_addons.errors import CheckpointError
from abele.frontends.popxl_addons.named_tensors import NamedTensorData, NamedTensors
from abele.frontends.popxl_addons.streams import InputStreams, OutputStreams
from abele.writing import writing

ON_MISSING = ("error", "warn", "none")
_STATE, _INFO = "model", "session_state.json"


class TaskSession(popxl.Session):
    """A session that knows its streams and variables by name.

    Args:
        inputs: Streams that runs take.
        outputs: Streams that runs give.
        state: Variables by name: what checkpoints hold.
        max_checkpoints: Checkpoints of this session that are kept in different folders; older ones are removed. None
            for all.
        **kwargs: Arguments of ``popxl.Session``, such as ``ir`` and ``device_desc``.

    Attributes:
        inputs: Streams that runs take.
        outputs: Streams that runs give.
        state: Variables by name.
        session_state: Numbers and words that checkpoints hold beside variables.
        dataloader: Source of data, if it is set; its ``state_dict`` is part of checkpoints, where it has one.
    """

    def __init__(
        self,
        inputs: Any = (),
        outputs: Any = (),
        state: NamedTensors | None = None,
        max_checkpoints: int | None = None,
        **kwargs: Any,
    ) -> None:
        if max_checkpoints is not None and max_checkpoints < 1:
            raise GraphArgumentError(f"max_checkpoints is {max_checkpoints}: at least 1, or None")
        super().__init__(**kwargs)
        self.inputs = inputs if isinstance(inputs, InputStreams) else InputStreams.from_streams(inputs)
        self.outputs = outputs if isinstance(outputs, OutputStreams) else OutputStreams.from_streams(outputs)
        self.state = NamedTensors() if state is None else state
        self.session_state: dict[str, Any] = {}
        self.dataloader: Any = None
        self._most, self._saved = max_checkpoints, list[Path]()

    # --- data

    def get_named_tensors_data(self) -> NamedTensorData:
        """Data of all variables, by name."""
        flat = self.state.to_dict()
        data = self.get_tensors_data(flat.values())
        return NamedTensorData.from_dict({name: data[tensor] for name, tensor in flat.items()})

    def write_variables_data(self, tensors: Any) -> None:
        """Let variables hold something else.

        Args:
            tensors: Data by variable, or a tree of data by the names of the state.

        Raises:
            TreeNameError: A name that the state does not have.
        """
        if isinstance(tensors, DotTree):
            tensors = {self._leaf(name): data for name, data in tensors.to_dict().items()}
        super().write_variables_data(tensors)

    def _leaf(self, name: str) -> Tensor:
        found = self.state.get(name)
        if isinstance(found, DotTree):
            raise GraphTypeError(f"{name!r} is a tree of variables, not one")
        assert isinstance(found, Tensor)
        return found

    def load_from_session(self, src: TaskSession, report_missing: str = "none") -> None:
        """Take over the data of variables that another session has under the same names.

        Args:
            src: The other session.
            report_missing: Answer to names of this session that the other does not have: ``error``, ``warn`` or
                ``none``.
        """
        self._load(src.get_named_tensors_data().to_dict(), report_missing, f"the session {src!r}")

    def _load(self, data: Mapping[str, Array], report_missing: str, where: str) -> None:
        if report_missing not in ON_MISSING:
            raise GraphArgumentError(f"report_missing is one of {', '.join(ON_MISSING)}, not {report_missing!r}")
        flat = self.state.to_dict()
        missing = [name for name in flat if name not in data]
        if missing and report_missing != "none":
            text = f"{where} has no data for {len(missing)} variables: {', '.join(missing[:8])}"
            if report_missing == "error":
                raise CheckpointError(text, remedy="report_missing='warn', or 'none'")
            warnings.warn(text, stacklevel=3)
        found = {name: data[name] for name in flat if name in data}
        for name, array in found.items():
            tensor = flat[name]
            before = self.get_tensor_data(tensor)
            if (array.shape, array.dtype) != (before.shape, before.dtype):
                raise CheckpointError(
                    f"{where} has {array.dtype}{list(array.shape)} for {name}, the session "
                    f"{before.dtype}{list(before.shape)}"
                )
        super().write_variables_data({flat[name]: array for name, array in found.items()})

    # --- checkpoints

    def add_session_state_info(self, info: Mapping[str, Any]) -> None:
        """Let checkpoints hold more numbers and words.

        Raises:
            GraphTypeError: Something that JSON does not write.
        """
        try:
            json.dumps(dict(info))
        except (TypeError, ValueError) as error:
            raise GraphTypeError(f"the state of a session is numbers, words and lists of them: {error}") from None
        self.session_state.update(info)

    def save_checkpoint(self, checkpoint_dir: str | Path) -> Path:
        """Write data of all variables, and the state of the session, into a folder.

        Everything is written beside it first, so that the folder never holds half a checkpoint.

        Returns:
            The folder.

        Raises:
            FileFormatError: The operating system refused.
        """
        target = Path(checkpoint_dir)
        part = target.with_name(f".{target.name}.{uuid4().hex}.part")
        info: dict[str, Any] = {"session_state": self.session_state}
        if hasattr(self.dataloader, "state_dict"):
            info["dataloader"] = self.dataloader.state_dict()
        text = json.dumps({"version": 1, "names": self.state.keys_flat(), **info}, indent=1)
        with writing(target):
            try:
                (part / _STATE).mkdir(parents=True)
                for name, array in self.get_named_tensors_data().to_dict().items():
                    np.save(part / _STATE / f"{name}.npy", array)
                (part / _INFO).write_text(text)
                _replace(part, target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        self._keep(target)
        return target

    def _keep(self, target: Path) -> None:
        self._saved = [*(p for p in self._saved if p != target), target]
        if self._most is not None:
            old, self._saved = self._saved[: -self._most], self._saved[-self._most :]
            for path in old:
                shutil.rmtree(path, ignore_errors=True)

    def load_checkpoint(self, checkpoint_dir: str | Path, report_missing: str = "error") -> None:
        """Read data of variables, and the state of the session, from a folder.

        Args:
            checkpoint_dir: Folder that :meth:`save_checkpoint` wrote.
            report_missing: Answer to variables that it does not have: ``error``, ``warn`` or ``none``.

        Raises:
            CheckpointError: It is no checkpoint, lacks variables, or has others of their names.
        """
        folder = Path(checkpoint_dir)
        try:
            info = json.loads((folder / _INFO).read_text())
            names = [str(name) for name in info["names"]]
            if any("/" in name or "\\" in name for name in names):
                raise ValueError("a name with a path")
            data = {name: np.load(folder / _STATE / f"{name}.npy", allow_pickle=False) for name in names}
            state = dict(info["session_state"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{folder} is no checkpoint: {error}", remedy="a folder that save_checkpoint wrote"
            ) from error
        self._load(data, report_missing, str(folder))
        self.session_state = state
        if "dataloader" in info and hasattr(self.dataloader, "load_state_dict"):
            self.dataloader.load_state_dict(info["dataloader"])


def _replace(part: Path, target: Path) -> None:
    """Put a folder in the place of another."""
    if not target.exists():
        part.rename(target)
        return
    old = target.with_name(f".{target.name}.{uuid4().hex}.old")
    target.rename(old)
    part.rename(target)
    shutil.rmtree(old, ignore_errors=True)


__all__ = ["TaskSession"]
