"""Native functions of loop nests and drivers, made once for equal content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from abele.kernels.code.drivers import Driver, DriverWriter, driver_module
from abele.kernels.code.memory import stored_type
from abele.kernels.code.nests import generate
from abele.kernels.nest.ir import Affine, affine
from abele.kernels.nest.loop_nest import ElementAccess, LoopNest
from abele.kernels.products.epilogue import COLUMN_SHARE, ROW_SHARE
from abele.kernels.products.schedule import Epilogue, ProductSchedule, ShareProduct
from abele.kernels.routines.blocking import Kept
from abele.kernels.routines.packed import ROUTINE
from abele.kernels.schedule.pack_panels import Panel
from abele.kernels.schedule.schedule import NestSchedule
from abele.llvm import ir as ll
from abele.llvm.emit import F32, I8, I32, I64, POINTER, VOID
from abele.llvm.jit import ModuleSource, Native, compile_all

# LLVM code of matrix products: for every share a call of the routine that multiplies, then one of its epilogue.
#
# Routines and epilogues are called through pointers, the function's last arguments, so that the code of equal products
# is the same in every process.

Value = Any


def product_function(schedule: ProductSchedule, epilogues: Sequence[Epilogue], nest: LoopNest, name: str) -> ll.Module:
    """A module with the function ``name`` over the shares of a product.

    Its arguments are the nest's arrays, scratch memory, the nest's integers, the routine, its places, and the functions
    of ``epilogues``, which take the arrays, the sums of a share, and the integers.
    """
    writer = _ProductWriter(name, schedule, nest)
    before = writer.set_threads(_i32(1)) if schedule.library is not None else None
    with writer.loop(writer.begin, writer.end) as unit:
        writer.share_of(unit, epilogues)
    if before is not None:
        writer.set_threads(before)
    return writer.finish()


@dataclass(frozen=True)
class _ShareValues:
    """Values of the share at hand: its number, that along each dim, its extents, and whether it is the last."""

    unit: Value
    indices: Mapping[str, Value]
    extents: tuple[Value, Value]
    is_last: tuple[Value | None, Value | None]


class _ProductWriter(DriverWriter):
    """A product's function while it is written."""

    def __init__(self, name: str, schedule: ProductSchedule, nest: LoopNest) -> None:
        super().__init__(name)
        self.schedule, self.product = schedule, schedule.product
        arrays, integers = range(nest.num_arrays), range(nest.num_arrays + 1, nest.num_arrays + 1 + nest.num_integers)
        self.callees = integers.stop
        self.scratch = self._argument(nest.num_arrays)
        self.tile = self._moved(self.entry, self.scratch, _i64(schedule.tile_offset))
        handed = [*map(self._argument, arrays), self.tile, *map(self._argument, integers)]
        self.array = self.entry.alloca(POINTER, _i64(len(handed)))
        for number, pointer in enumerate(handed):
            self.entry.store(pointer, self.entry.gep(self.array, [_i64(number)], source_etype=POINTER))

    def _argument(self, number: int) -> Value:
        place = self.entry.gep(self.args, [_i64(number)], source_etype=POINTER)
        return self.entry.load(place, typ=POINTER)

    def share_of(self, unit: Value, epilogues: Sequence[Epilogue]) -> None:
        """Multiply share ``unit``, and run the epilogue of its sums."""
        share = self._decoded(unit)
        self._multiply(share)
        for number, epilogue in enumerate(epilogues):
            self._finish_share(share, epilogue, self.callees + 2 + number)

    def _decoded(self, unit: Value) -> _ShareValues:
        """Batch slowest; rows or columns, whichever are kept, so that shares after each other have them in common."""
        b, schedule = self.builder, self.schedule
        m, n, _ = self.product.shape
        indices: dict[str, Value] = {}
        number = unit
        cuts = [(COLUMN_SHARE, schedule.parts[1]), (ROW_SHARE, schedule.parts[0])]
        cuts = cuts[::-1] if schedule.kept == Kept.ROWS else cuts
        for dim, count in reversed([*self.product.batch, *cuts]):
            indices[dim] = b.urem(unit, _i64(count))
            unit = b.udiv(unit, _i64(count))
        extents, lasts = [], []
        for dim, extent, size in ((ROW_SHARE, m, schedule.rows), (COLUMN_SHARE, n, schedule.columns)):
            whole, rest = divmod(extent, size)
            last = b.icmp_signed("==", indices[dim], _i64(whole)) if rest else None
            lasts.append(last)
            extents.append(_i64(size) if last is None else b.select(last, _i64(rest), _i64(size)))
        return _ShareValues(number, indices, (extents[0], extents[1]), (lasts[0], lasts[1]))

    def _multiply(self, share: _ShareValues) -> None:
        """Multiply the share, and add that on if something is there already."""
        b, product, schedule = self.builder, self.product, self.schedule
        row = b.mul(share.indices[ROW_SHARE], _i64(schedule.rows))
        column = b.mul(share.indices[COLUMN_SHARE], _i64(schedule.columns))
        adds = product.adds and schedule.is_direct
        if product.result is not None and schedule.is_direct:
            target = self._element(product.result, share.indices)
        else:
            # The routine counts from the product's first row and column.
            before = b.add(b.mul(row, _i64(schedule.columns)), column)
            target = b.gep(self.tile, [b.neg(before)], source_etype=F32)
        if schedule.library is not None:
            self._call_library(schedule.library, share, (row, column), target)
            return
        # What shares after each other have in common is packed already, but for the first of a thread.
        fastest = COLUMN_SHARE if schedule.kept == Kept.ROWS else ROW_SHARE
        is_first = b.icmp_signed("==", share.indices[fastest], _i64(0))
        again = b.and_(b.not_(is_first), b.icmp_signed("!=", share.unit, self.begin))
        held = b.zext(again, I64) if schedule.kept else _i64(0)
        factors = [self._element(operand, share.indices) for operand in (product.left, product.right)]
        rows, columns = share.extents
        places = self.slot(self.callees + 1)
        args = [places, row, rows, column, columns, *factors, target, _i64(int(adds)), held, self.scratch]
        b.call(self._routine(self.callees, ROUTINE), args)

    def set_threads(self, count: Value) -> Value:
        """Set the library's number of threads in this one; gives the number before."""
        return self.builder.call(self._routine(self.callees + 1, ll.FunctionType(I32, [I32])), [count])

    def _call_library(self, call: ShareProduct, share: _ShareValues, start: tuple[Value, Value], target: Value) -> None:
        """Multiply a share by ``sgemm_``, whose matrices are ours turned: C' = B'·A'."""
        b, product = self.builder, self.product
        row, column = start
        left, right = (self._element(operand, share.indices) for operand in (product.left, product.right))
        left = self._further(left, row, 1 if call.left.is_turned else call.left.stride)
        right = self._further(right, column, call.right.stride if call.right.is_turned else 1)
        target = self._further(self._further(target, row, call.result), column, 1)
        rows, columns = (b.trunc(extent, I32) for extent in share.extents)
        letters = [ll.Constant(I8, ord("T" if m.is_turned else "N")) for m in (call.right, call.left)]
        strides = [_i32(n) for n in (call.right.stride, call.left.stride, call.result)]
        adds = float(product.adds and self.schedule.is_direct)
        values = [*letters, columns, rows, _i32(product.shape[2]), ll.Constant(F32, 1.0)]
        args = [*map(self._referred, values), right, self._referred(strides[0]), left, self._referred(strides[1])]
        args += [self._referred(ll.Constant(F32, adds)), target, self._referred(strides[2])]
        b.call(self._routine(self.callees, ll.FunctionType(VOID, [POINTER] * len(args))), args)

    def _further(self, pointer: Value, index: Value, stride: int) -> Value:
        return self.builder.gep(pointer, [self.builder.mul(index, _i64(stride))], source_etype=F32)

    def _referred(self, value: Value) -> Value:
        """A place on the stack that holds ``value``: Fortran takes every argument by reference."""
        place = self.entry.alloca(value.type)
        self.builder.store(value, place)
        return place

    def _element(self, access: ElementAccess, indices: Mapping[str, Value]) -> Value:
        """Address of the element of ``access`` at row and column 0."""
        own = (*self.product.rows, *self.product.columns, *self.product.summed)
        index = self._value(access.address.substitute(dict.fromkeys(own, affine())), indices)
        return self.builder.gep(self.slot(access.array), [index], source_etype=stored_type(access.type))

    def _value(self, position: Affine, indices: Mapping[str, Value]) -> Value:
        total: Value = _i64(position.const)
        for dim, factor in position.terms:
            total = self.builder.add(total, self.builder.mul(indices[dim], _i64(factor)))
        return total

    def _finish_share(self, share: _ShareValues, epilogue: Epilogue, slot: int) -> None:
        """Call the epilogue of shares like this, if it is that of ``share``."""
        b = self.builder
        conditions = []
        for last, wanted in zip(share.is_last, (epilogue.last_rows, epilogue.last_columns), strict=True):
            if last is not None:
                conditions.append(last if wanted else b.not_(last))
        unit: Value = _i64(0)
        for dim in epilogue.nest.unit:
            unit = b.add(b.mul(unit, _i64(epilogue.nest.extents[dim])), share.indices.get(dim, _i64(0)))
        condition: Value = None
        for part in conditions:
            condition = part if condition is None else b.and_(condition, part)

        def run() -> None:
            args = [unit, self.builder.add(unit, _i64(1)), self.array]
            self.builder.call(self._routine(slot, self.kind), args)

        if condition is None:
            run()
        else:
            self.when(condition, run)

    def _routine(self, slot: int, kind: Any) -> Value:
        number = self.builder.ptrtoint(self.slot(slot), I64)
        return self.builder.inttoptr(number, kind.as_pointer())

    def _moved(self, builder: ll.IRBuilder, base: Value, bytes_: Value) -> Value:
        return builder.gep(base, [bytes_], source_etype=I8)


def _i32(value: int) -> Value:
    return ll.Constant(I32, value)


def _i64(value: int) -> Value:
    return ll.Constant(I64, value)


CODE_VERSION = 38
"""Part of every cache key; raised when the code of an equal nest and schedule changes."""
LLVM_SPEED = 1
"""Optimisation level: loops are tiled, vectorised and unrolled here already, so more takes longer and gains nothing."""
DRIVER_SPEED = 0
"""Optimisation level of drivers: they are many, run a few times a leaf, and take longer to optimise than to run."""

_NAME = "kernel"
"""Name of the function of every module."""


def nest_source(nest: LoopNest, schedule: NestSchedule, panel: Panel | None = None) -> ModuleSource:
    """The module of ``nest``.

    With a panel, ``nest`` reads the copy, and the function's last argument is memory of the thread's own for it.
    """
    content = f"nest {CODE_VERSION}\n{nest}\n{nest.num_arrays} {nest.unit}\n{schedule}\n{schedule!r}"
    if panel is not None:
        content += f"\n{panel}"
    return ModuleSource(content, lambda: generate(nest, schedule, _NAME, panel), LLVM_SPEED)


def driver_source(driver: Driver, *, timed: bool = False) -> ModuleSource:
    """The module of a driver."""
    content = f"driver {CODE_VERSION} {'timed ' * timed}{driver!r}"
    return ModuleSource(content, lambda: driver_module(driver, _NAME, timed=timed), DRIVER_SPEED)


def product_source(schedule: ProductSchedule, epilogues: Sequence[Epilogue], nest: LoopNest) -> ModuleSource:
    """The module of the product that ``nest`` is."""
    nests = [(str(e.nest), e.last_rows, e.last_columns) for e in epilogues]
    content = f"product {CODE_VERSION}\n{schedule!r}\n{nests}\n{nest.num_arrays} {nest.num_integers}"
    return ModuleSource(content, lambda: product_function(schedule, epilogues, nest, _NAME), LLVM_SPEED)


def build_all(sources: Sequence[ModuleSource], *, beside: Sequence[ModuleSource] = ()) -> list[tuple[Native, int]]:
    """Native code of modules, and the addresses of their functions.

    Args:
        sources: The modules.
        beside: Modules that will be asked for next, to be compiled at the same time.
    """
    # All have one name, so that nests whose code is equal to the letter share it; each module is a library of its own.
    return [(native, native.address(_NAME)) for native in compile_all([*beside, *sources])[len(beside) :]]
