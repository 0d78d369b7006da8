"""LLVM code of loads and stores: one element, a run of lanes, or lanes apart; whole or masked; of any element type."""

from __future__ import annotations

from typing import Any

from abele.kernels.code.ops import llvm_type, overloaded, splat
from abele.kernels.nest.ir import compute_type
from abele.llvm import ir as ll
from abele.llvm.emit import constant
from abele.llvm.narrow import narrowed, widened
from abele.numerics import ElementType, bool_

Value = Any
I1, I8, I32, I64 = (ll.IntType(n) for n in (1, 8, 32, 64))


def stored_type(type_: ElementType) -> Any:
    """The LLVM type that an element of ``type_`` has in memory; narrow floats as their bits."""
    if type_.kind in ("int", "uint", "bool") or type_.is_narrow:
        return ll.IntType(type_.bits)
    return llvm_type(type_)


def widen(builder: ll.IRBuilder, value: Value, type_: ElementType) -> Value:
    """A loaded ``value`` in the compute type of ``type_``."""
    if type_.is_float:
        return widened(builder, value, type_) if type_.is_narrow else value
    if type_ == bool_:
        return builder.icmp_unsigned("!=", value, constant(value.type, 0))
    return _resize(builder, value, compute_type(type_).bits, signed=type_.kind == "int")


def narrow(builder: ll.IRBuilder, value: Value, type_: ElementType) -> Value:
    """``value`` of the compute type of ``type_``, in its stored form."""
    if type_.is_float:
        return narrowed(builder, value, type_) if type_.is_narrow else value
    if type_ == bool_:
        return builder.zext(value, _like(value, I8))
    return _resize(builder, value, type_.bits, signed=False)


def _resize(builder: ll.IRBuilder, value: Value, bits: int, signed: bool) -> Value:
    scalar = value.type.element if isinstance(value.type, ll.VectorType) else value.type
    if scalar.width == bits:
        return value
    wanted = _like(value, ll.IntType(bits))
    if scalar.width > bits:
        return builder.trunc(value, wanted)
    return builder.sext(value, wanted) if signed else builder.zext(value, wanted)


def _like(value: Value, scalar: Any) -> Any:
    return ll.VectorType(scalar, value.type.count) if isinstance(value.type, ll.VectorType) else scalar


def iota(lanes: int, step: int = 1, type_: Any = I64) -> Any:
    """The constant 0, step, 2·step, …"""
    return ll.Constant(ll.VectorType(type_, lanes), [ll.Constant(type_, n * step) for n in range(lanes)])


def first_lanes(lanes: int, valid: int) -> Any:
    """The constant mask of the first ``valid`` lanes."""
    return ll.Constant(ll.VectorType(I1, lanes), [ll.Constant(I1, int(n < valid)) for n in range(lanes)])


def element_pointer(builder: ll.IRBuilder, base: Value, index: Value, type_: ElementType) -> Value:
    """Pointer to element ``index`` of the array at ``base``."""
    return builder.gep(base, [index], source_etype=stored_type(type_))


def load_one(builder: ll.IRBuilder, pointer: Value, type_: ElementType) -> Value:
    """The element at ``pointer``, widened."""
    return widen(builder, builder.load(pointer, align=type_.bytes, typ=stored_type(type_)), type_)


def load_lanes(
    builder: ll.IRBuilder, pointer: Value, type_: ElementType, lanes: int, stride: int, valid: int, mask: Value | None
) -> Value:
    """``lanes`` elements ``stride`` apart, widened; zero, and not touched, outside ``valid`` or ``mask``."""
    wide = ll.VectorType(stored_type(type_), lanes)
    if mask is not None and valid < lanes:
        mask = builder.and_(mask, first_lanes(lanes, valid))
    # Lane by lane, which touches valid lanes alone and needs no mask.
    if mask is None and stride != 1:
        return widen(builder, _gather(builder, pointer, type_, lanes, stride, valid), type_)
    if mask is None and valid == lanes:
        return widen(builder, builder.load(pointer, align=type_.bytes, typ=wide), type_)
    mask = first_lanes(lanes, valid) if mask is None else mask
    align, zero = ll.Constant(I32, type_.bytes), constant(wide, 0)
    if stride == 1:
        raw = overloaded(builder, "llvm.masked.load", [pointer, align, mask, zero], wide, wide, pointer.type)
    else:
        pointers = lane_pointers(builder, pointer, type_, lanes, stride)
        raw = overloaded(
            builder, "llvm.masked.gather", [pointers, align, mask, zero], wide, wide, ll.VectorType(pointer.type, lanes)
        )
    return widen(builder, raw, type_)


def _gather(builder: ll.IRBuilder, pointer: Value, type_: ElementType, lanes: int, stride: int, valid: int) -> Value:
    stored = stored_type(type_)
    result = constant(ll.VectorType(stored, lanes), 0)
    for lane in range(valid):
        place = builder.gep(pointer, [ll.Constant(I64, lane * stride)], source_etype=stored)
        one = builder.load(place, align=type_.bytes, typ=stored)
        result = builder.insert_element(result, one, ll.Constant(I32, lane))
    return result


def pointers_at(builder: ll.IRBuilder, first: Value, distances: Value, type_: ElementType, stride: int) -> Value:
    """A vector of pointers: each lane's own distance from ``first``, and ``stride`` elements more with every lane."""
    lanes = distances.type.count
    further = builder.add(distances, iota(lanes, stride)) if stride else distances
    return builder.gep(splat(builder, first, lanes), [further], source_etype=stored_type(type_))


def gather_lanes(builder: ll.IRBuilder, pointers: Value, type_: ElementType, valid: int, mask: Value) -> Value:
    """The elements at ``pointers``, widened; zero, and not touched, outside ``valid`` or ``mask``."""
    lanes = pointers.type.count
    wide = ll.VectorType(stored_type(type_), lanes)
    mask = builder.and_(mask, first_lanes(lanes, valid)) if valid < lanes else mask
    args = [pointers, ll.Constant(I32, type_.bytes), mask, constant(wide, 0)]
    return widen(builder, overloaded(builder, "llvm.masked.gather", args, wide, wide, pointers.type), type_)


def scatter_lanes(
    builder: ll.IRBuilder, value: Value, pointers: Value, type_: ElementType, valid: int, mask: Value
) -> None:
    """Store the lanes of ``value``, narrowed, at ``pointers``; none outside ``valid`` or ``mask``."""
    raw = narrow(builder, value, type_)
    lanes = raw.type.count
    mask = builder.and_(mask, first_lanes(lanes, valid)) if valid < lanes else mask
    args = [raw, pointers, ll.Constant(I32, type_.bytes), mask]
    overloaded(builder, "llvm.masked.scatter", args, ll.VoidType(), raw.type, pointers.type)


def lane_pointers(builder: ll.IRBuilder, pointer: Value, type_: ElementType, lanes: int, stride: int) -> Value:
    """A vector of pointers, ``stride`` elements apart."""
    return builder.gep(splat(builder, pointer, lanes), [iota(lanes, stride)], source_etype=stored_type(type_))


def store_one(builder: ll.IRBuilder, value: Value, pointer: Value, type_: ElementType) -> None:
    """Store ``value``, narrowed."""
    builder.store(narrow(builder, value, type_), pointer, align=type_.bytes)


def store_lanes(
    builder: ll.IRBuilder, value: Value, pointer: Value, type_: ElementType, stride: int, valid: int, mask: Value | None
) -> None:
    """Store the lanes of ``value``, narrowed, ``stride`` elements apart; none outside ``valid`` or ``mask``."""
    raw = narrow(builder, value, type_)
    lanes = raw.type.count
    if mask is not None and valid < lanes:
        mask = builder.and_(mask, first_lanes(lanes, valid))
    # A single lane, too: LLVM makes a store of 32 bits of one narrowed 16-bit lane under a constant mask.
    if mask is None and (stride != 1 or valid == 1):
        _scatter(builder, raw, pointer, type_, stride, valid)
        return
    if mask is None and valid == lanes:
        builder.store(raw, pointer, align=type_.bytes)
        return
    mask = first_lanes(lanes, valid) if mask is None else mask
    align = ll.Constant(I32, type_.bytes)
    void = ll.VoidType()
    if stride == 1:
        overloaded(builder, "llvm.masked.store", [raw, pointer, align, mask], void, raw.type, pointer.type)
    else:
        pointers = lane_pointers(builder, pointer, type_, lanes, stride)
        overloaded(builder, "llvm.masked.scatter", [raw, pointers, align, mask], void, raw.type, pointers.type)


def stream_lanes(builder: ll.IRBuilder, value: Value, pointer: Value, type_: ElementType, piece_bytes: int) -> None:
    """Store all lanes of ``value``, narrowed, past the caches, in pieces at addresses that ``piece_bytes`` divides."""
    raw = narrow(builder, value, type_)
    lanes = piece_bytes // type_.bytes
    mark = builder.module.add_metadata([ll.Constant(I32, 1)])
    for first in range(0, raw.type.count, lanes):
        part = raw
        if lanes < raw.type.count:
            chosen = [ll.Constant(I32, first + n) for n in range(lanes)]
            part = builder.shuffle_vector(raw, raw, ll.Constant(ll.VectorType(I32, lanes), chosen))
        place = element_pointer(builder, pointer, ll.Constant(I64, first), type_)
        builder.store(part, place, align=piece_bytes).set_metadata("nontemporal", mark)


def _scatter(builder: ll.IRBuilder, raw: Value, pointer: Value, type_: ElementType, stride: int, valid: int) -> None:
    for lane in range(valid):
        place = builder.gep(pointer, [ll.Constant(I64, lane * stride)], source_etype=stored_type(type_))
        builder.store(builder.extract_element(raw, ll.Constant(I32, lane)), place, align=type_.bytes)
