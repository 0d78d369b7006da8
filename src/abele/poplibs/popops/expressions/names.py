"""PopLibs' names of the operations of expressions: ``Add(_1, Exp(_2))``."""

from __future__ import annotations

from collections.abc import Callable

from abele.errors import InvalidOptionError
from abele.expr import POPOPS, find_popops
from abele.poplibs.popops.expr import Expr, Op, as_expr
from abele.poplibs.popops.expressions.op_types import BinaryOpType, TernaryOpType, UnaryOpType
from abele.words import counted

NAMES = {
    operation.spelling.builder: name
    for name, operation in POPOPS.items()
    if operation.spelling is not None and operation.spelling.builder
}
"""popops' name of each operation by that of its class in expressions. ``Select`` takes (then, otherwise, condition)."""


def _builder(op: str) -> Callable[..., Expr]:
    arity = find_popops(op).arity

    def build(*args: object) -> Expr:
        if len(args) != arity:
            raise InvalidOptionError(f"{op}: {counted(len(args), 'argument')}, needs {arity}")
        return Op(op, *args)

    build.__doc__ = f"The operation ``{op}`` on expressions."
    return build


globals().update({name: _builder(op) for name, op in NAMES.items()})


def UnaryOp(type: UnaryOpType, a: object) -> Expr:
    """The operation of an enumerator on an expression."""
    return Op(type.value, a)


def BinaryOp(type: BinaryOpType, a: object, b: object) -> Expr:
    """The operation of an enumerator on two expressions."""
    return Op(type.value, a, b)


def TernaryOp(type: TernaryOpType, a: object, b: object, c: object) -> Expr:
    """The operation of an enumerator on three expressions."""
    return Op(type.value, a, b, c)


Any = as_expr
"""PopLibs' holder of any expression: the expression itself."""

__all__ = [
    *NAMES,
    "Any",
    "BinaryOp",
    "BinaryOpType",
    "TernaryOp",
    "TernaryOpType",
    "UnaryOp",
    "UnaryOpType",
]


def identifier(name: str) -> str:
    """``name`` as the beginning of a class name.

    >>> identifier("layer-3.bias"), identifier("0")
    ('layer_3_bias', '_0')
    """
    word = "".join(c if c.isalnum() else "_" for c in name)
    return word if word.isidentifier() else f"_{word}"
