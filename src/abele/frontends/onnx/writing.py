"""Models written to files, with the weights that they have now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from abele.frontends.onnx.files import tensor_array
from abele.frontends.onnx.types import host_type
from abele.writing import writing_whole

LARGEST_FILE = 2**31 - 2**16
"""Bytes of a protobuf; models of more keep their data in a file beside them."""


def with_weights(proto: onnx.ModelProto, weights: Mapping[str, Any], folder: Path | None) -> onnx.ModelProto:
    """A model with other elements of its initialisers; data that lies in further files comes inside.

    Args:
        proto: The model.
        weights: Elements by name; initialisers without an entry keep their own.
        folder: Folder of the model's data.
    """
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    for tensor in made.graph.initializer:
        if tensor.name in weights:
            array = np.asarray(weights[tensor.name]).astype(host_type(tensor.data_type)).reshape(tuple(tensor.dims))
        elif tensor.data_location == onnx.TensorProto.EXTERNAL:
            array = np.asarray(tensor_array(tensor, folder))
        else:
            continue
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return made


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
