"""Counter-based random numbers: a hash of (seed, modifier, element index), the same bits in IR and in NumPy.

With ``mix`` a bijection of 32-bit words::

    key1 = mix(seed[0] + mix(modifier ^ 0x9E3779B9))
    key2 = mix(seed[1] + mix(key1 ^ 0x85EBCA6B))
    hash = mix(key2 ^ mix(key1 ^ index))

all modulo 2^32 (of a 64-bit index the low half counts). The keys depend on no element, so a loop pays two ``mix`` an
element. Two keys rather than one: with a single key, streams of two modifiers would be permutations of each other
whenever their keys are close.

Source: ``mix`` is the public 32-bit finaliser "lowbias32" (C. Wellons, hash-prospector): shifts 16, 15, 16 and
multipliers 0x7FEB352D, 0x846CA68B.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.llvm import ir as ll
from abele.llvm.emit import I32, Value, constant, like

GOLDEN = 0x9E3779B9
SECOND = 0x85EBCA6B
_FIRST, _LAST = 0x7FEB352D, 0x846CA68B
_STEPS = ((16, _FIRST), (15, _LAST), (16, None))

U32 = npt.NDArray[np.uint32]
Keys = tuple[Value, Value]


def hash_u32(seed0: Any, seed1: Any, modifier: Any, index: npt.ArrayLike) -> U32:
    """Random words of the elements ``index``, u32 of its shape.

    Args:
        seed0: Low word of the seed; an integer or an array.
        seed1: High word of the seed.
        modifier: Number that tells streams of one seed apart.
        index: Element numbers, any integer type.
    """
    key1, key2 = _keys(seed0, seed1, modifier)
    return _mix(key2 ^ _mix(key1 ^ _word(index)))


def emit_hash_u32(builder: ll.IRBuilder, seed0: Value, seed1: Value, modifier: Value | int, index: Value) -> Value:
    """IR of :func:`hash_u32`: i32, or a vector of them when ``index`` is a vector.

    Args:
        builder: Builder that code is added to.
        seed0: Low word of the seed, i32.
        seed1: High word of the seed, i32.
        modifier: A number or an i32.
        index: Element number, i32 or i64, scalar or vector.
    """
    return emit_hash_of_keys(builder, emit_keys(builder, seed0, seed1, modifier), index)


def emit_keys(builder: ll.IRBuilder, seed0: Value, seed1: Value, modifier: Value | int) -> Keys:
    """IR of a hash's keys from seed and modifier, once for all elements: two i32."""
    modifier = ll.Constant(I32, modifier & 0xFFFFFFFF) if isinstance(modifier, int) else modifier
    tweaked = emit_mix(builder, builder.xor(modifier, ll.Constant(I32, GOLDEN)))
    key1 = emit_mix(builder, builder.add(seed0, tweaked))
    return key1, emit_mix(builder, builder.add(seed1, emit_mix(builder, builder.xor(key1, ll.Constant(I32, SECOND)))))


def emit_hash_of_keys(builder: ll.IRBuilder, keys: Keys, index: Value) -> Value:
    """IR of the hash of an element under the keys of :func:`emit_keys`."""
    key1, key2 = keys
    narrow = like(index, I32)
    word = index if index.type == narrow else builder.trunc(index, narrow)
    first = emit_mix(builder, builder.xor(_splat(builder, key1, narrow), word))
    return emit_mix(builder, builder.xor(_splat(builder, key2, narrow), first))


def emit_mix(builder: ll.IRBuilder, word: Value) -> Value:
    """IR of the finaliser: a bijection of 32-bit words in which every input bit moves every output bit."""
    for shift, factor in _STEPS:
        word = builder.xor(word, builder.lshr(word, constant(word.type, shift)))
        if factor is not None:
            word = builder.mul(word, constant(word.type, factor))
    return word


def emit_quick_counter(builder: ll.IRBuilder, keys: Keys, index: Value) -> Value:
    """IR of the quicker hash's first step, linear in the element: its scaled number under one of the keys.

    Args:
        builder: Builder that code is added to.
        keys: Those of :func:`emit_keys`.
        index: Element number, i32.
    """
    return builder.add(builder.mul(index, ll.Constant(I32, _FIRST)), keys[0])


def emit_quick_hash(builder: ll.IRBuilder, keys: Keys, counter: Value, offsets: int | Sequence[int]) -> Value:
    """IR of the quicker hash of an element some known numbers after that of ``counter``; of many, in a vector.

    That costs neither the multiplication nor numbers of elements in vectors: the counter's increments are constants.

    Args:
        builder: Builder that code is added to.
        keys: Those of :func:`emit_keys`.
        counter: That of :func:`emit_quick_counter`; a vector where there are many elements.
        offsets: Number of elements further on.
    """
    scaled = [o * _FIRST & 0xFFFFFFFF for o in ([offsets] if isinstance(offsets, int) else offsets)]
    parts = [ll.Constant(I32, number) for number in scaled]
    word = builder.add(counter, parts[0] if isinstance(offsets, int) else ll.Constant(counter.type, parts))
    word = builder.xor(
        builder.xor(word, builder.lshr(word, constant(word.type, 15))), _splat(builder, keys[1], word.type)
    )
    return builder.mul(word, constant(word.type, _LAST))


def quick_hash_u32(seed0: Any, seed1: Any, modifier: Any, index: npt.ArrayLike) -> U32:
    """Words of which the upper bits are random enough to round by, at a third of the work of :func:`hash_u32`.

    With the same keys: ``((index * 0x7FEB352D + key1) ^ itself >> 15 ^ key2) * 0x846CA68B``. The first product is
    linear, so that native code has it once for many elements. Tests look at means, at neighbours and at streams beside
    each other; the low bits are worse, and use of them as random numbers is not meant. One first key for all streams
    would save an addition and a shift, but leaves some pairs of them correlated by a few hundredths.
    """
    key1, key2 = _keys(seed0, seed1, modifier)
    with np.errstate(over="ignore"):
        word = _word(index) * np.uint32(_FIRST) + key1
        return (word ^ (word >> np.uint32(15)) ^ key2) * np.uint32(_LAST)


def _keys(seed0: Any, seed1: Any, modifier: Any) -> tuple[U32, U32]:
    key1 = _mix(_word(seed0) + _mix(_word(modifier) ^ np.uint32(GOLDEN)))
    return key1, _mix(_word(seed1) + _mix(key1 ^ np.uint32(SECOND)))


def _word(value: Any) -> U32:
    return np.asarray(value).astype(np.int64).astype(np.uint32)


def _mix(word: U32) -> U32:
    with np.errstate(over="ignore"):
        for shift, factor in _STEPS:
            word = word ^ (word >> np.uint32(shift))
            if factor is not None:
                word = word * np.uint32(factor)
    return word


def _splat(builder: ll.IRBuilder, value: Value, type_: Any) -> Value:
    if value.type == type_:
        return value
    zero = ll.Constant(I32, 0)
    one = builder.insert_element(ll.Constant(type_, ll.Undefined), value, zero)
    return builder.shuffle_vector(one, one, ll.Constant(ll.VectorType(I32, type_.count), [zero] * type_.count))
