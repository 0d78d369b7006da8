"""Types of JAX on the device: element types, and the shapes of what has no element type of its own.

A key of ``jax.random`` is opaque to JAX: ``key<fry>[3]`` has three keys of two words each. Here it is its words,
``u32[3, 2]``.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.extend.core as jec
import numpy as np

from abele.errors import TypeMismatchError
from abele.network.ir import Shape
from abele.numerics import ElementType, as_element_type, bf16, bool_, f16, f32, i8, i16, i32, u8, u16, u32

_TYPES: dict[str, ElementType] = {
    "float32": f32,
    "float16": f16,
    "bfloat16": bf16,
    "int32": i32,
    "int16": i16,
    "int8": i8,
    "uint32": u32,
    "uint16": u16,
    "uint8": u8,
    "bool": bool_,
}
"""Device types by JAX's names."""


def is_key(dtype: Any) -> bool:
    """True for the opaque types of keys."""
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def key_words(dtype: Any) -> Shape:
    """Words of one key of an opaque type: (2,) for threefry's."""
    return tuple(jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct((), dtype)).shape)


def element_type(dtype: Any) -> ElementType:
    """The device type of a JAX type. Gradients of integers are float0, which nothing reads: bools stand for them.

    Raises:
        TypeMismatchError: The device has nothing like it, as of 64-bit and complex numbers.
    """
    if is_key(dtype):
        return u32
    if dtype == jax.dtypes.float0:
        return bool_
    name = dtype.name if hasattr(dtype, "name") else np.dtype(dtype).name
    if name not in _TYPES:
        wide = name.endswith("64") and name != "complex64"
        raise TypeMismatchError(
            f"{name} does not exist on the device",
            because="jax_enable_x64 is on, and the program uses 64-bit types" if wide else None,
            remedy="jax.config.update('jax_enable_x64', False), or astype(float32) or int32"
            if wide
            else "use float32, float16, bfloat16, int32 or bool",
        )
    return _TYPES[name]


def host_type(dtype: ElementType) -> Any:
    """The NumPy type of a device type, as JAX takes it."""
    return as_element_type(dtype).np


def type_of(aval: Any) -> tuple[Shape, ElementType]:
    """Shape and element type of an abstract value on the device.

    Raises:
        TypeMismatchError: An element type that the device lacks, or a size that is not known.
    """
    shape = aval.shape
    if not all(isinstance(n, (int, np.integer)) for n in shape):
        raise TypeMismatchError(
            f"an array of shape {shape} has sizes that are not known",
            because="programs are compiled for fixed shapes",
            remedy="trace with arrays of one size, or pad them to it",
        )
    sizes = tuple(map(int, shape))
    return (sizes + key_words(aval.dtype) if is_key(aval.dtype) else sizes), element_type(aval.dtype)


def is_token(aval: Any) -> bool:
    """True for the tokens that order effects."""
    return isinstance(aval, jec.AbstractToken)
