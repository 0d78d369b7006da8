"""Reading expressions: from Python syntax to typed values."""

from __future__ import annotations

import ast
import keyword
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from abele.codelet import construct
from abele.codelet.construct import RuleError
from abele.codelet.functions import VertexFunction
from abele.codelet.rules import cast, computed, converts
from abele.codelet.scope import (
    MISSING,
    NameScope,
    Self,
    VertexMethod,
    WholeField,
    Written,
    is_setting,
    meaning,
    setting_parts,
)
from abele.codelet.tree import ConstExpr, Element, Length, Scalar, VertexExpr
from abele.codelet.vertex import CodeletDef
from abele.errors import CodeletError, VectorSizeError, nearest
from abele.expr import FUNCTIONS
from abele.numerics import ElementType, bool_, i64

# Errors about a line of a codelet.


@dataclass(frozen=True)
class Origin:
    """The function that is being read, for messages.

    Attributes:
        codelet: Name of the vertex class.
        file: Source file of the function.
        function: Name of the function.
    """

    codelet: str
    file: str
    function: str

    def problem(
        self, node: ast.AST, message: str, remedy: str | None = None, kind: type[CodeletError] = CodeletError
    ) -> CodeletError:
        """The error that says ``message`` about ``node``."""
        line = getattr(node, "lineno", 0)
        text = ast.unparse(node).splitlines()[0] if isinstance(node, ast.AST) else ""
        return kind(
            f"{self.codelet}.{self.function}: {message}"
            if self.function == "compute"
            else f"{self.codelet}, in {self.function}(): {message}",
            at=f"{self.file}:{line}",
            because=f"in {text[:100]}" if text else None,
            remedy=remedy,
        )


_BINARY: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
}
_COMPARE: dict[type, str] = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


@dataclass
class Expressions:
    """Reads the expressions of one function.

    Attributes:
        definition: The codelet.
        origin: The function, for messages.
        scope: Meanings of its names.
    """

    definition: CodeletDef
    origin: Origin
    scope: NameScope

    def value(self, node: ast.expr) -> VertexExpr:
        """Value of ``node``."""
        return self._valued(self.resolve(node), node)

    def _valued(self, found: Any, node: ast.expr) -> VertexExpr:
        """Value that ``node`` denotes."""
        if isinstance(found, VertexExpr):
            return computed(found)
        if isinstance(found, bool | int | float):
            return construct.number(found, node.lineno)
        if isinstance(node, ast.Constant):
            raise self._outside(node)
        if _is_fixed(found) and not isinstance(found, ElementType):
            what = f"{ast.unparse(node)} is a {type(found).__name__}, which is no value"
            raise self.origin.problem(node, what, "close over numbers; settings may be compared, and have parts")
        raise self.origin.problem(node, f"{_kind(found)} is used as a value", _value_hint(found))

    def condition(self, node: ast.expr) -> VertexExpr:
        """Bool of ``node``."""
        return construct.truth(self.value(node), node.lineno)

    def index(self, node: ast.expr) -> VertexExpr:
        """Integer of ``node``, as i64."""
        value = self.value(node)
        if value.type.is_float:
            raise self.origin.problem(node, f"a {value.type} is used as an index", "convert it: i32(…)")
        return cast(value, i64)

    def resolve(self, node: ast.expr) -> Any:
        """Object that ``node`` denotes: a VertexExpr, a plain number, a field, a type, a function or a module."""
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as known):
                return known
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

    def no_room(self) -> AbstractContextManager[None]:
        """Read inside without room for statements before."""
        return nullcontext()

    def call(self, node: ast.Call) -> Any:
        """Value or object that a call denotes."""
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
            known = scope.known[name]
            return known.read(known.node) if isinstance(known, Written) else known
        if name in scope.types:
            # Python would raise only on the path taken; the tiles cannot raise, so every path must set it.
            if name not in scope.defined:
                raise self.origin.problem(
                    node,
                    f"{name} may have no value here; it is set only on some paths (line {scope.lines[name]})",
                    f"set {name} before the branch or loop",
                )
            return scope.local(name, node.lineno)
        found = scope.outer(name)
        # Python makes a name that is assigned anywhere local everywhere: a global of that name does not count.
        if found is MISSING or name in locals_of_function(scope.function):
            guess = nearest(name, [*scope.types, *scope.known, *FUNCTIONS])
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
        if isinstance(owner, WholeField) and node.attr == "size":
            return self.length(owner, node)
        if isinstance(owner, ElementType) and hasattr(owner, node.attr):
            return meaning(getattr(owner, node.attr))
        if _is_fixed(owner):
            return self._of_setting(owner, node)
        raise self.origin.problem(node, f"{_kind(owner)} has no attribute {node.attr!r} in the vertex language")

    def _of_setting(self, owner: Any, node: ast.Attribute) -> Any:
        """A field of a setting, or a member of an enumeration."""
        parts = setting_parts(owner)
        found = meaning(parts.get(node.attr, MISSING))
        if found is MISSING:
            shown = ", ".join(n for n, part in parts.items() if meaning(part) is not MISSING)
            raise self.origin.problem(
                node,
                f"{_kind(owner)} has no {node.attr} that code can be made by",
                f"it has {shown}" if shown else None,
            )
        return found

    def _member(self, node: ast.Attribute) -> Any:
        fields_by_name = self.definition.field_by_name
        field = fields_by_name.get(node.attr) or fields_by_name.get(_unreserved(node.attr))
        if field is not None:
            return WholeField(field) if field.rank else Scalar(type=field.type, field=field, line=node.lineno)
        found = self.definition.attributes.get(node.attr, MISSING)
        if isinstance(found, FunctionType):
            return VertexMethod(found)
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
        if not isinstance(owner, WholeField):
            raise self.origin.problem(node, f"{_kind(owner)} cannot be indexed", "only vector fields can")
        if isinstance(node.slice, ast.Slice | ast.Tuple):
            raise self.origin.problem(
                node, "a slice or a tuple as an index", "index one element at a time: x[i], rows[r][i]"
            )
        index = self.index(node.slice)
        if isinstance(index, ConstExpr) and int(index.value) < 0:
            raise self.origin.problem(
                node, f"negative index {index.value} into {owner.field.name}", "count from the end with len(…) - 1"
            )
        if owner.rank == 2:
            return WholeField(owner.field, index)
        where = (index,) if owner.row is None else (owner.row, index)
        return Element(type=owner.field.type, field=owner.field, index=where, line=node.lineno)

    def length(self, owner: WholeField, node: ast.expr) -> VertexExpr:
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

    def _binary(self, node: ast.BinOp) -> VertexExpr:
        return self.binary(node, type(node.op), self.value(node.left), self.value(node.right), node.left, node.right)

    def binary(
        self,
        node: ast.AST,
        operation: type,
        left: VertexExpr,
        right: VertexExpr,
        left_node: ast.expr,
        right_node: ast.expr,
    ) -> VertexExpr:
        """An arithmetic operation; an f32 product that is added or subtracted is fused with that."""
        if operation not in _BINARY:
            raise self.origin.problem(node, f"operator {operation.__name__} is outside the vertex language")
        products = self._is_operation(left_node), self._is_operation(right_node)
        try:
            return construct.infix(_BINARY[operation], left, right, getattr(node, "lineno", 0), products)
        except RuleError as error:
            raise self.origin.problem(node, error.message, error.remedy) from error

    def _is_operation(self, node: ast.expr) -> bool:
        """True if an operation is written here, in a macro's argument too."""
        known = self.scope.known.get(node.id) if isinstance(node, ast.Name) else None
        return isinstance(known.node if isinstance(known, Written) else node, ast.BinOp)

    def _unary(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            arg = self.condition(node.operand)
            return not arg.value if isinstance(arg, ConstExpr) else construct.inverted(arg, node.lineno)
        arg = self.value(node.operand)
        if isinstance(node.op, ast.UAdd):
            return arg
        if isinstance(node.op, ast.USub):
            return construct.negative(arg, node.lineno)
        try:
            return construct.bits_inverted(arg, node.lineno)
        except RuleError as error:
            raise self.origin.problem(node, error.message, error.remedy) from error

    def _compare(self, node: ast.Compare) -> Any:
        nodes = (node.left, *node.comparators)
        sides = [self.resolve(v) for v in nodes]
        if any(_is_fixed(s) for s in sides):
            return self._same(node, sides)
        values = [self._valued(s, v) for s, v in zip(sides, nodes, strict=True)]
        found = []
        for sign, left, right in zip(node.ops, values, values[1:], strict=False):
            if type(sign) not in _COMPARE:
                raise self.origin.problem(
                    node, f"{type(sign).__name__} is outside the vertex language", "compare numbers"
                )
            found.append(construct.comparison(_COMPARE[type(sign)], left, right, node.lineno))
        return construct.logic("and", found, node.lineno)

    def _same(self, node: ast.Compare, sides: list[Any]) -> bool:
        """True if two settings, or element types, are the same: known where the code is made."""
        if (
            len(sides) != 2
            or not isinstance(node.ops[0], ast.Eq | ast.NotEq)
            or any(isinstance(s, VertexExpr) for s in sides)
        ):
            raise self.origin.problem(node, "settings are compared otherwise than two by == or !=")
        return bool(sides[0] == sides[1]) == isinstance(node.ops[0], ast.Eq)

    def _logic(self, node: ast.BoolOp) -> Any:
        """``and`` or ``or``; a side that is known where the code is made decides there whether others are read."""
        op = "and" if isinstance(node.op, ast.And) else "or"
        values: list[VertexExpr] = []
        for side in node.values:
            # A later side is evaluated only where the earlier ones do not decide, so a macro's statements have no place
            # before it.
            with self.no_room() if values else nullcontext():
                condition = self.condition(side)
            if not isinstance(condition, ConstExpr):
                values.append(condition)
            elif bool(condition.value) == (op == "or"):
                return construct.logic(op, [*values, condition], node.lineno) if values else bool(condition.value)
        return construct.logic(op, values, node.lineno) if values else op == "and"

    def _choice(self, node: ast.IfExp) -> Any:
        condition = self.condition(node.test)
        if isinstance(condition, ConstExpr):
            return self.value(node.body if condition.value else node.orelse)
        with self.no_room():
            return construct.choice(condition, self.value(node.body), self.value(node.orelse), node.lineno)

    def converted(
        self, node: ast.AST, value: VertexExpr, wanted: ElementType, target: str, *, narrowing: bool
    ) -> VertexExpr:
        """``value`` as ``wanted``, the type of ``target``; an error where that needs an explicit conversion."""
        if converts(value, wanted, narrowing=narrowing):
            return cast(value, wanted)
        how = "write x != 0" if wanted == bool_ else f"convert it: {wanted}(…)"
        raise self.origin.problem(node, f"{target} is {wanted}, the value is {value.type}", how)


def locals_of_function(function: FunctionType) -> frozenset[str]:
    """Names that the function binds, as Python sees it."""
    return frozenset(function.__code__.co_varnames)


def _is_fixed(found: Any) -> bool:
    """True if a resolved object is a setting or an element type, by which code is made."""
    return is_setting(found) and not isinstance(found, WholeField | Self | VertexMethod | VertexFunction)


def _unreserved(attribute: str) -> str:
    """Field of an attribute ``in_``: one whose name Python reserves, ``in``."""
    bare = attribute.removesuffix("_")
    return bare if keyword.iskeyword(bare) else attribute


def _kind(found: Any) -> str:
    if isinstance(found, WholeField):
        return f"{'row of ' if found.row is not None else ''}vector field {found.field.name}"
    if isinstance(found, ElementType):
        return f"type {found}"
    if isinstance(found, VertexFunction):
        return f"function {found.name}"
    if isinstance(found, FunctionType | VertexMethod):
        return "a function"
    if isinstance(found, Self):
        return "self"
    return f"module {found.__name__}" if isinstance(found, ModuleType) else type(found).__name__


def _value_hint(found: Any) -> str | None:
    if isinstance(found, WholeField):
        return f"index it: {found.field.name}[i]"
    return "call it" if isinstance(found, VertexFunction | FunctionType | VertexMethod | ElementType) else None
