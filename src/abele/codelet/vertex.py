"""Vertices: base classes for users, and the decorator that makes a codelet of a class."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType, FunctionType
from typing import Any, ClassVar, TypeVar, overload

from abele.codelet.fields import FieldDef, field_type
from abele.errors import AbeleError, CodeletError, MemoryElementError, nearest

# Constraints on where the fields of a vertex lie, as Poplar writes them: ``elem(*a) != elem(*b)``.

_FORM = re.compile(r"\s*(elem|region)\s*\(\s*\*\s*(\w+)\s*\)\s*!=\s*(elem|region)\s*\(\s*\*\s*(\w+)\s*\)\s*")


@dataclass(frozen=True, slots=True)
class Constraint:
    """Two fields whose data must not share a memory element (``elem``) or region (``region``).

    Attributes:
        kind: ``elem`` or ``region``.
        one: Name of a field.
        other: Name of the other.
    """

    kind: str
    one: str
    other: str

    def __str__(self) -> str:
        return f"{self.kind}(*{self.one}) != {self.kind}(*{self.other})"


def read_constraints(
    given: str | Sequence[str], codelet: str, fields: Sequence[FieldDef], place: str
) -> tuple[Constraint, ...]:
    """The constraints of a codelet from their texts.

    Raises:
        MemoryElementError: A text that is none, or names something that is no edge of the codelet.
    """
    texts = [given] if isinstance(given, str) else list(given)
    return tuple(_read(text, codelet, fields, place) for text in texts)


def _read(text: str, codelet: str, fields: Sequence[FieldDef], place: str) -> Constraint:
    match = _FORM.fullmatch(text)
    if match is None or match[1] != match[3]:
        raise MemoryElementError(
            f"{text!r} is no constraint of {codelet}",
            at=place,
            remedy='"elem(*a) != elem(*b)" or "region(*a) != region(*b)"',
        )
    edges = [f.name for f in fields if f.is_edge]
    for name in (match[2], match[4]):
        if name not in edges:
            close = nearest(name, edges)
            raise MemoryElementError(
                f"constraint {text!r} of {codelet} names {name!r}, which is no edge of it",
                at=place,
                remedy=f"did you mean {close!r}?" if close else "its edges are " + ", ".join(edges),
            )
    if match[2] == match[4]:
        raise MemoryElementError(f"constraint {text!r} of {codelet} cannot be met by one field", at=place)
    return Constraint(match[1], match[2], match[4])


NUM_WORKERS = 6
"""Workers that run a MultiVertex. Source: machine reference §1.2 (SAG CTXT_WORKERS)."""


class Vertex:
    """A piece of work for one worker: fields, and ``compute(self)``."""

    kind: ClassVar[str] = "vertex"
    codelet: ClassVar[CodeletDef]


class MultiVertex(Vertex):
    """Work that all workers of the tile share: ``compute(self, worker_id)`` with ids 0 to 5."""

    kind: ClassVar[str] = "multi"
    num_workers: ClassVar[int] = NUM_WORKERS


class SupervisorVertex(Vertex):
    """Work of the tile's supervisor: ``compute(self)``."""

    kind: ClassVar[str] = "supervisor"


@dataclass(frozen=True, eq=False)
class CodeletDef:
    """A vertex class as the other rooms see it.

    Attributes:
        name: Name of the class.
        kind: ``vertex``, ``multi`` or ``supervisor``.
        fields: Its fields in order of declaration.
        file: Source file of the class.
        line: Line of the class.
        formula: Its ``cycles`` function, or None.
        record: Its ``state_bytes`` function, or None: bytes of a vertex's record on the machine, where its fields do
            not give them.
        least_code_bytes: Bytes that its hand-written code takes on the machine at least; what its meaning compiles to
            may be shorter.
        compute: Its ``compute`` function; None where ``source`` holds what was read or written of it.
        attributes: Other attributes of the class: constants and helper methods.
        constraints: Pairs of fields that must not share memory, as the class says; see ``constraints``.
        overlays: Pairs of an output and an input that may be one place in memory: the vertex reads element i of the
            input, and no other, before it writes element i of the output.
        language: ``python``, or ``cpp`` for codelets whose ``source`` a C++ compiler has read.
        source: Tree or text that code is made of, where that is no function.
    """

    name: str
    kind: str
    fields: tuple[FieldDef, ...]
    file: str
    line: int
    formula: Callable[..., Any] | None
    compute: FunctionType | None = field(repr=False)
    attributes: Mapping[str, Any] = field(default_factory=dict, repr=False)
    constraints: tuple[Constraint, ...] = ()
    overlays: tuple[tuple[str, str], ...] = ()
    language: str = "python"
    source: Any = field(default=None, repr=False)
    record: Callable[..., Any] | None = None
    least_code_bytes: int = 0

    @property
    def field_by_name(self) -> dict[str, FieldDef]:
        """Fields by name."""
        return {f.name: f for f in self.fields}

    @property
    def location(self) -> str:
        """``file:line`` of the class."""
        return f"{self.file}:{self.line}"


V = TypeVar("V", bound=type)


@overload
def codelet(cls: V) -> V: ...


@overload
def codelet(*, name: str) -> Callable[[V], V]: ...


def codelet(cls: V | None = None, *, name: str = "") -> V | Callable[[V], V]:
    """Make a codelet of a class: its definition becomes ``cls.codelet``.

    Args:
        cls: The class.
        name: Name of the codelet, where it is not the name of the class: ``Saxpy<float>``.

    Raises:
        CodeletError: The class derives from no vertex class, has no ``compute`` of the right arguments, or an
            annotation is no field.
        MemoryElementError: A constraint names a field that the class does not have.
    """
    frame = _caller()
    if cls is None:
        return lambda named: _made(named, name, frame)
    return _made(cls, name, frame)


def _caller() -> FrameType:
    """The frame that decorates: that of the function outside this package that called it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in (__name__, "abele.codelet"):
        frame = frame.f_back
    return frame


def _made(cls: V, name: str, frame: FrameType) -> V:
    place = _place(cls, frame)
    if not issubclass(cls, Vertex):
        raise CodeletError(
            f"codelet {cls.__name__} derives from no vertex class",
            at=place.text,
            remedy=f"class {cls.__name__}(Vertex):, or MultiVertex, or SupervisorVertex",
        )
    compute = _compute(cls, place)
    formula, record = getattr(cls, "cycles", None), getattr(cls, "state_bytes", None)
    fields = _fields(cls, _AnnotationNames(compute, cls, frame), place)
    attributes = {k: v for base in reversed(cls.__mro__[:-1]) for k, v in vars(base).items() if not k.startswith("__")}
    title = name or cls.__name__
    constraints = read_constraints(attributes.pop("constraints", ()), title, fields, place.text)
    cls.codelet = CodeletDef(
        name=title,
        kind=cls.kind,
        fields=fields,
        file=place.file,
        line=place.line,
        formula=formula,
        compute=compute,
        attributes=attributes,
        constraints=constraints,
        record=record,
        least_code_bytes=attributes.pop("least_code_bytes", 0),
    )
    return cls


@dataclass(frozen=True)
class _ClassPlace:
    file: str
    line: int

    @property
    def text(self) -> str:
        return f"{self.file}:{self.line}"


def _place(cls: type, frame: FrameType) -> _ClassPlace:
    compute = vars(cls).get("compute")
    if isinstance(compute, FunctionType) and compute.__code__.co_filename != frame.f_code.co_filename:
        return _ClassPlace(compute.__code__.co_filename, compute.__code__.co_firstlineno)
    return _ClassPlace(frame.f_code.co_filename, frame.f_lineno)


def _compute(cls: type[Vertex], place: _ClassPlace) -> FunctionType:
    compute = getattr(cls, "compute", None)
    arguments = ["self", "worker_id"] if cls.kind == "multi" else ["self"]
    header = f"def compute({', '.join(arguments)}):"
    if not isinstance(compute, FunctionType):
        raise CodeletError(f"codelet {cls.__name__} has no compute", at=place.text, remedy=f"give it {header}")
    code = compute.__code__
    plain = code.co_flags & 0x0C == 0 and not code.co_kwonlyargcount and not compute.__defaults__
    if code.co_argcount != len(arguments) or not plain:
        got = ", ".join(code.co_varnames[: code.co_argcount])
        raise CodeletError(
            f"compute of {cls.kind} codelet {cls.__name__} takes ({got})",
            at=f"{code.co_filename}:{code.co_firstlineno}",
            remedy=header,
        )
    return compute


def _fields(cls: type, names: _AnnotationNames, place: _ClassPlace) -> tuple[FieldDef, ...]:
    found: dict[str, FieldDef] = {}
    for base in reversed(cls.__mro__):
        annotations = {} if issubclass(Vertex, base) or base in (MultiVertex, SupervisorVertex) else _own(base)
        for name, annotation in annotations.items():
            try:
                value = eval(annotation, {}, names) if isinstance(annotation, str) else annotation
                found[name] = field_type(value).field(name)
            except (AbeleError, NameError, TypeError, AttributeError) as error:
                raise CodeletError(
                    f"field {cls.__name__}.{name}: {getattr(error, 'message', error)}",
                    at=place.text,
                    because=f"its annotation is {annotation!r}",
                    remedy=getattr(error, "remedy", None)
                    or "Input[…], Output[…] or InOut[…] of an element type or Vector[type]; without them: state",
                ) from error
    return tuple(found.values())


def _own(base: type) -> dict[str, Any]:
    return {k: v for k, v in vars(base).get("__annotations__", {}).items() if "ClassVar" not in str(v)}


class _AnnotationNames(dict[str, Any]):
    """Names as an annotation of the class would see them: the enclosing functions' locals, then globals, builtins.

    Postponed annotations are text that no closure keeps alive, so the frames of the decorator are asked too.
    """

    def __init__(self, compute: FunctionType, cls: type, frame: FrameType) -> None:
        super().__init__(vars(cls))
        self._frame: FrameType | None = frame
        self._compute = compute

    def __missing__(self, name: str) -> Any:
        free = self._compute.__code__.co_freevars
        if name in free:
            return (self._compute.__closure__ or ())[free.index(name)].cell_contents
        frame = self._frame
        while frame is not None:
            if name in frame.f_locals:
                return frame.f_locals[name]
            frame = frame.f_back if frame.f_globals is self._compute.__globals__ else None
        if name in self._compute.__globals__:
            return self._compute.__globals__[name]
        builtins = self._compute.__globals__.get("__builtins__", {})
        table = builtins if isinstance(builtins, dict) else vars(builtins)
        return table[name] if name in table else self._unknown(name)

    @staticmethod
    def _unknown(name: str) -> Any:
        raise NameError(f"name {name!r} is not defined")
