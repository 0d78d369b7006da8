"""The form in which answers travel to the page: a JSON head, then arrays as little-endian bytes.

Layout: the length of the head in 4 bytes (little-endian), the head as UTF-8, and the arrays, each beginning at a
multiple of 8 bytes from the start. The head names them under ``arrays``: name, type, shape, first byte. The page makes
typed arrays of them in place, without parsing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_TYPES = {
    "u1": "uint8",
    "i1": "int8",
    "u2": "uint16",
    "i2": "int16",
    "u4": "uint32",
    "i4": "int32",
    "f4": "float32",
    "f8": "float64",
}
"""NumPy's types and the names that the page knows them by; 64-bit integers travel as float64, exact up to 2^53."""
_ALIGNMENT = 8


@dataclass(frozen=True)
class Answer:
    """What a question about a report is answered with.

    Attributes:
        head: Plain data, as JSON has it.
        arrays: Columns of numbers.
    """

    head: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)


def pack(answer: Answer) -> bytes:
    """An answer as bytes."""
    listed, parts, place = [], [], 0
    for name, array in answer.arrays.items():
        flat = _flat(array)
        listed.append({"name": name, "type": _TYPES[flat.dtype.str[1:]], "shape": list(array.shape), "first": place})
        padding = -flat.nbytes % _ALIGNMENT
        parts += [flat.tobytes(), bytes(padding)]
        place += flat.nbytes + padding
    text = json.dumps({**_plain(answer.head), "arrays": listed}, ensure_ascii=False, allow_nan=False)
    head = text.encode("utf-8", "replace")
    head += b" " * (-(len(head) + 4) % _ALIGNMENT)
    return b"".join([len(head).to_bytes(4, "little"), head, *parts])


def unpack(packed: bytes) -> Answer:
    """The answer that :func:`pack` packed; for tests, and for programs that ask the server."""
    size = int.from_bytes(packed[:4], "little")
    head = json.loads(packed[4 : 4 + size])
    arrays = {}
    for entry in head.pop("arrays"):
        count = math.prod(entry["shape"])
        found = np.frombuffer(packed, np.dtype(entry["type"]), count, 4 + size + entry["first"])
        arrays[entry["name"]] = found.reshape(entry["shape"])
    return Answer(head, arrays)


def _flat(array: Array) -> Array:
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        array = array.astype("<f8")
    elif array.dtype.kind == "b":
        array = array.astype("|u1")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)


def _plain(value: Any) -> Any:
    """A value as JSON has it: NumPy's numbers become Python's, numbers that are none become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
