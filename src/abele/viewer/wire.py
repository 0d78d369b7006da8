"""The form in which answers travel to the page: a JSON head, then arrays as little-endian bytes.

Layout: the length of the head in 4 bytes (little-endian), the head as UTF-8, and the arrays, each beginning at a
multiple of 8 bytes from the start. The head names them under ``arrays``: name, type, shape, first byte. The page makes
typed arrays of them in place, without parsing.

Answers in a static page are dense: deflate takes less of them. A dense array is held in the narrowest type with the
same values, and where that pays as differences and as planes: all lowest bytes, then all second ones. Its entry says
so under ``held``, ``back`` and ``planes``. Cycles 0, 40,000, 80,000, ... of 8-byte floats become 4-byte integers, then
differences of which all are 40,000, then four runs of equal bytes.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from abele.arrays import Array

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
_WHOLE = 2.0**53
"""Below it all whole numbers are float64's."""
_QUICKLY, _TOLD = 1, 8192
"""Level of compression at which forms of an array are compared, and of how many items."""
_FEW_BYTES = 192
"""An array of less stays as it is: neither form is much smaller."""


@dataclass(frozen=True)
class Answer:
    """Answer to a question about a report.

    Attributes:
        head: Plain data, as JSON has it.
        arrays: Columns of numbers.
    """

    head: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)


def pack(answer: Answer, *, is_dense: bool = False) -> bytes:
    """An answer as bytes.

    Args:
        answer: The answer.
        is_dense: Hold its arrays in the form that compresses best; the page has to restore them.
    """
    listed, parts, place = [], [], 0
    for name, array in answer.arrays.items():
        flat = _flat(array)
        held, how = _dense(flat, math.prod(array.shape[1:])) if is_dense else (flat.tobytes(), {})
        entry = {"name": name, "type": _TYPES[flat.dtype.str[1:]], "shape": list(array.shape), "first": place}
        listed.append(entry | how)
        padding = bytes(-len(held) % _ALIGNMENT)
        parts += [held, padding]
        place += len(held) + len(padding)
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
        held = np.dtype(entry.get("held", entry["type"]))
        found = np.frombuffer(packed, held, count, 4 + size + entry["first"])
        if "held" in entry:
            found = _restored(found, entry["planes"], entry["back"]).astype(entry["type"])
        arrays[entry["name"]] = found.reshape(entry["shape"])
    return Answer(head, arrays)


def _flat(array: Array) -> Array:
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        array = array.astype("<f8")
    elif array.dtype.kind == "b":
        array = array.astype("|u1")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1)


def _dense(flat: Array, row: int) -> tuple[bytes, dict[str, Any]]:
    """The bytes of an array of rows of ``row`` items that deflate makes least of, and how they are read back."""
    held = _narrowed(flat)
    backs = {0, 1, row} if held.dtype.kind in "iu" else {0}
    forms = [(back, planes) for back in sorted(backs) for planes in (False, True)[: held.dtype.itemsize]]
    # A part of a large array tells as well as the whole which form is the smallest.
    part = held[: max(_TOLD, 2 * row)]
    if part.nbytes < _FEW_BYTES:
        forms = forms[:1]
    back, planes = min(forms, key=lambda form: len(zlib.compress(_formed(part, *form), _QUICKLY, wbits=-12)))
    return _formed(held, back, planes), {"held": _TYPES[held.dtype.str[1:]], "back": back, "planes": planes}


def _formed(held: Array, back: int, planes: bool) -> bytes:
    """An array less the items ``back`` before, in planes of bytes."""
    less = held
    if back:
        less = held.copy()
        less[back:] -= held[:-back]
    return (less.view(np.uint8).reshape(-1, held.dtype.itemsize).T if planes else less).tobytes()


def _narrowed(flat: Array) -> Array:
    """An array in the narrowest type that has all of its values; floats that are whole numbers become integers."""
    whole = flat
    if flat.dtype.kind == "f" and np.all(np.abs(flat) < _WHOLE):
        whole = flat.astype(np.int64)
        if whole.astype(flat.dtype).tobytes() != flat.tobytes():
            return flat
    if whole.dtype.kind == "f" or not whole.size:
        return flat
    least, most = int(whole.min()), int(whole.max())
    for name in ("u1", "i1", "u2", "i2", "u4", "i4"):
        limits = np.iinfo(name)
        if limits.min <= least and most <= limits.max and np.dtype(name).itemsize <= flat.dtype.itemsize:
            return whole.astype(f"<{name}")
    return flat


def _restored(held: Array, planes: bool, back: int) -> Array:
    """Items that :func:`_dense` encoded."""
    if planes:
        held = np.ascontiguousarray(held.view(np.uint8).reshape(held.itemsize, -1).T).reshape(-1).view(held.dtype)
    if back:
        rows = np.zeros(-(-held.size // back) * back, held.dtype)
        rows[: held.size] = held
        held = np.cumsum(rows.reshape(-1, back), axis=0, dtype=held.dtype).reshape(-1)[: held.size]
    return held


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
