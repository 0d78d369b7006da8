"""PopLibs' names of the operations of expressions: ``Add(_1, Exp(_2))``."""

from __future__ import annotations

from collections.abc import Callable

from abele.errors import InvalidOptionError
from abele.poplibs.popops.expr import Expr, Op, as_expr
from abele.poplibs.popops.expressions.op_types import BinaryOpType, TernaryOpType, UnaryOpType
from abele.poplibs.popops.expressions.ops import find_op
from abele.words import counted

NAMES = {
    "Abs": "abs",
    "Asin": "asin",
    "BitwiseNot": "bitwise_not",
    "Cbrt": "cbrt",
    "Ceil": "ceil",
    "Cos": "cos",
    "CountLeadingZeros": "count_leading_zeros",
    "Erf": "erf",
    "Exp": "exp",
    "Exp2": "exp2",
    "Expm1": "expm1",
    "Floor": "floor",
    "GeluErf": "gelu_erf",
    "Hash": "hash",
    "Inv": "inv",
    "IsFinite": "is_finite",
    "IsInf": "is_inf",
    "IsNaN": "is_nan",
    "Log": "log",
    "Log1p": "log1p",
    "NearbyInt": "nearbyint",
    "Neg": "neg",
    "Not": "logical_not",
    "Popcount": "popcount",
    "Relu": "relu",
    "Round": "round",
    "Rsqrt": "rsqrt",
    "Sigmoid": "sigmoid",
    "Signum": "signum",
    "Sin": "sin",
    "Sqrt": "sqrt",
    "Square": "square",
    "Tan": "tan",
    "Tanh": "tanh",
    "Trunc": "trunc",
    "Add": "add",
    "And": "logical_and",
    "Atan2": "atan2",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXnor": "bitwise_xnor",
    "BitwiseXor": "bitwise_xor",
    "Divide": "div",
    "Equal": "eq",
    "Gt": "gt",
    "Gte": "gteq",
    "InvStdDevToVariance": "inv_std_dev_to_variance",
    "Lt": "lt",
    "Lte": "lteq",
    "Max": "max",
    "Min": "min",
    "Mul": "mul",
    "NotEqual": "neq",
    "Or": "logical_or",
    "Pow": "pow",
    "Rem": "rem",
    "Shl": "shift_left",
    "Shr": "shift_right",
    "ShrSE": "shift_right_sign_extend",
    "Sub": "sub",
    "VarianceToInvStdDev": "variance_to_inv_std_dev",
    "Clamp": "clamp",
    "Select": "select",
}
"""Our name of each operation by PopLibs' in expressions. ``Select`` takes (then, otherwise, condition)."""


def _builder(op: str) -> Callable[..., Expr]:
    arity = find_op(op).arity

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
