"""The builder of LLVM code: LLVM reads what it writes, and understands by it what was meant."""

from __future__ import annotations

import ctypes
import math
import re
from pathlib import Path

import llvmlite.binding as binding
import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

import abele
from abele.llvm import ir as ll
from abele.llvm.emit import F32, F64, HALF, I1, I8, I16, I32, I64, POINTER, VOID, counted_loop
from abele.llvm.jit import compile_ir


def _function(*types: ll.Type, result: ll.Type = VOID) -> tuple[ll.Module, ll.Function, ll.IRBuilder]:
    module = ll.Module("test")
    function = ll.Function(module, ll.FunctionType(result, types), "run")
    return module, function, ll.IRBuilder(function.append_basic_block("entry"))


def test_module__loop_with_two_ways__text_and_meaning(snapshot: SnapshotAssertion) -> None:
    module, function, b = _function(POINTER, I64)
    with counted_loop(b, ll.Constant(I64, 0), function.args[1]) as index:
        place = b.gep(function.args[0], [index], source_etype=I32)
        value = b.load(place, typ=I32, align=4)
        with b.if_else(b.icmp_signed("<", value, ll.Constant(I32, 0))) as (then, otherwise):
            with then:
                b.store(b.neg(value), place, align=4)
            with otherwise:
                b.store(b.add(value, value, flags=("nsw",)), place, align=4)
    b.ret_void()
    assert str(module) == snapshot
    values = np.array([3, -4, 0, 7], np.int32)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(compile_ir(module).address("run"))
    run(values.ctypes.data, 4)
    assert values.tolist() == [6, 4, 0, 14]


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (I1, 1, "true"),
        (I32, -5, "-5"),
        (F32, 0.1, "0x3fb99999a0000000"),
        (F64, 0.1, "0x3fb999999999999a"),
        (HALF, 0.1, "0x3fb9980000000000"),
        (F32, -0.0, "0x8000000000000000"),
        (F32, math.inf, "0x7ff0000000000000"),
        (POINTER, None, "null"),
        (ll.VectorType(F32, 4), 1.0, "splat (float 0x3ff0000000000000)"),
        (ll.VectorType(I32, 2), [1, 2], "<i32 1, i32 2>"),
        (ll.VectorType(I32, 2), ll.Undefined, "undef"),
        (ll.ArrayType(I8, 3), [0, 0, 0], "[i8 0, i8 0, i8 0]"),
    ],
)
def test_constant__of_any_type__llvm_reads_it(type_: ll.Type, value: object, text: str) -> None:
    constant = ll.Constant(type_, value)
    assert constant.ref == text
    module, _, b = _function(POINTER)
    b.store(constant, b.function.args[0])
    b.ret_void()
    binding.parse_assembly(str(module)).verify()


def test_builder__every_instruction__llvm_reads_it() -> None:
    module, function, b = _function(I32, F32, ll.VectorType(F32, 4), POINTER, result=I32)
    i, x, v, p = function.args
    p.add_attribute("noalias")
    for op in ("add", "sub", "mul", "sdiv", "udiv", "srem", "urem", "and_", "or_", "xor", "shl", "lshr", "ashr"):
        i = getattr(b, op)(i, b.not_(i))
    for op in ("fadd", "fsub", "fmul", "fdiv", "frem"):
        x = getattr(b, op)(x, b.fneg(x))
    for signs, compare in (("<", b.fcmp_ordered), ("uno", b.fcmp_unordered), ("!=", b.fcmp_unordered)):
        x = b.select(compare(signs, x, x), x, x)
    for wanted in (b.trunc(i, I16), b.zext(i, I64), b.sext(i, I64), b.freeze(b.fptosi(x, I32)), b.fptoui(x, I32)):
        b.store(wanted, p)
    for wanted in (b.fptrunc(x, HALF), b.fpext(x, F64), b.sitofp(i, F32), b.uitofp(i, F32), b.bitcast(x, I32)):
        b.store(wanted, p)
    assert b.trunc(i, I32) is i
    b.store(b.inttoptr(b.ptrtoint(p, I64), POINTER), p)
    turned = b.shuffle_vector(v, v, ll.Constant(ll.VectorType(I32, 2), [3, 0]))
    b.store(b.insert_element(turned, b.extract_element(v, ll.Constant(I32, 1)), ll.Constant(I32, 0)), p)
    with b.goto_entry_block():
        slot = b.alloca(ll.ArrayType(I64, 2), align=16, name="größe")
    b.store(b.gep(p, [ll.Constant(ll.VectorType(I64, 2), [0, 8])], source_etype=I8, inbounds=True), slot)
    load = b.load(slot, typ=I32)
    b.store(load, slot).set_metadata("nontemporal", module.add_metadata([ll.Constant(I32, 1)]))
    b.fence("seq_cst")
    b.atomic_rmw("add", slot, b.load_atomic(slot, "acquire", 8, typ=I64), "seq_cst")
    load.set_metadata("note", module.add_metadata([module.add_metadata(['a "scope"'])]))
    number = ll.GlobalVariable(module, I32, "number")
    number.initializer, number.global_constant, number.linkage = ll.Constant(I32, 7), True, "internal"
    ll.GlobalVariable(module, I64, "elsewhere")
    callee = ll.Function(module, ll.FunctionType(I32, [I32]), "twice")
    address = b.inttoptr(b.ptrtoint(callee, I64), callee.function_type.as_pointer())
    with b.if_then(b.icmp_unsigned(">=", load, b.load(number, typ=I32))):
        b.ret(b.call(callee, [b.call(address, [load])]))
    b.ret(i)
    binding.parse_assembly(str(module)).verify()


def test_types__equal_text__are_equal() -> None:
    assert ll.VectorType(I32, 4) == ll.VectorType(ll.IntType(32), 4)
    assert ll.VectorType(I32, 4) != ll.VectorType(I32, 8)
    assert len({ll.PointerType(), POINTER, ll.FunctionType(VOID, []).as_pointer()}) == 1


def test_package__any_module__writes_code_by_the_builder_of_its_own() -> None:
    for path in Path(abele.__file__).parent.rglob("*.py"):
        assert not re.search(r"^from llvmlite import ir|^import llvmlite\.ir", path.read_text("utf-8"), re.M), path
