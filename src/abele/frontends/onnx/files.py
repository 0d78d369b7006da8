"""Models and tensors as they come in: bytes, paths, and data that lies in files beside the model.

A model may name any file as the place of its data. Only files inside of its own folder are read, and never beyond their
end: a model from elsewhere must not be able to read what its author could not.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, numpy_helper

from abele.arrays import Array
from abele.frontends.onnx.errors import ModelError, ModelFileError
from abele.frontends.onnx.types import MOST_DIMENSIONS, host_type, type_name

Source: TypeAlias = str | os.PathLike[str] | bytes | onnx.ModelProto

_FIELD_OF = {
    TensorProto.FLOAT: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT64: "uint64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.STRING: "string_data",
}
"""Field that holds elements of a type one by one; of all others that is ``int32_data``."""
_PACKED = (TensorProto.UINT4, TensorProto.INT4, TensorProto.FLOAT4E2M1, TensorProto.UINT2, TensorProto.INT2)
OLDEST = 7
"""Oldest version of the standard operators that is read without a warning."""


def read_model(source: Source) -> tuple[onnx.ModelProto, Path | None]:
    """A model, and the folder that its data may lie in.

    Args:
        source: A file, its bytes, or a model.

    Raises:
        ModelFileError: There is no such file, or it holds no model.
    """
    if isinstance(source, onnx.ModelProto):
        return source, None
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _parsed(bytes(source), "these bytes"), None
    path = Path(source)
    try:
        contents = path.read_bytes()
    except OSError as error:
        raise ModelFileError(
            f"the model {str(path)!r} cannot be read: {error.strerror or error}",
            remedy="check that it is the path of an ONNX file, or pass the file's bytes",
        ) from None
    return _parsed(contents, repr(str(path))), path.parent


def file_name(source: Source) -> str:
    """Name of the file of a model; empty for one that came as bytes."""
    return Path(source).name if isinstance(source, (str, os.PathLike)) else ""


def _parsed(contents: bytes, what: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(contents)
    except DecodeError:
        raise ModelFileError(
            f"{what} ({len(contents):,} bytes) holds no ONNX model",
            because="it is no protobuf of a model",
            remedy="export it again with torch.onnx.export or onnx.save, and check that the copy is whole",
        ) from None
    if not model.HasField("graph"):
        raise ModelFileError(
            f"{what} ({len(contents):,} bytes) holds no ONNX model",
            because="it has no graph",
            remedy="check that it is the path of an ONNX file and that the copy is whole",
        )
    return model


# --- tensors ----------------------------------------------------------------------------------------------------------


def tensor_array(tensor: onnx.TensorProto, folder: Path | None) -> Array:
    """Elements of a tensor, in NumPy's type of its own; read only where they lie in a file.

    Raises:
        ModelFileError: Its data is not where the model says, or not as long.
        ModelError: A type or a shape that no tensor has.
    """
    name = f"tensor {tensor.name!r}" if tensor.name else "a tensor"
    shape = tuple(tensor.dims)
    if any(n < 0 for n in shape) or len(shape) > MOST_DIMENSIONS:
        raise ModelError(f"{name} has the shape {list(shape)}")
    try:
        dtype = host_type(tensor.data_type)
    except (KeyError, ValueError):
        raise ModelError(f"{name} has a type {type_name(tensor.data_type)}, which ONNX does not have") from None
    if tensor.data_type == TensorProto.STRING:
        raise ModelError(f"{name} holds strings, which do not exist on the device", remedy="cut them off the model")
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, name, dtype, shape, count, folder)
    if tensor.data_type in _PACKED:
        _check_count(name, _packed_elements(tensor), count)
        return np.asarray(numpy_helper.to_array(tensor))
    if tensor.HasField("raw_data"):
        raw = tensor.raw_data  # A copy, each time that it is read.
        if len(raw) != count * dtype.itemsize:
            raise ModelFileError(
                f"{name} of {dtype} {list(shape)} has {len(raw):,} bytes of data",
                because=f"its {count:,} elements take {count * dtype.itemsize:,}",
            )
        return np.frombuffer(raw, dtype=dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)
    field = getattr(tensor, _FIELD_OF.get(tensor.data_type, "int32_data"))
    _check_count(name, len(field), count)
    return np.asarray(numpy_helper.to_array(tensor))


def _packed_elements(tensor: onnx.TensorProto) -> int:
    """Elements of less than a byte that the data of a tensor has room for, rounded to what its shape asks for."""
    bits = 2 if tensor.data_type in (TensorProto.UINT2, TensorProto.INT2) else 4
    room = (len(tensor.raw_data) or len(tensor.int32_data)) * 8 // bits
    count = int(np.prod(tuple(tensor.dims), dtype=object)) if tensor.dims else 1
    return count if 0 <= room - count < 8 // bits else room


def _check_count(name: str, have: int, count: int) -> None:
    if have != count:
        raise ModelFileError(f"{name} has {have:,} elements of data, its shape has {count:,}")


def _external(
    tensor: onnx.TensorProto, name: str, dtype: np.dtype[Any], shape: Sequence[int], count: int, folder: Path | None
) -> Array:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ModelFileError(
            f"the data of {name} lies in the file {location!r}, and the model came without a folder",
            remedy="load the model by its path",
        )
    path = _inside(folder, location, name)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", count * dtype.itemsize))
    except ValueError:
        raise ModelFileError(f"the data of {name} lies at {entries}, which is no place in a file") from None
    if tensor.data_type in _PACKED:
        raise ModelError(f"{name} of {type_name(tensor.data_type)} lies in a file, which is read for whole bytes alone")
    size = path.stat().st_size
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelFileError(
            f"the data of {name} is bytes {offset:,} to {offset + length:,} of {location!r}, which has {size:,}",
            remedy="check that the copy is whole",
        )
    if length != count * dtype.itemsize:
        raise ModelFileError(
            f"{name} of {dtype} {list(shape)} has {length:,} bytes of data in {location!r}",
            because=f"its {count:,} elements take {count * dtype.itemsize:,}",
        )
    if not count:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype.newbyteorder("<"), "r", offset, (count,)).reshape(shape)


def _inside(folder: Path, location: str, name: str) -> Path:
    """A file of the model's folder.

    Raises:
        ModelFileError: It lies elsewhere, or is no file.
    """
    given = Path(location)
    if not location or given.is_absolute() or ".." in given.parts or "\0" in location:
        raise ModelFileError(
            f"the data of {name} lies at {location!r}, outside of the model's folder",
            because="a model's data is read from its own folder alone",
            remedy="put the file beside the model, and name it without folders above",
        )
    root = folder.resolve()
    try:
        path = (root / given).resolve()
        found = path.is_file()
    except (OSError, RuntimeError):
        # Of a name that is too long, or links that lead to each other.
        path, found = root / "…", False
    if not path.is_relative_to(root):
        raise ModelFileError(
            f"the data of {name} lies at {location!r}, a link that leads out of the model's folder",
            because="a model's data is read from its own folder alone",
            remedy="copy the file beside the model",
        )
    if not found:
        raise ModelFileError(
            f"the data of {name} lies in {location!r}, which is not beside the model",
            remedy="copy the model with the files beside it",
        )
    return path
