"""PopLibs' names of the operations of expressions: ``Add(_1, Exp(_2))``."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from abele.errors import InvalidOptionError
from abele.expr import POPOPS, find_popops
from abele.poplibs.popops.expr import Expr, Op, as_expr
from abele.words import counted

# PopLibs' enumerations of operations: of reductions, and of expressions by number of arguments.
#
# Values are our names, so that an enumerator does wherever a name does.


class Operation(StrEnum):
    """Kinds of :func:`~abele.poplibs.popops.reductions.reduce.reduce`."""

    __poplar_name__ = "popops::Operation"

    ADD = "ADD"
    MUL = "MUL"
    MIN = "MIN"
    MAX = "MAX"
    LOGICAL_AND = "LOGICAL_AND"
    LOGICAL_OR = "LOGICAL_OR"
    SQUARE_ADD = "SQUARE_ADD"
    LOG_ADD = "LOG_ADD"


class UnaryOpType(StrEnum):
    """Operations on one element."""

    __poplar_name__ = "popops::expr::UnaryOpType"

    ABSOLUTE = "abs"
    ASIN = "asin"
    BITWISE_NOT = "bitwise_not"
    CBRT = "cbrt"
    CEIL = "ceil"
    COS = "cos"
    COUNT_LEADING_ZEROS = "count_leading_zeros"
    ERF = "erf"
    EXPONENT = "exp"
    EXPONENT2 = "exp2"
    EXPONENT_MINUS_ONE = "expm1"
    FLOOR = "floor"
    GELU_ERF = "gelu_erf"
    INVERSE = "inv"
    IS_FINITE = "is_finite"
    IS_INF = "is_inf"
    IS_NAN = "is_nan"
    LOGARITHM = "log"
    LOGARITHM_ONE_PLUS = "log1p"
    LOGICAL_NOT = "logical_not"
    NEARBY_INT = "nearbyint"
    NEGATE = "neg"
    POPCOUNT = "popcount"
    RELU = "relu"
    ROUND = "round"
    RSQRT = "rsqrt"
    SIGMOID = "sigmoid"
    SIGNUM = "signum"
    SIN = "sin"
    SQRT = "sqrt"
    SQUARE = "square"
    TAN = "tan"
    TANH = "tanh"
    TRUNC = "trunc"


class BinaryOpType(StrEnum):
    """Operations on two elements."""

    __poplar_name__ = "popops::expr::BinaryOpType"

    ADD = "add"
    ATAN2 = "atan2"
    BITWISE_AND = "bitwise_and"
    BITWISE_OR = "bitwise_or"
    BITWISE_XNOR = "bitwise_xnor"
    BITWISE_XOR = "bitwise_xor"
    DIVIDE = "div"
    EQUAL = "eq"
    GREATER_THAN = "gt"
    GREATER_THAN_EQUAL = "gteq"
    INV_STD_DEV_TO_VARIANCE = "inv_std_dev_to_variance"
    LESS_THAN = "lt"
    LESS_THAN_EQUAL = "lteq"
    LOGICAL_AND = "logical_and"
    LOGICAL_OR = "logical_or"
    MAXIMUM = "max"
    MINIMUM = "min"
    MULTIPLY = "mul"
    NOT_EQUAL = "neq"
    POWER = "pow"
    REMAINDER = "rem"
    SHIFT_LEFT = "shift_left"
    SHIFT_RIGHT = "shift_right"
    SHIFT_RIGHT_SIGN_EXTEND = "shift_right_sign_extend"
    SUBTRACT = "sub"
    VARIANCE_TO_INV_STD_DEV = "variance_to_inv_std_dev"


class TernaryOpType(StrEnum):
    """Operations on three elements."""

    __poplar_name__ = "popops::expr::TernaryOpType"

    CLAMP = "clamp"
    SELECT = "select"


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
