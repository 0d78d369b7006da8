"""Reading expressions: from Python syntax to typed values."""

from __future__ import annotations

import ast
import keyword
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from abele.codelet.functions import FLOAT_FUNCTIONS, Function
from abele.codelet.problem import Origin
from abele.codelet.rules import cast, common_type, computed, converts, fold, is_weak
from abele.codelet.scope import MISSING, FieldRef, Method, Scope, Self, meaning
from abele.codelet.tree import Binary, Choice, Compare, Const, Element, Expr, Length, Logic, Math, Scalar, Unary
from abele.codelet.vertex import CodeletDef
from abele.errors import CodeletError, VectorSizeError, nearest
from abele.numerics import ElementType, bool_, f32, i64

_BINARY: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.Div: ("div", operator.truediv),
    ast.FloorDiv: ("floordiv", operator.floordiv),
    ast.Mod: ("mod", operator.mod),
    ast.Pow: ("pow", operator.pow),
    ast.BitAnd: ("and", operator.and_),
    ast.BitOr: ("or", operator.or_),
    ast.BitXor: ("xor", operator.xor),
    ast.LShift: ("shl", operator.lshift),
    ast.RShift: ("shr", operator.rshift),
}
_COMPARE: dict[type, str] = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_BITS = ("and", "or", "xor", "shl", "shr")
_LARGEST_POWER = 16


@dataclass
class Expressions:
    """Reads the expressions of one function.

    Attributes:
        definition: The codelet.
        origin: The function, for messages.
        scope: What its names mean.
    """

    definition: CodeletDef
    origin: Origin
    scope: Scope

    def value(self, node: ast.expr) -> Expr:
        """The value that ``node`` stands for."""
        found = self.resolve(node)
        if isinstance(found, Expr):
            return computed(found)
        if isinstance(found, bool | int | float):
            type_ = bool_ if isinstance(found, bool) else (i64 if isinstance(found, int) else f32)
            return Const(type=type_, value=found, weak=type_ != bool_, line=node.lineno)
        raise self.origin.problem(node, f"{_kind(found)} is used as a value", _value_hint(found))

    def condition(self, node: ast.expr) -> Expr:
        """The bool that ``node`` stands for."""
        value = self.value(node)
        if value.type == bool_:
            return value
        if isinstance(value, Const):
            return Const(type=bool_, value=bool(value.value), line=node.lineno)
        zero = Const(type=value.type, value=fold(0, value.type), line=node.lineno)
        return Compare(op="!=", left=value, right=zero, line=node.lineno)

    def index(self, node: ast.expr) -> Expr:
        """The integer that ``node`` stands for, as i64."""
        value = self.value(node)
        if value.type.is_float:
            raise self.origin.problem(node, f"a {value.type} is used as an index", "convert it: i32(…)")
        return cast(value, i64)

    def resolve(self, node: ast.expr) -> Any:
        """What ``node`` stands for: an Expr, a plain number, a field, a type, a function or a module."""
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return number
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.BinOp():
                return self._binary(node)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.Compare():
                return self._compare(node)
            case ast.BoolOp():
                return self._logic(node)
            case ast.IfExp():
                return self._choice(node)
            case ast.Call():
                return self.call(node)
        raise self._outside(node)

    def call(self, node: ast.Call) -> Any:
        """What a call stands for."""
        raise NotImplementedError

    def _outside(self, node: ast.AST) -> CodeletError:
        what = type(node).__name__
        hints = {
            "ListComp": "write a for loop",
            "GeneratorExp": "write a for loop",
            "Tuple": "assign one variable at a time",
            "List": "keep values in local variables, or in a state field Vector[…]",
            "Dict": "keep values in local variables",
            "Lambda": "write a function with def and call it",
            "JoinedStr": "only print may take text",
            "Constant": "the language has numbers and bools",
            "NamedExpr": "assign in a statement of its own",
        }
        text = repr(node.value) if isinstance(node, ast.Constant) else what
        return self.origin.problem(
            node, f"{text} is outside the vertex language", hints.get(what, "see docs/codelets.md")
        )

    def _name(self, node: ast.Name) -> Any:
        name, scope = node.id, self.scope
        if name in scope.known:
            return scope.known[name]
        if name in scope.types:
            if name not in scope.defined:
                raise self.origin.problem(
                    node,
                    f"{name} may have no value here; it is set only on some paths (line {scope.lines[name]})",
                    f"set {name} before the branch or loop",
                )
            return scope.local(name, node.lineno)
        found = scope.outer(name)
        if found is MISSING or name in locals_of_function(scope.function):
            guess = nearest(name, [*scope.types, *scope.known, *FLOAT_FUNCTIONS])
            hint = f"did you mean {guess}?" if guess else "set it before it is read"
            raise self.origin.problem(node, f"name {name!r} is not defined", hint)
        known = meaning(found)
        if known is MISSING:
            raise self.origin.problem(
                node,
                f"{name} is a {type(found).__name__}, which the vertex language does not know",
                "close over numbers, element types and plain functions; wire data to a field",
            )
        return known

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = self.resolve(node.value)
        if isinstance(owner, Self):
            return self._member(node)
        if isinstance(owner, ModuleType):
            found = meaning(getattr(owner, node.attr, MISSING))
            if found is not MISSING:
                return found
            raise self.origin.problem(
                node, f"{owner.__name__}.{node.attr} is not known", "see docs/codelets.md for the functions that are"
            )
        if isinstance(owner, FieldRef) and node.attr == "size":
            return self.length(owner, node)
        raise self.origin.problem(node, f"{_kind(owner)} has no attribute {node.attr!r} in the vertex language")

    def _member(self, node: ast.Attribute) -> Any:
        fields_by_name = self.definition.field_by_name
        field = fields_by_name.get(node.attr) or fields_by_name.get(_unreserved(node.attr))
        if field is not None:
            return FieldRef(field) if field.rank else Scalar(type=field.type, field=field, line=node.lineno)
        found = self.definition.attributes.get(node.attr, MISSING)
        if isinstance(found, FunctionType):
            return Method(found)
        if isinstance(found, staticmethod):
            return found.__func__
        known = meaning(found)
        if known is not MISSING:
            return known
        fields = ", ".join(fields_by_name)
        raise self.origin.problem(
            node,
            f"{self.definition.name} has no field {node.attr!r}",
            f"its fields are {fields}; declare it in the class",
        )

    def _subscript(self, node: ast.Subscript) -> Any:
        owner = self.resolve(node.value)
        if not isinstance(owner, FieldRef):
            raise self.origin.problem(node, f"{_kind(owner)} cannot be indexed", "only vector fields can")
        if isinstance(node.slice, ast.Slice | ast.Tuple):
            raise self.origin.problem(
                node, "a slice or a tuple as an index", "index one element at a time: x[i], rows[r][i]"
            )
        index = self.index(node.slice)
        if isinstance(index, Const) and int(index.value) < 0:
            raise self.origin.problem(
                node, f"negative index {index.value} into {owner.field.name}", "count from the end with len(…) - 1"
            )
        if owner.rank == 2:
            return FieldRef(owner.field, index)
        where = (index,) if owner.row is None else (owner.row, index)
        return Element(type=owner.field.type, field=owner.field, index=where, line=node.lineno)

    def length(self, owner: FieldRef, node: ast.expr) -> Expr:
        """Number of elements (or rows) of a vector field."""
        if owner.rank == 0:
            raise self.origin.problem(node, f"{owner.field.name} has no length")
        described = owner.field.layout(0 if owner.row is None else 1)
        if not described.has_size:
            raise self.origin.problem(
                node,
                f"{owner.field.name} is a {described} vector, which does not carry its size",
                "pass the size as a state field, or use SPAN or SHORT_SPAN",
                VectorSizeError,
            )
        return Length(field=owner.field, row=owner.row, line=node.lineno)

    def _binary(self, node: ast.BinOp) -> Expr:
        return self.binary(node, type(node.op), self.value(node.left), self.value(node.right), node.left, node.right)

    def binary(
        self, node: ast.AST, operation: type, left: Expr, right: Expr, left_node: ast.expr, right_node: ast.expr
    ) -> Expr:
        """An arithmetic operation; an f32 product that is added or subtracted is fused with that."""
        if operation not in _BINARY:
            raise self.origin.problem(node, f"operator {operation.__name__} is outside the vertex language")
        name, plain = _BINARY[operation]
        line = getattr(node, "lineno", 0)
        if is_weak(left) and is_weak(right):
            return self._folded(node, plain, left, right)
        if name == "pow":
            return self._power(node, left, right)
        if left.type == bool_ and right.type == bool_ and name in ("and", "or", "xor"):
            return Binary(type=bool_, op=name, left=left, right=right, line=line)
        type_ = common_type(left, right)
        if name in _BITS and type_.is_float:
            raise self.origin.problem(
                node, f"bit operation on {left.type} and {right.type}", "convert to an integer first"
            )
        if name == "div" and not type_.is_float:
            type_ = f32
        if name in ("floordiv", "mod") and type_.is_float:
            raise self.origin.problem(node, f"// and % of {type_}", "use floor(x / y), or convert to integers")
        left, right = cast(left, type_), cast(right, type_)
        if name == "div" and isinstance(right, Const) and math.frexp(right.value)[0] in (0.5, -0.5):
            inverse = Const(type=type_, value=fold(1 / right.value, type_), line=line)
            if 1 / float(inverse.value) == right.value:  # exact, and a product is cheaper
                return Binary(type=type_, op="mul", left=left, right=inverse, line=line)
        if type_ == f32 and name in ("add", "sub"):
            fused = _fused(name, left, right, left_node, right_node, line)
            if fused is not None:
                return fused
        return Binary(type=type_, op=name, left=left, right=right, line=line)

    def _folded(self, node: ast.AST, plain: Callable[[Any, Any], Any], left: Expr, right: Expr) -> Expr:
        assert isinstance(left, Const)
        assert isinstance(right, Const)
        if plain is operator.truediv and right.value == 0:
            number: Any = float("nan") if left.value == 0 else float("inf") * (1 if left.value > 0 else -1)
        else:
            try:
                number = plain(left.value, right.value)
            except (ArithmeticError, ValueError, TypeError) as error:
                raise self.origin.problem(node, f"constant expression: {error}") from error
        type_ = f32 if isinstance(number, float) else i64
        return Const(type=type_, value=number, weak=True, line=getattr(node, "lineno", 0))

    def _power(self, node: ast.AST, base: Expr, power: Expr) -> Expr:
        line = getattr(node, "lineno", 0)
        whole = isinstance(power, Const) and float(power.value).is_integer() and abs(power.value) <= _LARGEST_POWER
        if isinstance(power, Const) and whole and (power.value >= 0 or base.type.is_float):
            product = _product(base, abs(int(power.value)), line)
            if power.value >= 0:
                return product
            one = cast(Const(type=f32, value=1.0), base.type)
            return Binary(type=base.type, op="div", left=one, right=product, line=line)
        if not (base.type.is_float or power.type.is_float):
            raise self.origin.problem(
                node,
                "an integer to a power that is not a small constant",
                f"write a constant from 0 to {_LARGEST_POWER}",
            )
        if isinstance(power, Const) and power.value == 0.5:
            return Math(type=base.type, function="sqrt", args=(base,), line=line)
        type_ = common_type(base, power)
        return Math(type=type_, function="pow", args=(cast(base, type_), cast(power, type_)), line=line)

    def _unary(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            arg = self.condition(node.operand)
            if isinstance(arg, Const):
                return not arg.value
            return Unary(type=bool_, op="not", arg=arg, line=node.lineno)
        arg = self.value(node.operand)
        if isinstance(node.op, ast.UAdd):
            return arg
        if isinstance(arg, Const) and isinstance(node.op, ast.USub) and arg.type != bool_:
            return Const(type=arg.type, value=fold(-arg.value, arg.type), weak=arg.weak, line=node.lineno)
        if isinstance(node.op, ast.Invert):
            if arg.type.is_float or arg.type == bool_:
                raise self.origin.problem(node, f"~ of {arg.type}", "write not for bools; ~ inverts integers")
            return Unary(type=arg.type, op="invert", arg=arg, line=node.lineno)
        if arg.type == bool_:
            arg = cast(arg, i64)
        return Unary(type=arg.type, op="neg", arg=arg, line=node.lineno)

    def _compare(self, node: ast.Compare) -> Expr:
        values = [self.value(v) for v in (node.left, *node.comparators)]
        result: Expr | None = None
        for sign, left, right in zip(node.ops, values, values[1:], strict=False):
            if type(sign) not in _COMPARE:
                raise self.origin.problem(
                    node, f"{type(sign).__name__} is outside the vertex language", "compare numbers"
                )
            one = self._comparison(node, _COMPARE[type(sign)], left, right)
            result = one if result is None else Logic(op="and", left=result, right=one, line=node.lineno)
        assert result is not None
        return result

    @staticmethod
    def _comparison(node: ast.AST, sign: str, left: Expr, right: Expr) -> Expr:
        line = getattr(node, "lineno", 0)
        if left.type == bool_ and right.type == bool_:
            return Compare(op=sign, left=left, right=right, line=line)
        type_ = common_type(left, right)
        return Compare(op=sign, left=cast(left, type_), right=cast(right, type_), line=line)

    def _logic(self, node: ast.BoolOp) -> Expr:
        op = "and" if isinstance(node.op, ast.And) else "or"
        result, *rest = (self.condition(v) for v in node.values)
        for value in rest:
            result = Logic(op=op, left=result, right=value, line=node.lineno)
        return result

    def _choice(self, node: ast.IfExp) -> Any:
        condition = self.condition(node.test)
        if isinstance(condition, Const):
            return self.value(node.body if condition.value else node.orelse)
        then, otherwise = self.value(node.body), self.value(node.orelse)
        if then.type == bool_ and otherwise.type == bool_:
            type_ = bool_
        elif is_weak(then) and is_weak(otherwise):
            type_ = f32 if f32 in (then.type, otherwise.type) else i64
        else:
            type_ = common_type(then, otherwise)
        then, otherwise = cast(then, type_), cast(otherwise, type_)
        return Choice(type=type_, condition=condition, then=then, otherwise=otherwise, line=node.lineno)

    def converted(self, node: ast.AST, value: Expr, wanted: ElementType, target: str, *, narrowing: bool) -> Expr:
        """``value`` as ``wanted``, the type of ``target``; an error where that is not done without being asked for."""
        if converts(value, wanted, narrowing=narrowing):
            return cast(value, wanted)
        how = "write x != 0" if wanted == bool_ else f"convert it: {wanted}(…)"
        raise self.origin.problem(node, f"{target} is {wanted}, the value is {value.type}", how)


def _fused(name: str, left: Expr, right: Expr, left_node: ast.expr, right_node: ast.expr, line: int) -> Expr | None:
    """The fused form of ``left ± right`` when one of them is written as a product: the left one, if both are."""
    if _is_product(left, left_node):
        assert isinstance(left, Binary)
        addend = right if name == "add" else _negated(right)
        return Math(type=f32, function="fma", args=(left.left, left.right, addend), line=line)
    if _is_product(right, right_node):
        assert isinstance(right, Binary)
        factor = right.left if name == "add" else _negated(right.left)
        return Math(type=f32, function="fma", args=(factor, right.right, left), line=line)
    return None


def _is_product(value: Expr, node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(value, Binary) and value.op == "mul" and value.type == f32


def _negated(value: Expr) -> Expr:
    if isinstance(value, Const):
        return Const(type=value.type, value=-value.value, line=value.line)
    return Unary(type=value.type, op="neg", arg=value, line=value.line)


def _product(base: Expr, power: int, line: int) -> Expr:
    """``base`` multiplied ``power`` times, by squaring."""
    if power == 0:
        return cast(Const(type=i64, value=1, line=line), base.type)
    if power == 1:
        return base
    half = _product(base, power // 2, line)
    squared = Binary(type=base.type, op="mul", left=half, right=half, line=line)
    return Binary(type=base.type, op="mul", left=squared, right=base, line=line) if power % 2 else squared


def locals_of_function(function: FunctionType) -> frozenset[str]:
    """Names that the function binds, as Python sees it."""
    return frozenset(function.__code__.co_varnames)


def _unreserved(attribute: str) -> str:
    """The field that an attribute ``in_`` stands for: one whose name Python reserves, ``in``."""
    bare = attribute.removesuffix("_")
    return bare if keyword.iskeyword(bare) else attribute


def _kind(found: Any) -> str:
    if isinstance(found, FieldRef):
        return f"{'row of ' if found.row is not None else ''}vector field {found.field.name}"
    if isinstance(found, ElementType):
        return f"type {found}"
    if isinstance(found, Function):
        return f"function {found.name}"
    if isinstance(found, FunctionType | Method):
        return "a function"
    if isinstance(found, Self):
        return "self"
    return f"module {found.__name__}" if isinstance(found, ModuleType) else type(found).__name__


def _value_hint(found: Any) -> str | None:
    if isinstance(found, FieldRef):
        return f"index it: {found.field.name}[i]"
    return "call it" if isinstance(found, Function | FunctionType | Method | ElementType) else None
