"""Element-wise expressions as text that reads back: ``$0 * exp($1 + 2.0)``, where ``$i`` is an element of operand i.

Operators bind as in Python, with one level for each sign and parentheses wherever two of them meet. A number is f32 if
it has a point (or is ``inf`` or ``nan``) and i32 if not, unless a type follows: ``3:u32``.
"""

from __future__ import annotations

from abele.expr import TABLE, Apply, Cast, Const, Expr, Load
from abele.network.ir.tokens import Tokens, number_text
from abele.numerics import ElementType, as_element_type, bool_, f32, i32

SIGNS = {op.symbol: name for name, op in TABLE.items() if op.symbol is not None}
"""The operation that each infix sign stands for."""


def expression_text(expression: Expr) -> str:
    """An expression over ``derivative.arg(i)`` as text."""
    match expression:
        case Load():
            return f"${expression.operand}"
        case Const():
            return _const_text(expression)
        case Cast():
            return f"{expression.type}({expression_text(expression.arg)})"
        case Apply():
            sign = TABLE[expression.op].symbol
            if sign is None:
                return f"{expression.op}({', '.join(map(expression_text, expression.args))})"
            left, right = (_operand_text(a) for a in expression.args)
            return f"{left} {sign} {right}"
    raise TypeError(f"{expression!r} is no element-wise expression")


def _operand_text(expression: Expr) -> str:
    text = expression_text(expression)
    return f"({text})" if isinstance(expression, Apply) and TABLE[expression.op].symbol is not None else text


def _const_text(const: Const) -> str:
    text = number_text(const.value)
    return text if _type_of_number(const.value) == const.type else f"{text}:{const.type}"


def _type_of_number(value: float | int | bool) -> ElementType:
    if isinstance(value, bool):
        return bool_
    return i32 if isinstance(value, int) else f32


def read_expression(tokens: Tokens) -> Expr:
    """The expression that comes next.

    Raises:
        NetworkTextError: It is none.
    """
    with tokens.nested():
        left = _read_operand(tokens)
        while tokens.peek().text in SIGNS and tokens.peek().kind == "sign":
            op = SIGNS[tokens.next().text]
            left = Apply(op, (left, _read_operand(tokens)))
        return left


def _read_operand(tokens: Tokens) -> Expr:
    token = tokens.peek()
    if token.kind == "operand":
        tokens.next()
        return Load(int(token.text[1:]), ())
    if tokens.take("("):
        inner = read_expression(tokens)
        tokens.expect(")")
        return inner
    if token.kind == "number" or token.text in ("true", "false", "inf", "nan"):
        value = tokens.number()
        dtype = tokens.element_type() if tokens.take(":") else _type_of_number(value)
        return Const(value, dtype)
    return _read_call(tokens)


def _read_call(tokens: Tokens) -> Expr:
    name = tokens.expect_kind("name", "an expression")
    tokens.expect("(")
    args = [read_expression(tokens)]
    while tokens.take(","):
        args.append(read_expression(tokens))
    tokens.expect(")")
    if name.text in TABLE and len(args) == TABLE[name.text].arity:
        return Apply(name.text, args)
    if len(args) == 1 and name.text not in TABLE:
        with tokens.explaining(name):
            return Cast(as_element_type(name.text), args[0])
    raise tokens.error(f"no element-wise operation {name.text!r} of {len(args)} operands", name)
