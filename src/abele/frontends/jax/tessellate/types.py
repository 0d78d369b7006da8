"""Types of vertices under TessellateIPU's names: element types, fields of a vertex, and a call of one on tiles.

A :class:`IpuTileMapEquation` says how a primitive runs on a tile: the vertex, the field of each operand and result,
constants, scratch memory and attributes. Functions that translate a primitive give one.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Self, get_args, get_type_hints

import jax
import numpy as np

import abele
from abele.arrays import Array
from abele.errors import TypeMismatchError
from abele.frontends.jaxpr.types import element_type
from abele.numerics import ElementType, as_element_type

Shape = tuple[int, ...]


def user_line() -> str | None:
    """The line of the program that is at work, for errors."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_THE_PROGRAM):
            return f"{file}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


_NOT_THE_PROGRAM = (
    str(Path(abele.__file__).parent),
    str(Path(jax.__file__).parent),
    str(Path(os.__file__).parent),
    "<",
)
"""Places of code that is no program's: this package, JAX, the standard library, and what dataclasses generate."""


class IpuType(Enum):
    """Element types of the machine; values are Poplar's names."""

    BOOL = "bool"
    CHAR = "char"
    UNSIGNED_CHAR = "unsigned char"
    SHORT = "short"
    UNSIGNED_SHORT = "unsigned short"
    INT = "int"
    UNSIGNED_INT = "unsigned int"
    HALF = "half"
    FLOAT = "float"

    @property
    def element(self) -> ElementType:
        """Our element type."""
        return as_element_type(_ELEMENTS[self])

    @property
    def bytes(self) -> int:
        """Bytes of an element."""
        return self.element.bytes

    @classmethod
    def of(cls, dtype: Any) -> IpuType:
        """Type of a NumPy or JAX type, or of an abstract value.

        Raises:
            TypeMismatchError: Vertices have none like it.
        """
        if isinstance(dtype, IpuType):
            return dtype
        kind = element_type(np.dtype(dtype if isinstance(dtype, type) else getattr(dtype, "dtype", dtype)))
        for made in cls:
            if _ELEMENTS[made] == kind.name:
                return made
        raise TypeMismatchError(f"vertices have no type {kind}", remedy="use float32, float16, or integers of 32 bits")


_ELEMENTS = {
    IpuType.BOOL: "bool",
    IpuType.CHAR: "i8",
    IpuType.UNSIGNED_CHAR: "u8",
    IpuType.SHORT: "i16",
    IpuType.UNSIGNED_SHORT: "u16",
    IpuType.INT: "i32",
    IpuType.UNSIGNED_INT: "u32",
    IpuType.HALF: "f16",
    IpuType.FLOAT: "f32",
}


class IpuVertexIOType(IntEnum):
    """Direction of a field."""

    In = 0
    Out = 1
    InOut = 2


# --- JSON -------------------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def _typed(kind: Any, value: Any) -> Any:
    """``value`` of JSON as a field of type ``kind``."""
    options = [k for k in get_args(kind) if k is not type(None)] if type(None) in get_args(kind) else [kind]
    if value is None:
        return None
    (wanted,) = options
    if get_args(wanted):
        return tuple(_typed(get_args(wanted)[0], v) for v in value)
    if isinstance(wanted, type) and is_dataclass(wanted):
        hints = get_type_hints(wanted)
        return wanted(**{name: _typed(hints[name], v) for name, v in value.items()})
    return wanted(value) if isinstance(wanted, type) else value


class Listed(tuple[Any, ...]):
    """A tuple that equals a list of the same, as a vector of C++ does."""

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, list) else other)

    __hash__ = tuple.__hash__


class Json:
    """Mixin of records that are written as JSON and read back."""

    def to_json_str(self) -> str:
        """The record as JSON."""
        return json.dumps(_plain(self))

    @classmethod
    def from_json_str(cls, text: str) -> Self:
        """The record that JSON says."""
        made: Self = _typed(cls, json.loads(text))
        return made


class TextBytes(bytes):
    """Bytes that equal their text, as a string of C++ does."""

    def __eq__(self, other: object) -> bool:
        return bytes(self) == (other.encode() if isinstance(other, str) else other)

    __hash__ = bytes.__hash__


@dataclass
class Base64Data(Json):
    """Bytes as text.

    Attributes:
        encoded_data: The bytes in base 64.
    """

    encoded_data: str = ""

    @classmethod
    def from_decoded_data(cls, data: bytes | str) -> Base64Data:
        """Text of bytes."""
        return cls(base64.b64encode(data.encode() if isinstance(data, str) else bytes(data)).decode())

    @property
    def decoded_data(self) -> bytes:
        """The bytes."""
        return TextBytes(base64.b64decode(self.encoded_data))

    @property
    def is_empty(self) -> bool:
        """True if there are none."""
        return not self.encoded_data

    @staticmethod
    def encode_array(array: Array) -> Base64Data:
        """Bytes of an array, in row-major order."""
        return Base64Data.from_decoded_data(np.ascontiguousarray(array).tobytes())


@dataclass
class IpuShapedArray(Json):
    """Shape and element type of an array."""

    shape: tuple[int, ...]
    dtype: IpuType

    def __post_init__(self) -> None:
        self.shape, self.dtype = Listed(int(n) for n in self.shape), IpuType.of(self.dtype)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass
class IpuTensorSlice(Json):
    """Elements ``begin`` to ``end`` of a flattened row."""

    begin: int = 0
    end: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.end - self.begin

    @staticmethod
    def make_tensor2d_slices(dim0: int, dim1: int) -> list[IpuTensorSlice]:
        """Slices of the rows of a matrix [dim0, dim1]."""
        return [IpuTensorSlice(dim1 * i, dim1 * (i + 1)) for i in range(dim0)]

    makeTensor2dSlices = make_tensor2d_slices  # noqa: N815


@dataclass
class IpuVertexAttributeI32(Json):
    """A whole number of a vertex."""

    key: str = ""
    value: int = 0

    @property
    def name(self) -> str:
        """Name of the field."""
        return self.key


@dataclass
class IpuVertexAttributeU32(IpuVertexAttributeI32):
    """A whole number of a vertex that is not negative."""


@dataclass
class IpuVertexAttributeF32(Json):
    """A number of a vertex."""

    key: str = ""
    value: float = 0.0

    @property
    def name(self) -> str:
        """Name of the field."""
        return self.key


# --- fields and calls -------------------------------------------------------------------------------------------------


@dataclass
class IpuVertexIOInfo(Json):
    """A field of a vertex.

    Attributes:
        name: Its name.
        iotype: Its direction.
        shape: Shape of what is connected to it on one tile.
        dtype: Element type.
        vertex_dim2: Elements of each vector of a field that is a list of vectors; 0 for one vector.
        constant_data: Contents of an input that is part of the program; empty for others.
        slices2d: Vectors of a field that is a list of vectors, as parts of the flattened operand.
    """

    name: str
    iotype: IpuVertexIOType
    shape: tuple[int, ...]
    dtype: IpuType
    vertex_dim2: int = 0
    constant_data: Base64Data = field(default_factory=Base64Data)
    slices2d: tuple[IpuTensorSlice, ...] = ()

    def __post_init__(self) -> None:
        self.shape = Listed(int(n) for n in self.shape)
        self.dtype = IpuType.of(self.dtype) if not isinstance(self.dtype, str) else self.dtype
        self.iotype = IpuVertexIOType(self.iotype)
        self.constant_data = self.constant_data or Base64Data()
        self.slices2d = Listed(self.slices2d or ())

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def rank(self) -> int:
        """1 for one vector, 2 for a list of vectors."""
        return 2 if self.vertex_dim2 or self.slices2d else 1

    @property
    def is_constant_input(self) -> bool:
        """True if its contents are part of the program."""
        return not self.constant_data.is_empty

    @property
    def is_constant(self) -> bool:
        """True if its contents are part of the program."""
        return self.is_constant_input

    @property
    def constant(self) -> Array:
        """Contents of a constant."""
        return np.frombuffer(self.constant_data.decoded_data, self.dtype.element.np).reshape(self.shape)


@dataclass
class IpuTileMapEquation(Json):
    """A call of a vertex on tiles.

    Attributes:
        vname: Name of the vertex.
        tiles: Tile of each vertex.
        pname: Name of the primitive.
        inputs_info: Fields of the operands, then those of constants.
        outputs_info: Fields of the results. One with the name of an operand overwrites it.
        attributes_u32: Fields that are whole numbers, not negative.
        attributes_i32: Fields that are whole numbers.
        attributes_f32: Fields that are numbers.
        gp_filename: C++ file, or source text, that has the vertex; None for vertices of libraries.
        perf_estimate: Cycles that the author expects. The machine counts its own.
        tmp_space_name: Field that needs memory during the call alone.
        tmp_space_aval: Its size: a field, or something with a shape and a type.
        temps_info: Further such fields.
        sync: True for a barrier before the call. Each call is a superstep, which has one.
    """

    vname: str
    tiles: tuple[int, ...] = ()
    pname: str = ""
    inputs_info: tuple[IpuVertexIOInfo, ...] = ()
    outputs_info: tuple[IpuVertexIOInfo, ...] = ()
    attributes_u32: tuple[IpuVertexAttributeU32, ...] = ()
    attributes_i32: tuple[IpuVertexAttributeI32, ...] = ()
    attributes_f32: tuple[IpuVertexAttributeF32, ...] = ()
    gp_filename: str | None = None
    perf_estimate: int = 0
    tmp_space_name: str = ""
    tmp_space_aval: IpuVertexIOInfo | None = None
    temps_info: tuple[IpuVertexIOInfo, ...] = ()
    sync: bool = False

    def __post_init__(self) -> None:
        for name in ("inputs_info", "outputs_info", "attributes_u32", "attributes_i32", "attributes_f32", "temps_info"):
            setattr(self, name, Listed(getattr(self, name) or ()))
        self.tiles = Listed(int(t) for t in self.tiles)
        given: Any = self.tmp_space_aval
        if given is not None and not isinstance(given, IpuVertexIOInfo):
            self.tmp_space_aval = make_ipu_vertex_out_info(self.tmp_space_name, given)

    @property
    def scratch_info(self) -> tuple[IpuVertexIOInfo, ...]:
        """Fields that need memory during the call alone."""
        first = [self.tmp_space_aval] if self.tmp_space_name and self.tmp_space_aval is not None else []
        return (*first, *self.temps_info)

    @property
    def use_tmp_space(self) -> bool:
        """True if it needs memory during the call alone."""
        return bool(self.scratch_info)

    @property
    def vertex_name(self) -> str:
        """Name of the vertex."""
        return self.vname


def _info(
    name: str,
    aval: Any,
    iotype: IpuVertexIOType,
    vertex_dim2: int = 0,
    constant: Array | None = None,
    slices2d: Sequence[IpuTensorSlice] | None = None,
    rank: int = 1,
) -> IpuVertexIOInfo:
    if rank == 2 and not vertex_dim2 and aval.shape:
        vertex_dim2 = int(aval.shape[-1])
    data = Base64Data() if constant is None else Base64Data.encode_array(constant)
    slices = tuple(slices2d or ())
    shape, kind = tuple(aval.shape), IpuType.of(aval)
    return IpuVertexIOInfo(name, iotype, shape, kind, int(vertex_dim2), constant_data=data, slices2d=slices)


def make_ipu_vertex_io_info(
    name: str, iotype: IpuVertexIOType, aval: Any, vertex_dim2: int = 0, rank: int = 1
) -> IpuVertexIOInfo:
    """A field of a vertex, of the shape and type of ``aval``."""
    return _info(name, aval, iotype, vertex_dim2, rank=rank)


def make_ipu_vertex_in_info(
    name: str,
    aval: Any,
    vertex_dim2: int = 0,
    slices2d: Sequence[IpuTensorSlice] | None = None,
    rank: int = 1,
) -> IpuVertexIOInfo:
    """An input of a vertex."""
    return _info(name, aval, IpuVertexIOType.In, vertex_dim2, slices2d=slices2d, rank=rank)


def make_ipu_vertex_out_info(
    name: str,
    aval: Any,
    vertex_dim2: int = 0,
    slices2d: Sequence[IpuTensorSlice] | None = None,
    rank: int = 1,
) -> IpuVertexIOInfo:
    """An output of a vertex."""
    return _info(name, aval, IpuVertexIOType.Out, vertex_dim2, slices2d=slices2d, rank=rank)


def make_ipu_vertex_inout_info(
    name: str,
    aval: Any,
    vertex_dim2: int = 0,
    slices2d: Sequence[IpuTensorSlice] | None = None,
    rank: int = 1,
) -> IpuVertexIOInfo:
    """A field that a vertex reads and overwrites."""
    return _info(name, aval, IpuVertexIOType.InOut, vertex_dim2, slices2d=slices2d, rank=rank)


def make_ipu_vertex_constant_info(name: str, data: Any, vertex_dim2: int = 0) -> IpuVertexIOInfo:
    """An input of a vertex whose contents are part of the program."""
    array = as_device_array(data)
    return _info(name, array, IpuVertexIOType.In, vertex_dim2, constant=array)


def as_device_array(data: Any) -> Array:
    """An array in the device's type: 64 bits become 32."""
    array = np.asarray(data)
    narrow = {"float64": np.float32, "int64": np.int32, "uint64": np.uint32}
    return array.astype(narrow[array.dtype.name]) if array.dtype.name in narrow else array


def _several(
    avals: Mapping[str, Any], one: IpuVertexIOType, inout_names: Sequence[str] | set[str], rank: int
) -> list[IpuVertexIOInfo]:
    both = set(inout_names or ())
    return [_info(n, a, IpuVertexIOType.InOut if n in both else one, rank=rank) for n, a in avals.items()]


def make_ipu_vertex_inputs(
    inavals: Mapping[str, Any], inout_names: Sequence[str] | set[str] = (), rank: int = 1
) -> list[IpuVertexIOInfo]:
    """Inputs of a vertex by name; those in ``inout_names`` are overwritten."""
    return _several(inavals, IpuVertexIOType.In, inout_names, rank)


def make_ipu_vertex_outputs(
    outavals: Mapping[str, Any], inout_names: Sequence[str] | set[str] = (), rank: int = 1
) -> list[IpuVertexIOInfo]:
    """Outputs of a vertex by name; those in ``inout_names`` overwrite an input."""
    return _several(outavals, IpuVertexIOType.Out, inout_names, rank)


def make_ipu_vertex_attributes(**attributes: Any) -> tuple[list[IpuVertexAttributeI32], list[IpuVertexAttributeF32]]:
    """Attributes of a vertex: whole numbers, and others.

    Raises:
        TypeMismatchError: One is no number.
    """
    whole, others = [], []
    for name, value in attributes.items():
        if isinstance(value, (bool, int, np.integer, np.bool_)):
            whole.append(IpuVertexAttributeI32(name, int(value)))
        elif isinstance(value, (float, np.floating)):
            others.append(IpuVertexAttributeF32(name, float(value)))
        else:
            raise TypeMismatchError(f"the attribute {name} of a vertex is {value!r}", remedy="give it a number")
    return whole, others


def make_ipu_vertex_name_templated(basename: str, *arguments: Any) -> str:
    """Name of an instance of a template.

    >>> make_ipu_vertex_name_templated("Scale", np.float32, np.int32)
    'Scale<float,int>'
    """
    return f"{basename}<{','.join(map(template_argument, arguments))}>" if arguments else basename


def template_argument(given: Any) -> str:
    """A template argument as text: a type, a bool, a number or a text."""
    if isinstance(given, (bool, np.bool_)):
        return "true" if given else "false"
    if isinstance(given, (int, np.integer, str)):
        return str(given)
    return str(IpuType.of(given).value)


def from_numpy_dtype_to_ipu_type(dtype: Any) -> IpuType:
    """Type of a NumPy type."""
    return IpuType.of(dtype)


def from_ipu_type_to_numpy_dtype(dtype: IpuType) -> Any:
    """NumPy type of a type."""
    return dtype.element.np


def get_ipu_type_name(dtype: Any) -> str:
    """Poplar's name of a type."""
    return str(IpuType.of(dtype).value)


def ipu_type_size(dtype: IpuType) -> int:
    """Bytes of an element of a type."""
    return dtype.bytes
