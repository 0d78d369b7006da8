"""``tf.strings``: strings as bytes in NumPy arrays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from abele.errors import InvalidOptionError

from ..dtypes import as_dtype
from ..tensors import StringTensor, host_array, numpy_of, tensor_of
from .table import NameTable

STRINGS = NameTable()


def _each(function: Any, values: Any) -> Any:
    cells = np.asarray(StringTensor(values))
    made = np.empty(cells.shape, object)
    made.reshape(-1)[:] = [function(cell) for cell in cells.reshape(-1)]
    return made


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


@STRINGS("as_string")
def _as_string(input: Any, **_: Any) -> Any:
    return StringTensor(np.asarray(host_array(numpy_of(input))).astype(str).astype(object))


@STRINGS("join")
def _join(inputs: Any, separator: str = "", name: str | None = None) -> Any:
    parts = [np.asarray(StringTensor(part)) for part in inputs]
    made = parts[0]
    for part in parts[1:]:
        made = made + _bytes(separator) + part
    return StringTensor(made)


@STRINGS("length")
def _length(input: Any, unit: str = "BYTE", name: str | None = None) -> Any:
    count = len if unit == "BYTE" else lambda cell: len(cell.decode())
    return tensor_of(_each(count, input).astype(np.int32))


@STRINGS("lower")
def _lower(input: Any, encoding: str = "", name: str | None = None) -> Any:
    return StringTensor(_each(bytes.lower, input))


@STRINGS("upper")
def _upper(input: Any, encoding: str = "", name: str | None = None) -> Any:
    return StringTensor(_each(bytes.upper, input))


@STRINGS("strip")
def _strip(input: Any, name: str | None = None) -> Any:
    return StringTensor(_each(bytes.strip, input))


@STRINGS("regex_replace")
def _regex_replace(input: Any, pattern: Any, rewrite: Any, replace_global: bool = True, name: Any = None) -> Any:
    found, count = re.compile(_bytes(pattern)), 0 if replace_global else 1
    return StringTensor(_each(lambda cell: found.sub(_bytes(rewrite), cell, count), input))


@STRINGS("regex_full_match")
def _regex_full_match(input: Any, pattern: Any, name: str | None = None) -> Any:
    found = re.compile(_bytes(pattern))
    return tensor_of(_each(lambda cell: found.fullmatch(cell) is not None, input).astype(bool))


@STRINGS("split")
def _split(input: Any, sep: Any = None, maxsplit: int = -1, name: str | None = None) -> Any:
    cells: Any = np.asarray(StringTensor(input))
    if cells.ndim:
        raise InvalidOptionError(
            "tf.strings.split of a tensor that is no scalar gives rows of different lengths, which are not there",
            remedy="split each string: dataset.map(tf.strings.split), before batch()",
        )
    return StringTensor(cells[()].split(_bytes(sep) if sep else None, maxsplit))


@STRINGS("substr")
def _substr(input: Any, pos: int, len: int, unit: str = "BYTE", name: str | None = None) -> Any:
    start, length = int(pos), int(len)
    return StringTensor(_each(lambda cell: cell[start:][:length], input))


@STRINGS("to_number")
def _to_number(input: Any, out_type: Any = "float32", name: str | None = None) -> Any:
    return tensor_of(_each(float, input).astype(as_dtype(out_type).dtype))


@STRINGS("format")
def _format(template: str, inputs: Any, placeholder: str = "{}", **_: Any) -> Any:
    text = template
    for part in inputs if isinstance(inputs, list | tuple) else [inputs]:
        text = text.replace(placeholder, str(numpy_of(part)), 1)
    return StringTensor(text)
