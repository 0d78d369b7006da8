"""Models written to files, with the weights that they have now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper

from abele.frontends.onnx.types import host_type
from abele.writing import writing_whole

if TYPE_CHECKING:
    from abele.frontends.onnx.model import Model

LARGEST_FILE = 2**31 - 2**16
"""Bytes of a protobuf; models of more keep their data in a file beside them."""


def with_weights(model: Model) -> onnx.ModelProto:
    """The model as ONNX has it, with the weights that it has now."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for tensor in proto.graph.initializer:
        if tensor.name in model.weights:
            array = np.asarray(model.weights[tensor.name]).astype(host_type(tensor.data_type))
            tensor.CopyFrom(numpy_helper.from_array(array.reshape(tuple(tensor.dims)), tensor.name))
        elif tensor.data_location == onnx.TensorProto.EXTERNAL:
            array = np.asarray(model.initialiser(tensor))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return proto


def save_model(model: Model, path: Path) -> None:
    """Write a model with the weights that it has now; see :func:`write_model`."""
    write_model(with_weights(model), path)


def write_model(proto: onnx.ModelProto, path: Path) -> None:
    """Write a model; data of more than a protobuf holds goes to a file of the same name with ``.data`` after it.

    Raises:
        FileFormatError: The place cannot be written.
    """
    if proto.ByteSize() < LARGEST_FILE:
        _write(path, proto.SerializeToString())
        return
    data = Path(f"{path}.data")
    offset = 0
    with writing_whole(data) as part, part.open("wb") as file:
        for tensor in proto.graph.initializer:
            contents = tensor.raw_data
            if len(contents) < 1024:
                continue
            file.write(contents)
            lay_outside(tensor, data.name, offset, len(contents))
            offset += len(contents)
    _write(path, proto.SerializeToString())


def lay_outside(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    """Let a tensor tell where its data lies, in place of holding it.

    Args:
        tensor: The tensor.
        location: Name of a file in the model's folder.
        offset: First byte in it.
        length: Number of bytes.
    """
    name, kind, dims = tensor.name, tensor.data_type, list(tensor.dims)
    tensor.Clear()
    tensor.name, tensor.data_type, tensor.data_location = name, kind, onnx.TensorProto.EXTERNAL
    tensor.dims.extend(dims)
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)


def _write(path: Path, contents: bytes) -> None:
    with writing_whole(path) as part:
        part.write_bytes(contents)
