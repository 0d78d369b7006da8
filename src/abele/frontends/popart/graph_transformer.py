"""``popart.GraphTransformer``: changes of a whole model before it is compiled."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from abele.arrays import Array
from abele.errors import AbeleError
from abele.frontends.onnx.files import read_model, tensor_array
from abele.frontends.popart.builder import move_outside
from abele.frontends.popart.errors import popart_exception

_TYPES = ("to", "dtype", "data_type")
"""Attributes that hold the number of a type."""


class GraphTransformer:
    """A model that is changed as a whole.

    Args:
        model: Its bytes, or a path.

    Raises:
        popart_exception: It is no model.
    """

    def __init__(self, model: bytes | str | os.PathLike[str]) -> None:
        try:
            given, self._folder = read_model(model)
        except AbeleError as error:
            raise popart_exception(f"Failed to load a ModelProto. {error.message}", remedy=error.remedy) from None
        self._model = onnx.ModelProto()
        self._model.CopyFrom(given)

    def getModelProto(self) -> bytes:
        """The model as it is now."""
        made: bytes = self._model.SerializeToString()
        return made

    def removeUnusedInputs(self) -> None:
        """Drop inputs and weights that no node reads and that are no results."""
        graph = self._model.graph
        read = {name for node in _nodes(graph) for name in node.input} | {v.name for v in graph.output}
        for held in (graph.input, graph.initializer):
            kept = [entry for entry in held if entry.name in read]
            del held[:]
            held.extend(kept)

    def prepareNodesForTraining(self) -> None:
        """Let batch norms and dropouts be those of training."""
        graph = self._model.graph
        taken = {name for node in _nodes(graph) for name in node.output}
        for node in _nodes(graph):
            if node.op_type == "BatchNormalization" and len(node.output) < 5:
                missing = ("mean", "var", "saved_mean", "saved_var")[len(node.output) - 1 :]
                names = [f"{node.output[0]}_{name}" for name in missing]
                node.output.extend(name if name not in taken else f"{name}/1" for name in names)

    def convertFloatsToHalfs(self) -> None:
        """Let every tensor of 32-bit floats have 16 bits."""
        self._convert(TensorProto.FLOAT, TensorProto.FLOAT16)

    def convertDoublesToFloats(self) -> None:
        """Let every tensor of 64-bit floats have 32 bits."""
        self._convert(TensorProto.DOUBLE, TensorProto.FLOAT)

    def convertDoublesToHalfs(self) -> None:
        """Let every tensor of 64-bit floats have 16 bits."""
        self._convert(TensorProto.DOUBLE, TensorProto.FLOAT16)

    def convertINT64ToINT32(self, clip: bool = False) -> None:
        """Let every tensor of 64-bit integers have 32 bits; numbers beyond them are cut, or refused.

        Raises:
            popart_exception: A number does not fit, and none is to be cut.
        """
        self._convert(TensorProto.INT64, TensorProto.INT32, clip=clip)

    def convertUINT64ToUINT32(self, clip: bool = False) -> None:
        """As :meth:`convertINT64ToINT32`, of numbers without sign."""
        self._convert(TensorProto.UINT64, TensorProto.UINT32, clip=clip)

    def convertINT8ToINT32(self) -> None:
        """Let every tensor of 8-bit integers have 32 bits."""
        self._convert(TensorProto.INT8, TensorProto.INT32)

    def convertUINT8ToINT32(self) -> None:
        """Let every tensor of bytes have 32 bits."""
        self._convert(TensorProto.UINT8, TensorProto.INT32)

    def convertINT16ToINT32(self) -> None:
        """Let every tensor of 16-bit integers have 32 bits."""
        self._convert(TensorProto.INT16, TensorProto.INT32)

    def convertUINT16ToINT32(self) -> None:
        """Let every tensor of 16-bit numbers without sign have 32 bits."""
        self._convert(TensorProto.UINT16, TensorProto.INT32)

    def convertInitializersToConstants(self, ids: Iterable[str]) -> None:
        """Let weights be constants, which no training changes.

        Raises:
            popart_exception: There is no such weight.
        """
        graph = self._model.graph
        known = {tensor.name: tensor for tensor in graph.initializer}
        chosen = list(ids)
        for name in chosen:
            if name not in known:
                raise popart_exception(f"there is no initializer {name!r} to become a constant")
            array = tensor_array(known[name], self._folder)
            held = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(array), name))
            graph.node.insert(0, held)
        for held in (graph.initializer, graph.input):
            kept = [entry for entry in held if entry.name not in chosen]
            del held[:]
            held.extend(kept)

    def saveInitializersExternally(self, ids: Iterable[str], fn: str | os.PathLike[str]) -> None:
        """Write data of weights to a file, of which the model tells from then on."""
        move_outside(self._model.graph, list(ids), Path(fn))

    # --- types --------------------------------------------------------------------------------------------------------

    def _convert(self, old: int, new: int, *, clip: bool = False) -> None:
        def cast(tensor: TensorProto) -> None:
            if tensor.data_type == old:
                name = tensor.name
                array = _fitting(name, tensor_array(tensor, self._folder), new, clip=clip)
                tensor.CopyFrom(numpy_helper.from_array(array, name))

        graphs = [self._model.graph, *_inside(self._model.graph)]
        for graph in graphs:
            for tensor in graph.initializer:
                cast(tensor)
            for value in (*graph.input, *graph.output, *graph.value_info):
                if value.type.tensor_type.elem_type == old:
                    value.type.tensor_type.elem_type = new
            for node in graph.node:
                _convert_attributes(node, old, new, cast)


def _convert_attributes(node: onnx.NodeProto, old: int, new: int, cast: Callable[[TensorProto], None]) -> None:
    for attribute in node.attribute:
        if attribute.name in _TYPES and attribute.type == AttributeProto.INT and attribute.i == old:
            attribute.i = new
        if attribute.HasField("t") and not _is_shape(node, new):
            cast(attribute.t)
        for tensor in attribute.tensors:
            cast(tensor)


def _is_shape(node: onnx.NodeProto, new: int) -> bool:
    """True for integers that ONNX wants in 64 bits, such as shapes: they are read at compile time."""
    return bool(new == TensorProto.INT32 and node.op_type == "Constant")


def _fitting(name: str, array: Array, new: int, *, clip: bool) -> Array:
    kind: np.dtype[Any] = np.dtype(helper.tensor_dtype_to_np_dtype(new))
    if kind.kind in "iu" and array.size:
        limits = np.iinfo(kind)
        if array.min() < limits.min or array.max() > limits.max:
            if not clip:
                raise popart_exception(
                    f"{name!r} has numbers from {array.min()} to {array.max()}, which {kind} does not hold",
                    remedy="clip=True",
                )
            array = np.clip(array, limits.min, limits.max)
    return np.asarray(array).astype(kind)


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for each in (graph, *_inside(graph)):
        yield from each.node


def _inside(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Graphs inside of nodes, at any depth."""
    waiting = [graph]
    while waiting:
        for node in waiting.pop().node:
            for attribute in node.attribute:
                found = [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]
                waiting.extend(found)
                yield from found
