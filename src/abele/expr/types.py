"""Types of expressions: compute types, and the element type of results.

Arithmetic is f32 for floating-point operands of any width (widened on load, rounded once on store) and i32, u32, i64
or u64 for integers. A constant takes the type of the argument beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from abele.errors import TypeMismatchError
from abele.expr.nodes import Apply, Cast, Const, Expr, Index, Load, Random, Rounded, RowLoad
from abele.expr.operation import TABLE
from abele.numerics import ElementType, bool_, f32, i32, i64, u32, u64

_COMPUTE_TYPES = {"f32": f32, "f16": f32, "bf16": f32, "i8": i32, "i16": i32, "i32": i32, "i64": i64}
_COMPUTE_TYPES |= {"u8": u32, "u16": u32, "u32": u32, "u64": u64, "bool": bool_}


def compute_type(type_: ElementType) -> ElementType:
    """The type in which arithmetic on elements of ``type_`` is done: f32, i32, u32, i64, u64 or bool.

    8-bit floats are f32 where a kernel has loaded them; whether a library may is :func:`check_computes`' question.
    """
    return f32 if type_.is_quarter else _COMPUTE_TYPES[type_.name]


def check_computes(*types: ElementType, name: str = "") -> None:
    """Refuse element types with which libraries do not compute: the machine converts and multiplies 8-bit floats alone.

    Raises:
        TypeMismatchError: One is an 8-bit float.
    """
    for type_ in types:
        if type_.is_quarter:
            raise TypeMismatchError(
                (f"{name}: " if name else "") + f"libraries do not compute with {type_}",
                because="the machine converts 8-bit floats and multiplies matrices of them, and nothing else",
                remedy="popops.cast it to f16 or f32 first",
            )


class Typing:
    """Types of the parts of expressions over operands of ``types``, each part typed once.

    Args:
        types: Element type of each operand.
    """

    def __init__(self, types: tuple[ElementType, ...]) -> None:
        self.types = types
        # By identity, which costs nothing; each node is kept alive, so that no other takes its place in memory.
        self._known: dict[int, tuple[Expr, ElementType]] = {}

    def of(self, expression: Expr) -> ElementType:
        """The type that ``expression`` is computed in: one of the compute types.

        Raises:
            TypeMismatchError: An operation on types that it does not take, or on two different types.
        """
        match expression:
            case Load() | RowLoad():
                return compute_type(self.types[expression.operand])
            case Const() | Cast() | Rounded():
                return compute_type(expression.type)
            case Index():
                return i32
            case Random():
                return u32
            case Apply():
                known = self._known.get(id(expression))
                if known is None:
                    known = self._known[id(expression)] = expression, self._apply(expression)
                return known[1]
        raise TypeMismatchError(f"{expression!r} is no expression")

    def _apply(self, expression: Apply) -> ElementType:
        op, args = TABLE[expression.op], expression.args
        if not op.is_primitive:
            assert op.expansion is not None
            return bool_ if op.gives_bool else self.of(op.expansion(self.types, *args))
        if op.name == "select":
            if (condition := self.of(args[0])) != bool_:
                raise TypeMismatchError(f"select needs a bool condition, got {condition}", at=str(expression))
            args = args[1:]
        common = self.common(args, at=expression)
        if op.kinds is not None and common.kind not in op.kinds:
            raise TypeMismatchError(f"{op.name} does not take {common}", at=str(expression))
        return bool_ if op.gives_bool else common

    def common(self, args: tuple[Expr, ...], *, at: Expr) -> ElementType:
        """The one type of ``args``: that of those which are no constants, or else of the first.

        Raises:
            TypeMismatchError: Two of them differ, or a constant cannot take the type.
        """
        fixed = [self.of(a) for a in args if not isinstance(a, Const)]
        common = fixed[0] if fixed else self.of(args[0])
        if any(t != common for t in fixed):
            found = " and ".join(map(str, fixed))
            raise TypeMismatchError(f"{found} meet in one operation", at=str(at), remedy="Cast one of them")
        for constant in (a for a in args if isinstance(a, Const)):
            if common != f32 and not float(constant.value).is_integer():
                raise TypeMismatchError(f"constant {constant.value} cannot be {common}", at=str(at))
        return common


def result_type(expression: Expr, types: tuple[ElementType, ...]) -> ElementType:
    """The type that ``expression`` over operands of ``types`` is computed in; see :meth:`Typing.of`."""
    return Typing(types).of(expression)


def common_type(args: tuple[Expr, ...], types: tuple[ElementType, ...], *, at: Expr) -> ElementType:
    """The one type of ``args``; see :meth:`Typing.common`."""
    return Typing(types).common(args, at=at)


def element_type(expression: Expr, types: tuple[ElementType, ...]) -> ElementType | None:
    """The element type that the result of ``expression`` has by itself: that of its operands, the wider of two float
    types, or bool; None for a constant, which adapts to its neighbours.

    Args:
        expression: Over primitive and composite operations.
        types: Element type of each operand.
    """
    return _element_type(expression, types, {})


_Known = dict[int, tuple[Expr, ElementType | None]]


def _element_type(expression: Expr, types: tuple[ElementType, ...], known: _Known) -> ElementType | None:
    match expression:
        case Load() | RowLoad():
            return types[expression.operand]
        case Const():
            return None
        case Cast():
            return expression.type
        case Apply():
            if id(expression) not in known:
                known[id(expression)] = expression, _apply_element_type(expression, types, known)
            return known[id(expression)][1]
    return result_type(expression, types)


def _apply_element_type(expression: Apply, types: tuple[ElementType, ...], known: _Known) -> ElementType | None:
    if TABLE[expression.op].gives_bool:
        return bool_
    args: Sequence[Expr] = expression.args[1:] if expression.op == "select" else expression.args
    found = [t for t in (_element_type(a, types, known) for a in args) if t is not None]
    if len(found) > 1 and all(t.is_float for t in found) and any(t != found[0] for t in found):
        return f32
    return found[0] if found else None
