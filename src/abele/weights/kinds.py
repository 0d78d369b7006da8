"""Kinds of stored elements: the bytes of a block, and what they mean.

A kind stores blocks of ``elements`` numbers. Plain kinds have blocks of one. A block of ``Q4_1`` is 20 bytes for 32
numbers: a scale d and a minimum m in f16, then 16 bytes of 4-bit codes q, the first 16 numbers in the low halves; the
numbers are d·q + m. Blocks of the K kinds have 256 numbers in sub-blocks of 16 or 32 with 6-bit or 8-bit scales of
their own.

Source: the layouts of ggml's blocks as its headers publish them; the tests compare with the package ``gguf``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Array, Float32

LOW = np.uint8(15)


@dataclass(frozen=True)
class StoredKind:
    """One way to store numbers.

    Attributes:
        name: ``F32``, ``BF16``, ``Q4_1`` and so on.
        elements: Numbers per block.
        block: A block as it lies in the file.
        decode: Blocks [n] to numbers [n, elements] (or [n] for plain kinds), exactly as stored where that is a type of
            NumPy and in f32 otherwise.
    """

    name: str
    elements: int
    block: np.dtype[Any]
    decode: Callable[[Array], Array]

    @property
    def block_bytes(self) -> int:
        """Bytes per block."""
        return int(self.block.itemsize)

    @property
    def bits(self) -> float:
        """Bits per number, with its share of the scales."""
        return 8 * self.block_bytes / self.elements


def _same(blocks: Array) -> Array:
    return blocks


def _bf16(blocks: Array) -> Float32:
    return (blocks.astype(np.uint32) << 16).view(np.float32)


def _f8(exponent_bits: int, bias: int, *, infinities: bool) -> Callable[[Array], Array]:
    """Reader of 8-bit floats: those of the Open Compute Project, which safetensors names E4M3 and E5M2."""
    codes = np.arange(256)
    mantissa_bits = 7 - exponent_bits
    exponent, mantissa = codes >> mantissa_bits & (1 << exponent_bits) - 1, codes & (1 << mantissa_bits) - 1
    fraction = mantissa / (1 << mantissa_bits) + (exponent > 0)
    table = np.ldexp(fraction, np.maximum(exponent, 1) - bias)
    if infinities:
        top = exponent == (1 << exponent_bits) - 1
        table[top] = np.where(mantissa[top] == 0, np.inf, np.nan)
    else:
        table[codes & 127 == 127] = np.nan
    signed = np.where(codes < 128, table, -table).astype(np.float32)
    return lambda blocks: signed[blocks]


def _halves(codes: Array) -> Array:
    """Codes [..., n] of 4 bits as [..., 2n]: all low halves of the bytes, then all high ones."""
    return np.concatenate([codes & LOW, codes >> 4], axis=-1)


def _fifth_bits(blocks: Array) -> Array:
    """Codes [n, 32] of 5 bits: the fifth bits of a block lie in one word."""
    fifth = blocks["high"][:, None] >> np.arange(32, dtype=np.uint32) & 1
    return _halves(blocks["codes"]) | (fifth << 4).astype(np.uint8)


def _scale(blocks: Array, name: str = "scale") -> Float32:
    return np.asarray(blocks[name], np.float32)[:, None]


def _q4_0(blocks: Array) -> Array:
    return _scale(blocks) * (_halves(blocks["codes"]).astype(np.int8) - np.int8(8))


def _q4_1(blocks: Array) -> Array:
    return _scale(blocks) * _halves(blocks["codes"]) + _scale(blocks, "offset")


def _q5_0(blocks: Array) -> Array:
    return _scale(blocks) * (_fifth_bits(blocks).astype(np.int8) - np.int8(16))


def _q5_1(blocks: Array) -> Array:
    return _scale(blocks) * _fifth_bits(blocks) + _scale(blocks, "offset")


def _q8_0(blocks: Array) -> Array:
    codes: Array = blocks["codes"]
    return _scale(blocks) * codes


def _six_bit_scales(packed: Array) -> tuple[Array, Array]:
    """Scales and minima [n, 8] of 6 bits out of 12 bytes.

    Bytes 0 to 3 and 4 to 7 have the first four of each in their low six bits. Bytes 8 to 11 have the low four bits of
    the last four of each, whose top two bits are the top bits of the first eight bytes.
    """
    first, second, last = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, last & LOW | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, last >> 4 | second >> 6 << 4], axis=1)
    return scales, minima


def _sub_blocks(blocks: Array, codes: Array) -> Array:
    """Numbers [n, 256] of codes [n, 8, 32] with a 6-bit scale and a 6-bit minimum each."""
    scales, minima = _six_bit_scales(blocks["scales"])
    by_code = _scale(blocks) * scales
    below = _scale(blocks, "offset") * minima
    return (by_code[:, :, None] * codes - below[:, :, None]).reshape(len(blocks), 256)


def _q4_k(blocks: Array) -> Array:
    codes = blocks["codes"].reshape(-1, 4, 1, 32) >> np.array([0, 4], np.uint8)[:, None] & LOW
    return _sub_blocks(blocks, codes.reshape(-1, 8, 32))


def _q5_k(blocks: Array) -> Array:
    codes = blocks["codes"].reshape(-1, 4, 1, 32) >> np.array([0, 4], np.uint8)[:, None] & LOW
    fifth = blocks["high"][:, None, :] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    return _sub_blocks(blocks, codes.reshape(-1, 8, 32) | fifth << 4)


def _q6_k(blocks: Array) -> Array:
    low = blocks["codes"].reshape(-1, 2, 1, 64) >> np.array([0, 4], np.uint8)[:, None] & LOW
    high = blocks["high"].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    codes = low.reshape(-1, 16, 16) | (high << 4).reshape(-1, 16, 16)
    scales: Array = _scale(blocks) * blocks["scales"]
    numbers: Array = scales[:, :, None] * (codes.astype(np.int8) - np.int8(32))
    return numbers.reshape(len(blocks), 256)


def _plain(name: str, dtype: str, decode: Callable[[Array], Array] = _same) -> StoredKind:
    return StoredKind(name, 1, np.dtype(dtype), decode)


_CODES_4, _HIGH = ("codes", "u1", (16,)), ("high", "<u4")
_D, _M = ("scale", "<f2"), ("offset", "<f2")

PLAIN = (
    _plain("F64", "<f8"),
    _plain("F32", "<f4"),
    _plain("F16", "<f2"),
    _plain("BF16", "<u2", _bf16),
    _plain("I64", "<i8"),
    _plain("I32", "<i4"),
    _plain("I16", "<i2"),
    _plain("I8", "i1"),
    _plain("U64", "<u8"),
    _plain("U32", "<u4"),
    _plain("U16", "<u2"),
    _plain("U8", "u1"),
    _plain("BOOL", "?"),
    _plain("F8_E4M3", "u1", _f8(4, 7, infinities=False)),
    _plain("F8_E5M2", "u1", _f8(5, 15, infinities=True)),
)
BLOCKS = (
    StoredKind("Q4_0", 32, np.dtype([_D, _CODES_4]), _q4_0),
    StoredKind("Q4_1", 32, np.dtype([_D, _M, _CODES_4]), _q4_1),
    StoredKind("Q5_0", 32, np.dtype([_D, _HIGH, _CODES_4]), _q5_0),
    StoredKind("Q5_1", 32, np.dtype([_D, _M, _HIGH, _CODES_4]), _q5_1),
    StoredKind("Q8_0", 32, np.dtype([_D, ("codes", "i1", (32,))]), _q8_0),
    StoredKind("Q4_K", 256, np.dtype([_D, _M, ("scales", "u1", (12,)), ("codes", "u1", (128,))]), _q4_k),
    StoredKind(
        "Q5_K",
        256,
        np.dtype([_D, _M, ("scales", "u1", (12,)), ("high", "u1", (32,)), ("codes", "u1", (128,))]),
        _q5_k,
    ),
    StoredKind(
        "Q6_K", 256, np.dtype([("codes", "u1", (128,)), ("high", "u1", (64,)), ("scales", "i1", (16,)), _D]), _q6_k
    ),
)
KINDS = {kind.name: kind for kind in (*PLAIN, *BLOCKS)}
"""Every kind that is read, by name."""
