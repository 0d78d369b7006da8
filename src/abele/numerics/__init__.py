"""Element types of the machine and their conversions to and from host arrays."""

from abele.numerics.types import (
    ElementType,
    as_element_type,
    bf16,
    bool_,
    f16,
    f32,
    i8,
    i16,
    i32,
    i64,
    to_device,
    to_host,
    u8,
    u16,
    u32,
    u64,
)

__all__ = [
    "ElementType",
    "as_element_type",
    "bf16",
    "bool_",
    "f16",
    "f32",
    "i8",
    "i16",
    "i32",
    "i64",
    "to_device",
    "to_host",
    "u8",
    "u16",
    "u32",
    "u64",
]
