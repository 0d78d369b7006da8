"""Matrices of quantised weights: codes of 8 or 4 bits with a scale, and perhaps an offset, per group of columns.

A group is a run of columns of one row (one output channel). Its weights are ``scale · code + offset``:

| kind | codes | value of a code | made by :func:`quantise` |
|---|---|---|---|
| ``int8`` | i8 [out, in] | -128 … 127 | a scale per row: the largest magnitude is ±127 |
| ``int4`` | u8 [out, in/2], even columns in low nibbles | 0 … 15; less 8 without offsets | both, per group |
| ``f143`` | u8 [out, in] | an 8-bit float 1.4.3 | a power of two per row: the largest magnitude is at most 240 |

Example: a matrix [576, 1536] in ``int4-64`` has 442,368 bytes of codes and 2 × 27,648 bytes of f16 scales and offsets:
4.5 bits per weight, as 4 + 32/G bits with G = 64.

Source: groups of 4-bit codes with an f16 scale and bias: low-precision notes of GPT-J's int4 weights (``llm.md`` §2.6);
1.4.3 with powers of two: arXiv:2206.02915 and arXiv:2309.17224 (``low_precision.md`` §1.1, §2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Float32
from abele.errors import ElementRangeError, InvalidOptionError, TensorError, TypeMismatchError, nearest
from abele.numerics import SCALES, f8_143, to_device
from abele.numerics.narrow import format_of


@dataclass(frozen=True)
class CodeKind:
    """A kind of codes.

    Attributes:
        name: Its name.
        dtype: Of the array of codes.
        per_byte: Codes in one byte.
        centre: Code that means zero where there are no offsets.
    """

    name: str
    dtype: type[np.generic]
    per_byte: int = 1
    centre: int = 0

    def numbers(self, codes: Array) -> Float32:
        """Number of each code before scale and offset: [out, in] of codes [out, in / per_byte]."""
        if self.name == "f143":
            return np.ascontiguousarray(codes).view(f8_143.np).astype(np.float32)
        if self.per_byte == 1:
            return codes.astype(np.float32)
        numbers = np.empty((*codes.shape[:-1], 2 * codes.shape[-1]), np.float32)
        numbers[..., 0::2] = codes & 15
        numbers[..., 1::2] = codes >> 4
        return numbers


KINDS = {k.name: k for k in (CodeKind("int8", np.int8), CodeKind("int4", np.uint8, 2, 8), CodeKind("f143", np.uint8))}
"""Kinds of codes by name."""

SCHEMES = ("int8", "int4-32", "int4-64", "int4-128", "f143")
"""Names of the ways to :func:`quantise`."""


def kind_of_codes(name: str) -> CodeKind:
    """A kind of codes.

    Raises:
        InvalidOptionError: There is none of this name.
    """
    if name in KINDS:
        return KINDS[name]
    near = nearest(name, KINDS) if isinstance(name, str) else None
    raise InvalidOptionError(
        f"no kind of quantised weights is called {name!r}", remedy=f"{near}?" if near else " or ".join(KINDS)
    )


def check_quantised(kind: str, codes: Array, scales: Array, offsets: Array | None, group: int) -> None:
    """Raise unless arrays are the parts of one quantised matrix.

    Raises:
        InvalidOptionError: The kind is unknown.
        TensorError: A shape is not the one that the kind and the group ask for.
        TypeMismatchError: An element type is not.
    """
    held = kind_of_codes(kind)
    if codes.ndim != 2:
        raise TensorError(f"codes {list(codes.shape)} are no matrix", remedy="codes [out, in]")
    if codes.dtype != held.dtype:
        raise TypeMismatchError(f"codes of {kind} are {np.dtype(held.dtype)}, not {codes.dtype}")
    rows, columns = codes.shape[0], codes.shape[1] * held.per_byte
    check_group(columns, group, held.per_byte)
    if offsets is not None and kind == "f143":
        raise TensorError("8-bit floats have no offsets", because="they are signed numbers, scaled by powers of two")
    for name, array in (("scales", scales), ("offsets", offsets)):
        if array is None:
            continue
        if array.dtype not in (np.float16, np.float32):
            raise TypeMismatchError(f"{name} are {array.dtype}", remedy="float16 or float32")
        if array.shape != (rows, columns // group):
            raise TensorError(
                f"{name} {list(array.shape)} are not [{rows}, {columns // group}]",
                because=f"{rows} rows of {columns} columns have {columns // group} groups of {group} each",
            )
    if offsets is not None and offsets.dtype != scales.dtype:
        raise TypeMismatchError(f"scales are {scales.dtype}, offsets {offsets.dtype}", remedy="one type for both")


def check_group(columns: int, group: int, per_byte: int = 1) -> None:
    """Raise unless rows of ``columns`` are whole groups of whole bytes.

    Raises:
        TensorError: They are not.
    """
    if group >= 1 and columns % group == 0 and group % per_byte == 0:
        return
    usual = [g for g in (128, 64, 32) if columns % g == 0]
    raise TensorError(
        f"rows of {columns} weights are no whole number of groups of {group}",
        because=f"{per_byte} codes share a byte" if group >= 1 and columns % group == 0 else None,
        remedy=f"groups of {' or '.join(map(str, usual))}" if usual else "int8, which has one group per row",
    )


def dequantise(kind: str, codes: Array, scales: Array, offsets: Array | None, group: int) -> Float32:
    """Weights that codes stand for, f32 [out, in]; the product and the sum are rounded to f32 once each."""
    held = kind_of_codes(kind)
    numbers = held.numbers(codes)
    groups = numbers.reshape(*numbers.shape[:-1], -1, group)
    if offsets is None and held.centre:
        groups -= np.float32(held.centre)
    groups *= scales.astype(np.float32)[..., None]
    if offsets is not None:
        groups += offsets.astype(np.float32)[..., None]
    return numbers


@dataclass(frozen=True, eq=False)
class QuantisedMatrix:
    """A matrix [out, in] as codes: ``scale · code + offset`` of each group of columns.

    Attributes:
        kind: ``int8``, ``int4`` or ``f143``.
        codes: i8 [out, in]; u8 [out, in/2] for int4, the even column in the low nibble; u8 [out, in] for f143.
        scales: f16 or f32 [out, in/group]; powers of two for f143.
        offsets: Of the same type and shape; None without. Codes of int4 without offsets count from 8.
        group: Columns of a group.

    Raises:
        InvalidOptionError: The kind is unknown.
        TensorError: Shapes that do not fit each other.
        TypeMismatchError: An element type that the kind does not have.
    """

    kind: str
    codes: Array
    scales: Array
    offsets: Array | None
    group: int

    def __post_init__(self) -> None:
        check_quantised(self.kind, self.codes, self.scales, self.offsets, self.group)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns: outputs and inputs of a layer."""
        rows, stored = self.codes.shape
        return rows, stored * KINDS[self.kind].per_byte

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and offsets."""
        offsets = 0 if self.offsets is None else self.offsets.nbytes
        return int(self.codes.nbytes + self.scales.nbytes + offsets)

    @property
    def bits_per_weight(self) -> float:
        """Bits of memory per weight, scales and offsets included."""
        return 8 * self.nbytes / max(1, self.shape[0] * self.shape[1])

    def dequantised(self) -> Float32:
        """The matrix, f32 [out, in]."""
        return dequantise(self.kind, self.codes, self.scales, self.offsets, self.group)

    def rows(self, chosen: npt.ArrayLike) -> QuantisedMatrix:
        """Some of the rows, in any order: numbers of rows or a slice."""
        which = chosen if isinstance(chosen, slice) else np.asarray(chosen)
        offsets = None if self.offsets is None else self.offsets[which]
        return QuantisedMatrix(self.kind, self.codes[which], self.scales[which], offsets, self.group)


def quantise(array: npt.ArrayLike, scheme: str) -> QuantisedMatrix:
    """A matrix of numbers as codes.

    Every code is the nearest to its weight, ties to even, by the scale and offset as they are stored:

    * ``int8``: a scale per row, f32: the largest magnitude over 127.
    * ``int4-32``, ``int4-64``, ``int4-128``: an f16 scale, a 15th of the group's range, and an f16 offset, its least
      weight. A group of equal weights has scale 0.
    * ``f143``: a power of two per row, f32: the least that brings the row within ±240, from 2^-32 to 2^31.

    Args:
        array: [out, in], of any float type.
        scheme: One of :data:`SCHEMES`.

    Raises:
        InvalidOptionError: The scheme is unknown.
        TensorError: It is no matrix, or its rows are no whole number of groups.
        ElementRangeError: A weight is infinite, not a number, or beyond what scales and offsets can hold.
    """
    if scheme not in SCHEMES:
        near = nearest(scheme, SCHEMES) if isinstance(scheme, str) else None
        raise InvalidOptionError(
            f"no scheme of quantising is called {scheme!r}",
            remedy=(f"{near}? " if near else "") + f"One of {', '.join(SCHEMES)}",
        )
    weights = np.asarray(array)
    if weights.ndim != 2 or not weights.size:
        raise TensorError(f"weights {list(weights.shape)} are no matrix of rows to quantise", remedy="[out, in]")
    with np.errstate(over="ignore"):
        weights = weights.astype(np.float32)
    bad = np.argwhere(~np.isfinite(weights))
    if len(bad):
        row, column = bad[0]
        raise ElementRangeError(
            f"weight [{row}, {column}] is {weights[row, column]}, which no code stands for",
            because=f"{len(bad):,} of {weights.size:,} weights are infinite or not a number",
        )
    kind, _, group = scheme.partition("-")
    if kind == "int4":
        return _int4(weights, int(group))
    return _int8(weights) if kind == "int8" else _f143(weights)


def _largest(weights: Float32) -> Float32:
    """Largest magnitude of each row, [out, 1]."""
    return np.asarray(np.abs(weights).max(axis=1, keepdims=True))


def _divided(weights: Float32, scales: Float32) -> Float32:
    """Weights over their scales, 0 where a scale is 0."""
    return np.divide(weights, scales, out=np.zeros_like(weights), where=scales != 0)


def _int8(weights: Float32) -> QuantisedMatrix:
    scales = _largest(weights) / np.float32(127)
    codes = np.clip(np.rint(_divided(weights, scales)), -127, 127).astype(np.int8)
    return QuantisedMatrix("int8", codes, scales, None, weights.shape[1])


def _int4(weights: Float32, group: int) -> QuantisedMatrix:
    rows, columns = weights.shape
    check_group(columns, group, 2)
    groups = weights.reshape(rows, -1, group)
    least = groups.min(axis=2)
    with np.errstate(over="ignore"):
        scales = ((groups.max(axis=2) - least) / np.float32(15)).astype(np.float16)
        offsets = least.astype(np.float16)
    if not (np.isfinite(scales).all() and np.isfinite(offsets).all()):
        raise ElementRangeError(
            f"weights of magnitude {np.abs(weights).max():.4g} are beyond scales and offsets of 16 bits",
            remedy="int8, whose scales are of 32 bits",
        )
    distances = groups - offsets.astype(np.float32)[..., None]
    codes = np.clip(np.rint(_divided(distances, scales.astype(np.float32)[..., None])), 0, 15)
    nibbles = codes.astype(np.uint8).reshape(rows, columns)
    return QuantisedMatrix("int4", nibbles[:, 0::2] | nibbles[:, 1::2] << 4, scales, offsets, group)


def _f143(weights: Float32) -> QuantisedMatrix:
    held = format_of(f8_143)
    largest = _largest(weights)
    fraction, power = np.frexp(largest / np.float32(held.largest))
    # The least power of two that is at least the quotient: one less where the quotient is itself a power.
    power = np.where(largest > 0, power - (fraction == 0.5), 0)
    if power.max(initial=0) > SCALES[-1]:
        raise ElementRangeError(
            f"weights of magnitude {largest.max():.4g} are beyond 8-bit floats",
            because=f"the largest is {held.largest:g} · 2^{SCALES[-1]}",
        )
    scales = np.ldexp(np.float32(1), np.maximum(power, SCALES[0]).astype(np.int32)).astype(np.float32)
    codes = to_device(weights / scales, f8_143).view(np.uint8)
    return QuantisedMatrix("f143", codes, scales, None, weights.shape[1])
