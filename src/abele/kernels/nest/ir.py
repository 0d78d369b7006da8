"""Host kernels as data: what a library call computes, as loop nests over its operands' logical indices.

A :class:`HostKernel` has operands (inputs, then outputs, then temporaries) and nests, run in order. A :class:`Nest`
means: for every point of its dims, evaluate the value of each store and combine it into the element that the store
names. Dims that a store's index does not mention are reduced. The whole target of a combining store starts from the
combine's identity, or from what is there (``accumulate``); a ``set`` store leaves elements that it does not name as
they were. Points whose store index lies outside the operand are dropped. Loads of a point come before its stores.

Arithmetic is f32 for floating-point operands of any width (widened on load, rounded once on store) and i32, u32, i64
or u64 for integers. A constant takes the type of the argument beside it.

>>> i, j, k = dims("i j k")
>>> print(nest({"i": 4, "j": 5, "k": 6}, store(2, (i, j), load(0, i, k) * load(1, k, j), "add")))
for i<4, j<5, k<6
  %2[i, j] add= %0[i, k] * %1[k, j]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError, nearest
from abele.kernels.nest.ops import COMBINES, OPS
from abele.numerics import ElementType, bool_, f32, i32, i64, u32, u64
from abele.words import counted

_COMPUTE_TYPES = {"f32": f32, "f16": f32, "bf16": f32, "i8": i32, "i16": i32, "i32": i32, "i64": i64}
_COMPUTE_TYPES |= {"u8": u32, "u16": u32, "u32": u32, "u64": u64, "bool": bool_}


def compute_type(type_: ElementType) -> ElementType:
    """The type in which arithmetic on elements of ``type_`` is done: f32, i32, u32, i64, u64 or bool.

    Raises:
        TypeMismatchError: Libraries do not compute with it: 8-bit floats.
    """
    if type_.name not in _COMPUTE_TYPES:
        raise TypeMismatchError(
            f"libraries do not compute with {type_}", remedy="convert it in a codelet of your own, to f16 or f32"
        )
    return _COMPUTE_TYPES[type_.name]


@dataclass(frozen=True)
class Affine:
    """Σ coefficient · dim + const. Terms are kept merged, without zeros, in order of dim name."""

    terms: tuple[tuple[str, int], ...]
    const: int = 0

    def __post_init__(self) -> None:
        total: dict[str, int] = {}
        for name, coefficient in self.terms:
            total[name] = total.get(name, 0) + int(coefficient)
        object.__setattr__(self, "terms", tuple(sorted((d, c) for d, c in total.items() if c)))

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.const + other)
        return Affine(self.terms + other.terms, self.const + other.const)

    def __mul__(self, factor: int) -> Affine:
        return Affine(tuple((d, c * factor) for d, c in self.terms), self.const * factor)

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Affine | int) -> Affine:
        return self + -other

    def __rsub__(self, other: int) -> Affine:
        return -self + other

    __radd__, __rmul__ = __add__, __mul__

    @property
    def names(self) -> tuple[str, ...]:
        """The dims that it mentions."""
        return tuple(name for name, _ in self.terms)

    def coefficient(self, name: str) -> int:
        """The factor of dim ``name``; 0 where it is not mentioned."""
        return dict(self.terms).get(name, 0)

    def bounds(self, extents: Mapping[str, int]) -> tuple[int, int]:
        """Smallest and largest value over the box of ``extents``."""
        steps = [c * (extents[d] - 1) for d, c in self.terms]
        return self.const + sum(min(s, 0) for s in steps), self.const + sum(max(s, 0) for s in steps)

    def substitute(self, values: Mapping[str, Affine]) -> Affine:
        """Itself with the dims of ``values`` replaced."""
        result = Affine((), self.const)
        for name, coefficient in self.terms:
            result = result + values.get(name, Affine(((name, 1),))) * coefficient
        return result

    def __str__(self) -> str:
        parts = [f"{'-' if c < 0 else '+'} {d if abs(c) == 1 else f'{abs(c)}*{d}'}" for d, c in self.terms]
        if self.const or not parts:
            parts.append(f"{'-' if self.const < 0 else '+'} {abs(self.const)}")
        text = " ".join(parts)
        return text[2:] if text.startswith("+ ") else "-" + text[2:]


AffineLike = Affine | str | int
"""What builders take for an index: an :class:`Affine`, the name of a dim, or a number."""


def affine(*terms: AffineLike | tuple[str, int], const: int = 0) -> Affine:
    """The sum of ``terms``, each a dim's name, a ``(dim, coefficient)`` pair, an Affine or a number, and ``const``."""
    result = Affine((), const)
    for term in terms:
        if isinstance(term, str):
            result = result + Affine(((term, 1),))
        elif isinstance(term, tuple):
            result = result + Affine((term,))
        else:
            result = result + term
    return result


def dims(names: str) -> tuple[Affine, ...]:
    """One Affine for each dim named in ``names``, which are separated by blanks."""
    return tuple(affine(name) for name in names.split())


class Expr:
    """Base of the expressions; Python's operators build :class:`Apply` nodes (``==`` stays structural: use ``eq``)."""

    __slots__ = ()

    def __add__(self, other: ExprLike) -> Apply:
        return apply("add", self, other)

    def __radd__(self, other: ExprLike) -> Apply:
        return apply("add", other, self)

    def __sub__(self, other: ExprLike) -> Apply:
        return apply("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Apply:
        return apply("sub", other, self)

    def __mul__(self, other: ExprLike) -> Apply:
        return apply("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Apply:
        return apply("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Apply:
        return apply("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Apply:
        return apply("div", other, self)

    def __neg__(self) -> Apply:
        return apply("neg", self)

    def __lt__(self, other: ExprLike) -> Apply:
        return apply("lt", self, other)

    def __le__(self, other: ExprLike) -> Apply:
        return apply("le", self, other)

    def __gt__(self, other: ExprLike) -> Apply:
        return apply("gt", self, other)

    def __ge__(self, other: ExprLike) -> Apply:
        return apply("ge", self, other)

    def eq(self, other: ExprLike) -> Apply:
        """Whether both are equal."""
        return apply("eq", self, other)

    def ne(self, other: ExprLike) -> Apply:
        """Whether both differ."""
        return apply("ne", self, other)

    @property
    def args(self) -> tuple[Expr, ...]:
        """The expressions that it is made of."""
        return ()

    def walk(self) -> Iterator[Expr]:
        """Itself and everything below it, arguments first."""
        for arg in self.args:
            yield from arg.walk()
        yield self


ExprLike = Expr | float | int | bool
"""What builders take for an expression: numbers become constants."""


@dataclass(frozen=True)
class Load(Expr):
    """An element of an operand; ``fill`` is its value outside the operand's bounds (None: never outside)."""

    operand: int
    index: tuple[Affine, ...]
    fill: float | None = None

    def __str__(self) -> str:
        fill = "" if self.fill is None else f" else {self.fill:g}"
        return f"%{self.operand}[{', '.join(map(str, self.index))}{fill}]"


@dataclass(frozen=True)
class Const(Expr):
    """A number; next to an argument of another type it takes that type if it can."""

    value: float | int | bool
    type: ElementType = f32

    def __str__(self) -> str:
        return f"{self.value!r}" if self.type in (f32, bool_) else f"{self.value!r}:{self.type}"


@dataclass(frozen=True, init=False)
class Apply(Expr):
    """An operation of :data:`abele.kernels.nest.ops.OPS` on expressions of one type.

    Raises:
        InvalidOptionError: No such operation.
        TensorError: Wrong number of arguments.
    """

    op: str
    operands: tuple[Expr, ...]

    def __init__(self, op: str, args: Iterable[Expr]) -> None:
        args = tuple(args)
        if op not in OPS:
            close = nearest(op, OPS)
            raise InvalidOptionError(f"no kernel operation {op!r}", remedy=f"{close!r}" if close else None)
        if len(args) != OPS[op].arity:
            raise TensorError(f"kernel operation {op!r} takes {counted(OPS[op].arity, 'argument')}, got {len(args)}")
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "operands", args)

    @property
    def args(self) -> tuple[Expr, ...]:
        """The arguments."""
        return self.operands

    def __str__(self) -> str:
        sign = OPS[self.op].symbol
        if sign is None:
            return f"{self.op}({', '.join(map(str, self.args))})"
        return f" {sign} ".join(f"({a})" if _is_infix(a) else str(a) for a in self.args)


def _is_infix(expression: Expr) -> bool:
    return isinstance(expression, Apply) and OPS[expression.op].symbol is not None


@dataclass(frozen=True)
class Cast(Expr):
    """``arg`` converted to ``type`` (floats to integers truncate); f16 and bf16 round and are widened back to f32."""

    type: ElementType
    arg: Expr

    @property
    def args(self) -> tuple[Expr, ...]:
        """The converted expression."""
        return (self.arg,)

    def __str__(self) -> str:
        return f"{self.type}({self.arg})"


@dataclass(frozen=True)
class Index(Expr):
    """A loop index as i32."""

    affine: Affine

    def __str__(self) -> str:
        return f"index({self.affine})"


@dataclass(frozen=True)
class Random(Expr):
    """A uniform u32 from the counter hash of (operand ``seed``, a u32[2]; ``modifier``; linear index)."""

    seed: int
    modifier: int
    index: Affine

    def __str__(self) -> str:
        return f"random(%{self.seed}, {self.modifier}, {self.index})"


@dataclass(frozen=True)
class Store:
    """Combine ``value`` into an element of ``operand``: ``set``, ``add``, ``max``, ``min`` or ``mul``."""

    operand: int
    index: tuple[Affine, ...]
    value: Expr
    combine: str = "set"
    accumulate: bool = False

    def __post_init__(self) -> None:
        if self.combine != "set" and self.combine not in COMBINES:
            close = nearest(self.combine, ("set", *COMBINES))
            raise InvalidOptionError(
                f"no store combine {self.combine!r}", remedy=f"{close!r}" if close else f"set, {', '.join(COMBINES)}"
            )

    def __str__(self) -> str:
        sign = "=" if self.combine == "set" else f"{self.combine}="
        keep = " (onto what is there)" if self.accumulate else ""
        return f"%{self.operand}[{', '.join(map(str, self.index))}] {sign} {self.value}{keep}"


@dataclass(frozen=True)
class Nest:
    """For every point of ``dims``, all stores. Dims are independent: no order is promised."""

    dims: tuple[tuple[str, int], ...]
    stores: tuple[Store, ...]

    @property
    def extents(self) -> dict[str, int]:
        """Extent of each dim."""
        return dict(self.dims)

    def loads(self) -> Iterator[Load]:
        """Every load of every store."""
        return (e for e in self.expressions() if isinstance(e, Load))

    def expressions(self) -> Iterator[Expr]:
        """Every expression of every store."""
        for item in self.stores:
            yield from item.value.walk()

    def __str__(self) -> str:
        head = "for " + ", ".join(f"{d}<{n}" for d, n in self.dims) if self.dims else "once"
        return "\n".join([head, *(f"  {item}" for item in self.stores)])


@dataclass(frozen=True)
class HostKernel:
    """What a library call computes on the host.

    Attributes:
        shapes: Logical shape of every operand: inputs, then outputs, then temporaries.
        types: Element type of every operand.
        num_inputs: How many of the operands are inputs.
        num_outputs: How many are outputs.
        nests: Run in order.

    Raises:
        TensorError: A nest names an operand, dim or element that does not exist, or sets an element more than once.
        TypeMismatchError: An operation on types that it does not take, or a store of another type.
    """

    shapes: tuple[tuple[int, ...], ...]
    types: tuple[ElementType, ...]
    num_inputs: int
    num_outputs: int
    nests: tuple[Nest, ...]

    def __post_init__(self) -> None:
        from abele.kernels.nest.check import check_kernel

        check_kernel(self)

    @property
    def inputs(self) -> range:
        """Operand numbers of the inputs."""
        return range(self.num_inputs)

    @property
    def outputs(self) -> range:
        """Operand numbers of the outputs."""
        return range(self.num_inputs, self.num_inputs + self.num_outputs)

    @property
    def temporaries(self) -> range:
        """Operand numbers of the temporaries."""
        return range(self.num_inputs + self.num_outputs, len(self.shapes))

    def __str__(self) -> str:
        roles = ["in"] * self.num_inputs + ["out"] * self.num_outputs + ["temporary"] * len(self.temporaries)
        head = [
            f"%{n} {role} {t}[{', '.join(map(str, s))}]"
            for n, (role, t, s) in enumerate(zip(roles, self.types, self.shapes, strict=True))
        ]
        return "\n".join(head + [str(n) for n in self.nests])


def as_expr(value: ExprLike) -> Expr:
    """``value`` as an expression: a float becomes an f32 constant, an int an i32 one, a bool a bool one."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool):
        return Const(value, bool_)
    return Const(value, i32) if isinstance(value, int) else Const(float(value), f32)


def apply(op: str, *args: ExprLike) -> Apply:
    """``Apply(op, args)`` with numbers turned into constants."""
    return Apply(op, map(as_expr, args))


def select(condition: Expr, then: ExprLike, otherwise: ExprLike) -> Apply:
    """``then`` where ``condition`` holds, else ``otherwise``."""
    return apply("select", condition, then, otherwise)


def load(operand: int, *index: AffineLike, fill: float | None = None) -> Load:
    """``Load`` with every index given as an Affine, a dim's name or a number."""
    return Load(operand, tuple(map(affine, index)), fill)


def store(
    operand: int, index: Iterable[AffineLike], value: ExprLike, combine: str = "set", *, accumulate: bool = False
) -> Store:
    """``Store`` with every index given as an Affine, a dim's name or a number."""
    return Store(operand, tuple(map(affine, index)), as_expr(value), combine, accumulate)


def nest(extents: Mapping[str, int], *stores: Store) -> Nest:
    """``Nest`` over the dims of ``extents``, in their order."""
    return Nest(tuple(extents.items()), stores)


def result_type(expression: Expr, types: tuple[ElementType, ...]) -> ElementType:
    """The type of ``expression`` over operands of ``types``: one of the compute types.

    Raises:
        TypeMismatchError: An operation on types that it does not take, or on two different types.
    """
    match expression:
        case Load():
            return compute_type(types[expression.operand])
        case Const() | Cast():
            return compute_type(expression.type)
        case Index():
            return i32
        case Random():
            return u32
        case Apply():
            return _apply_type(expression, types)
    raise TypeMismatchError(f"{expression!r} is no kernel expression")


def _apply_type(expression: Apply, types: tuple[ElementType, ...]) -> ElementType:
    op, args = OPS[expression.op], expression.args
    if op.name == "select":
        if (condition := result_type(args[0], types)) != bool_:
            raise TypeMismatchError(f"select needs a bool condition, got {condition}", at=str(expression))
        args = args[1:]
    common = common_type(args, types, at=expression)
    if common.kind not in op.kinds:
        raise TypeMismatchError(f"{op.name} does not take {common}", at=str(expression))
    return bool_ if op.compares else common


def common_type(args: tuple[Expr, ...], types: tuple[ElementType, ...], *, at: Expr) -> ElementType:
    """The one type of ``args``: that of those which are no constants, or else of the first.

    Raises:
        TypeMismatchError: Two of them differ, or a constant cannot take the type.
    """
    fixed = [result_type(a, types) for a in args if not isinstance(a, Const)]
    common = fixed[0] if fixed else result_type(args[0], types)
    if any(t != common for t in fixed):
        found = " and ".join(map(str, fixed))
        raise TypeMismatchError(f"{found} meet in one operation", at=str(at), remedy="Cast one of them")
    for constant in (a for a in args if isinstance(a, Const)):
        if common != f32 and constant.value != int(constant.value):
            raise TypeMismatchError(f"constant {constant.value} cannot be {common}", at=str(at))
    return common
