"""``tf.train.Example``: named lists of bytes, floats or whole numbers, as files of records have them.

The form is that of protocol buffers: a field is a varint of its number and kind, then its value. ``{"x": [1, 300]}``
takes 16 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from abele.errors import FileFormatError, InvalidOptionError

from ..dtypes import as_dtype
from ..tensors import StringTensor, host_array, numpy_of, tensor_of

_VARINT, _WIDE, _BYTES, _NARROW = 0, 1, 2, 5
"""Kinds of fields on the wire."""
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3


class FeatureList:
    """Values of one kind.

    Args:
        value: The values.
    """

    kind = 0

    def __init__(self, value: Any = ()) -> None:
        self.value = list(value)


class BytesList(FeatureList):
    """Strings of bytes."""

    kind = _BYTES_LIST


class FloatList(FeatureList):
    """Numbers of 32 bits."""

    kind = _FLOAT_LIST


class Int64List(FeatureList):
    """Whole numbers."""

    kind = _INT64_LIST


class Feature:
    """One list of an example; the others are empty."""

    def __init__(self, bytes_list: Any = None, float_list: Any = None, int64_list: Any = None) -> None:
        self.bytes_list, self.float_list = bytes_list or BytesList(), float_list or FloatList()
        self.int64_list = int64_list or Int64List()

    @property
    def filled(self) -> FeatureList:
        """The list with values."""
        lists: list[FeatureList] = [self.bytes_list, self.float_list, self.int64_list]
        return next((each for each in lists if each.value), self.bytes_list)


class Features:
    """Lists by name.

    Args:
        feature: A :class:`Feature` for each name.
    """

    def __init__(self, feature: dict[str, Feature] | None = None) -> None:
        self.feature = dict(feature or {})


class Example:
    """An example of a data set.

    Args:
        features: Its lists.
    """

    def __init__(self, features: Features | None = None) -> None:
        self.features = features or Features()

    def SerializeToString(self) -> bytes:
        """The bytes that a record holds."""
        entries = [
            _field(1, _field(1, name.encode()) + _field(2, _field(feature.filled.kind, _values(feature.filled))))
            for name, feature in sorted(self.features.feature.items())
        ]
        return _field(1, b"".join(entries))

    @classmethod
    def FromString(cls, serialized: bytes) -> Example:
        """The example of a record's bytes.

        Raises:
            FileFormatError: They are no example.
        """
        made: dict[str, Feature] = {}
        try:
            for _, features in _fields(serialized):
                for _, entry in _fields(features):
                    parts = dict(_fields(entry))
                    made[parts[1].decode()] = _feature(parts.get(2, b""))
        except (IndexError, KeyError, TypeError, ValueError, struct.error) as error:
            raise FileFormatError("a record that is no tf.train.Example") from error
        return cls(Features(made))


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _values(values: FeatureList) -> bytes:
    if values.kind == _BYTES_LIST:
        return b"".join(_field(1, bytes(value)) for value in values.value)
    if values.kind == _FLOAT_LIST:
        return _field(1, np.asarray(values.value, "<f4").tobytes())
    return _field(1, b"".join(_varint(int(value)) for value in values.value))


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return number, at


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        if tag & 7 == _VARINT:
            value, at = _read_varint(data, at)
            yield tag >> 3, value
            continue
        length = {_WIDE: 8, _NARROW: 4}.get(tag & 7)
        if length is None:
            length, at = _read_varint(data, at)
        if at + length > len(data):
            raise ValueError("a field that ends behind its message")
        yield tag >> 3, data[at : at + length]
        at += length


def _feature(data: bytes) -> Feature:
    made = Feature()
    for kind, values in _fields(data):
        found = [value for _, value in _fields(values)]
        if kind == _BYTES_LIST:
            made.bytes_list = BytesList(found)
        elif kind == _FLOAT_LIST:
            made.float_list = FloatList(np.frombuffer(b"".join(found), "<f4").tolist())
        else:
            made.int64_list = Int64List(_signed(found))
    return made


def _signed(found: list[Any]) -> list[int]:
    numbers: list[int] = []
    for part in found:
        at = 0
        if isinstance(part, int):
            numbers.append(part)
            continue
        while at < len(part):
            number, at = _read_varint(part, at)
            numbers.append(number)
    return [number - (1 << 64) if number >> 63 else number for number in numbers]


class FixedLenFeature:
    """A list of an example that has one length in all.

    Args:
        shape: The dims of the tensor that it makes.
        dtype: Its type.
        default_value: Its value where an example has no list of the name.
    """

    def __init__(self, shape: Any, dtype: Any, default_value: Any = None) -> None:
        self.shape, self.dtype, self.default_value = tuple(shape), as_dtype(dtype), default_value


def parse_single_example(serialized: Any, features: dict[str, FixedLenFeature], **_: Any) -> dict[str, Any]:
    """Tensors of the lists of an example, by name.

    Raises:
        InvalidOptionError: A list that the example does not have, of another length, or of no fixed one.
    """
    found = Example.FromString(numpy_of(serialized)).features.feature
    made = {}
    for name, feature in features.items():
        if not isinstance(feature, FixedLenFeature):
            raise InvalidOptionError(f"{name}: only lists of one length are read", remedy="tf.io.FixedLenFeature")
        values = found[name].filled.value if name in found else feature.default_value
        if values is None:
            raise InvalidOptionError(f"the example has no {name}", remedy="a default_value, or one of its names")
        made[name] = _shaped(name, values, feature)
    return made


def _shaped(name: str, values: Any, feature: FixedLenFeature) -> Any:
    if feature.dtype.name == "string":
        strings: Any = np.asarray(StringTensor(values))
        if strings.size != np.prod(feature.shape, dtype=int):
            raise InvalidOptionError(f"{name} has {strings.size} values, and not those of shape {list(feature.shape)}")
        return StringTensor(strings.reshape(feature.shape))
    array = host_array(np.asarray(values), feature.dtype)
    if array.size != np.prod(feature.shape, dtype=int):
        raise InvalidOptionError(f"{name} has {array.size} values, and not those of shape {list(feature.shape)}")
    return tensor_of(array.reshape(feature.shape))


def parse_example(serialized: Any, features: dict[str, FixedLenFeature], **_: Any) -> dict[str, Any]:
    """Tensors of the lists of examples, by name, stacked: [examples, ...]."""
    rows = [parse_single_example(each, features) for each in np.asarray(StringTensor(serialized))]
    stacked = {name: [row[name] for row in rows] for name in features}
    return {
        name: StringTensor(np.stack([np.asarray(part) for part in parts]))
        if isinstance(parts[0], StringTensor)
        else tensor_of(np.stack([np.asarray(part) for part in parts]))
        for name, parts in stacked.items()
    }


TRAIN = {
    "Example": Example,
    "Features": Features,
    "Feature": Feature,
    "BytesList": BytesList,
    "FloatList": FloatList,
    "Int64List": Int64List,
}
PARSING: dict[str, Any] = {
    "FixedLenFeature": FixedLenFeature,
    "parse_single_example": parse_single_example,
    "parse_example": parse_example,
}
