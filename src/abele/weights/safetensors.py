"""Files in the format safetensors: eight bytes of length, a header of JSON, then the tensors without gaps.

A file of one f32 tensor [2, 3] has the header ``{"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}``;
offsets count from the header's end. Large models are several such files with an index, which names the file of each
tensor.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

from abele.errors import FileFormatError
from abele.weights.kinds import PLAIN
from abele.weights.stored import PlacedTensor, StoredTensor, WeightFile, mapped, stored

MOST_HEADER_BYTES = 100_000_000
"""Longest header that is read. Source: the limit of the package ``safetensors``."""
MOST_DIMENSIONS = 32
"""Most dimensions of a tensor: as many as any NumPy takes."""
_LENGTH_BYTES = 8
_KINDS = {kind.name: kind for kind in PLAIN}
INDEX_SUFFIX = ".index.json"


def read_safetensors(path: Path) -> WeightFile:
    """Tensors of one file.

    Raises:
        FileFormatError: The file is cut off, its header is no JSON of the format, or places do not fit the file.
    """
    data = mapped(path)
    if len(data) < _LENGTH_BYTES:
        raise FileFormatError(f"{path}: not a safetensors file", because=f"it has {len(data)} B, its length needs 8")
    length = int.from_bytes(data[:_LENGTH_BYTES].tobytes(), "little")
    first = _LENGTH_BYTES + length
    if length > MOST_HEADER_BYTES or first > len(data):
        raise FileFormatError(
            f"{path}: not a safetensors file, or cut off",
            at="byte 0",
            because=f"the header's length is {length:,} B, the file has {len(data):,} B",
        )
    header = parsed(path, data[_LENGTH_BYTES:first].tobytes())
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FileFormatError(f"{path}: the metadata are not strings by name", at="header, '__metadata__'")
    placed = [_placed(path, name, entry, first) for name, entry in header.items()]
    tensors = stored(path, data, first, placed)
    held = sum(tensor.stored_bytes for tensor in tensors.values())
    if held != len(data) - first:
        raise FileFormatError(
            f"{path}: the file has bytes that belong to no tensor",
            because=f"{len(data) - first:,} B follow the header, tensors have {held:,} B",
        )
    return WeightFile(path, "safetensors", tensors, metadata)


def _placed(path: Path, name: str, entry: Any, first: int) -> PlacedTensor:
    at = f"header, tensor {name!r}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise FileFormatError(f"{path}: tensor {name!r} is not told by dtype, shape and data_offsets", at=at)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _KINDS:
        raise FileFormatError(
            f"{path}: tensor {name!r} is of type {dtype!r}, which is not read",
            at=at,
            remedy=f"one of {', '.join(_KINDS)}",
        )
    if not _sizes(shape) or len(shape) > MOST_DIMENSIONS:
        raise FileFormatError(f"{path}: tensor {name!r} has no shape of up to {MOST_DIMENSIONS} sizes", at=at)
    if not _sizes(offsets) or len(offsets) != 2:
        raise FileFormatError(f"{path}: tensor {name!r} has no two data_offsets", at=at)
    one = PlacedTensor(name, _KINDS[dtype], tuple(shape), first + offsets[0], at)
    if offsets[1] - offsets[0] != one.num_bytes:
        raise FileFormatError(
            f"{path}: tensor {name!r} of {dtype} {tuple(shape)} needs {one.num_bytes:,} B, "
            f"its offsets {offsets[0]:,} to {offsets[1]:,} are {offsets[1] - offsets[0]:,} B",
            at=at,
        )
    return one


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 1 << 63 for size in value)


def read_index(path: Path) -> WeightFile:
    """Tensors of the files that an index names, in its order.

    Raises:
        FileFormatError: The index is no index, names a file that is absent or outside its folder, or disagrees with
            the files on their tensors.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read", because=error.strerror) from error
    index = parsed(path, text)
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places or not all(isinstance(shard, str) for shard in places.values()):
        raise FileFormatError(f"{path}: not an index of safetensors", because="it has no 'weight_map' of file names")
    shards = {shard: _shard(path, shard) for shard in dict.fromkeys(places.values())}
    tensors: dict[str, StoredTensor] = {}
    for name, shard in places.items():
        if name not in shards[shard]:
            raise FileFormatError(f"{path}: tensor {name!r} is not in {shard}, where the index says it is")
        tensors[name] = shards[shard][name]
    for shard, file in shards.items():
        extra = next((name for name in file if places.get(name) != shard), None)
        if extra is not None:
            raise FileFormatError(f"{path}: tensor {extra!r} of {shard} is not in the index")
    metadata = {key: value for file in shards.values() for key, value in file.metadata.items()}
    return WeightFile(path, "safetensors", tensors, metadata)


def _shard(index: Path, shard: str) -> WeightFile:
    inside = PurePosixPath(shard)
    if inside.is_absolute() or ".." in inside.parts or not inside.parts or "\\" in shard or "\0" in shard:
        raise FileFormatError(f"{index}: the index names the file {shard!r} outside its folder", remedy="do not use it")
    if not (index.parent / inside).is_file():
        raise FileFormatError(f"{index}: the file {shard!r} is missing", remedy="fetch all files of the model")
    return read_safetensors(index.parent / inside)


def parsed(path: Path, text: bytes) -> dict[str, Any]:
    """An object of JSON in which no name appears twice.

    Raises:
        FileFormatError: The text is something else.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
            raise FileFormatError(f"{path}: the name {twice!r} appears twice in one object")
        return found

    def constant(word: str) -> float:
        return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}[word]

    try:
        found = json.loads(text.decode("utf-8"), object_pairs_hook=once, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        at = f"byte {error.start}" if isinstance(error, UnicodeDecodeError) else None
        because = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise FileFormatError(f"{path}: the JSON cannot be read", at=at, because=because) from error
    if not isinstance(found, dict):
        raise FileFormatError(f"{path}: the JSON is not an object with names")
    return found
