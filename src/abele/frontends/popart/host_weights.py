"""Weights of a session on the host: sent to the device, brought back, read, written, and in files.

Beside the model's weights there is the optimiser's state under PopART's names: ``Accl1___w``, ``Step___w``. Files have
it as initialisers that no node reads, so that a training goes on from a file as if it had not ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from abele.arrays import Array
from abele.frontends.onnx.files import tensor_array
from abele.frontends.onnx.writing import with_weights, write_model
from abele.frontends.popart.errors import popart_exception
from abele.frontends.popart.reading import SessionModel
from abele.session import SharedArrays


class HostWeights:
    """Weights and state of an optimiser by PopART's names.

    Args:
        model: The model.
        replicas: Replicas of the program.
        slots: Name in the program of each state of the optimiser, by PopART's.

    Attributes:
        arrays: Weights by name, which sessions share.
        state: State of the optimiser by name in the program.
    """

    def __init__(self, model: SessionModel, replicas: int, slots: Mapping[str, str]) -> None:
        self._model, self._replicas, self._slots = model, replicas, dict(slots)
        self.arrays, self.state = SharedArrays(model.weights), SharedArrays()

    def __contains__(self, name: str) -> bool:
        return (name in self.arrays and name not in self._zeros) or self._slots.get(name) in self.state

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self.arrays if name not in self._zeros)
        yield from (name for name, slot in self._slots.items() if slot in self.state)

    @property
    def _zeros(self) -> set[str]:
        return {value.name for value in self._model.probes.values()}

    def __getitem__(self, name: str) -> Array:
        return np.asarray(self.arrays[name] if name in self.arrays else self.state[self._slots[name]])

    def __setitem__(self, name: str, array: Array) -> None:
        held = self[name]
        if np.size(array) != held.size:
            raise popart_exception(
                f"the weight {name!r} has {held.size} elements, of the shape {list(held.shape)}, not {np.size(array)}"
            )
        made = np.asarray(array, held.dtype).reshape(held.shape)
        if name in self.arrays:
            self.arrays[name] = made
        else:
            self.state[self._slots[name]] = made

    def begin(self, proto: onnx.ModelProto, folder: Path | None) -> None:
        """Let state of the optimiser be what a model has of it, from an earlier training."""
        for tensor in proto.graph.initializer:
            if tensor.name in self._slots:
                self.state[self._slots[tensor.name]] = np.asarray(tensor_array(tensor, folder))

    def reset(self, proto: onnx.ModelProto, folder: Path | None, *, ignores_others: bool) -> None:
        """Let weights be those of another model.

        Raises:
            popart_exception: The model has others, or of other shapes.
        """
        for tensor in proto.graph.initializer:
            if tensor.name in self:
                self[tensor.name] = self._rows(tensor.name, np.asarray(tensor_array(tensor, folder)))
            elif not ignores_others and not self._is_constant(tensor.name):
                raise popart_exception(f"the session has no weight {tensor.name!r}, which the model has")

    def _is_constant(self, name: str) -> bool:
        """True for an initialiser of the model that became no weight of the program, such as a shape."""
        return name in self._model.infos

    def _rows(self, name: str, array: Array) -> Array:
        """A weight's rows of replicas, of those of groups."""
        settings, held = self._model.groups.get(name), self[name]
        if settings is None or held.size == array.size:
            return array
        rows = array if settings.has_groups else array[None]
        number = np.empty(self._replicas, np.intp)
        for group, members in enumerate(settings.groups(self._replicas)):
            number[members] = group
        return np.ascontiguousarray(rows[number])

    def file(self, proto: onnx.ModelProto, folder: Path | None, path: str | os.PathLike[str]) -> None:
        """Write a model with the weights and the state that there are now."""
        made: dict[str, Array] = {}
        for tensor in proto.graph.initializer:
            if tensor.name in self:
                array, settings = self[tensor.name], self._model.groups.get(tensor.name)
                if settings is not None and array.size != int(np.prod(tensor.dims)):
                    # A row for each replica came back, the model has one for each group.
                    array = array[[members[0] for members in settings.groups(self._replicas)]]
                made[tensor.name] = array
        written = with_weights(proto, made, folder)
        known = {tensor.name for tensor in proto.graph.initializer}
        for name in self:
            if name in self._slots and name not in known:
                written.graph.initializer.append(numpy_helper.from_array(np.array(self[name], order="C"), name))
        write_model(written, Path(path))
