"""LLVM IR while it is written: types, values, functions of blocks, and a builder that appends instructions as text.

The names are those of ``llvmlite.ir``, of which this has what Abele's generators use. An instruction is its line of
text from the start, so a module of megabytes is ready to be parsed as soon as its last instruction is written; and
pointers are opaque, equal constants of a vector are written once (``splat``), names are short.
"""

from abele.llvm.ir.builder import IRBuilder
from abele.llvm.ir.module import CodeBlock as Block
from abele.llvm.ir.module import CodeFunction as Function
from abele.llvm.ir.module import CodeModule as Module
from abele.llvm.ir.module import GlobalVariable
from abele.llvm.ir.module import NodeReference as Metadata
from abele.llvm.ir.types import (
    ArrayType,
    DoubleType,
    FloatType,
    FunctionType,
    HalfType,
    IntType,
    PointerType,
    Type,
    VectorType,
    VoidType,
)
from abele.llvm.ir.values import ArgumentValue as Argument
from abele.llvm.ir.values import CodeValue as Value
from abele.llvm.ir.values import Constant, Phi, Slot, Undefined
from abele.llvm.ir.values import InstructionValue as Instruction

__all__ = [
    "Argument",
    "ArrayType",
    "Block",
    "Constant",
    "DoubleType",
    "FloatType",
    "Function",
    "FunctionType",
    "GlobalVariable",
    "HalfType",
    "IRBuilder",
    "Instruction",
    "IntType",
    "Metadata",
    "Module",
    "Phi",
    "PointerType",
    "Slot",
    "Type",
    "Undefined",
    "Value",
    "VectorType",
    "VoidType",
]
