"""Vertex classes of a compiled file: their fields, where those lie in the object, and their ``compute``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from abele.codelet.cpp.metadata import Metadata, MetadataNode
from abele.codelet.cpp.naming import (
    ELEMENT_TYPES,
    HELD,
    base_name,
    is_const,
    is_local,
    scope_name,
    shorter_names,
    template_arguments,
    type_name,
    unwrapped,
)
from abele.errors import AbeleError, CodeletError, CodeletLinkError, CodeletLoadError, CodeletParseError, SymbolError
from abele.numerics import ElementType, as_element_type, f8_143, u8

# Errors about a class that wait until it is used.
#
# An error refuses its own class, not its file. A function that the compiler does not take becomes a call of a symbol
# that spells the error. A vertex that still reaches that call once everything is in place is refused.

_PREFIX = "abele.refused."
_REFUSALS_KINDS = {
    k.__name__: k for k in (CodeletError, CodeletLinkError, CodeletLoadError, CodeletParseError, SymbolError)
}


def refusal_symbol(error: AbeleError) -> str:
    """A symbol that spells an error."""
    return _PREFIX + refusal_text(error).encode().hex()


def symbol_refusal(symbol: str) -> AbeleError | None:
    """The error that a symbol spells; None where it spells none."""
    return text_refusal(bytes.fromhex(symbol.removeprefix(_PREFIX)).decode()) if symbol.startswith(_PREFIX) else None


def refusal_text(error: AbeleError) -> str:
    """An error as text, to be kept on disk."""
    return json.dumps([type(error).__name__, error.message, error.at, error.because, error.remedy])


def text_refusal(text: str) -> AbeleError:
    """The error of a text that :func:`refusal_text` made."""
    kind, message, at, because, remedy = json.loads(text)
    return _REFUSALS_KINDS.get(kind, CodeletError)(message, at=at, because=because, remedy=remedy)


_KINDS = {
    "poplar::Vertex": "vertex",
    "poplar::MultiVertex": "multi",
    "poplar::SupervisorVertex": "supervisor",
    "poplar::ExternalExchangeVertex": "external",
}
_DIRECTIONS = {"poplar::Input": "in", "poplar::Output": "out", "poplar::InOut": "inout"}
_VECTORS = ("poplar::Vector", "poplar::VectorList")
_COMPOUND = {"structure_type": "struct", "class_type": "class", "union_type": "union"}
_Refused = Callable[..., CodeletError]
METADATA_OFFSET = 12
"""Byte of a vector's object at which the metadata of 8-bit floats lie."""
METADATA_OF = "metadata of "
"""Prefix of the state for them, which the program does not declare."""
_METADATA_ASKED = "11getMetadataEv"
_ALLOWED = "Input, Output, InOut and Vector of half, float, bool and integers up to 64 bits; without them: state"


@dataclass(frozen=True)
class Member:
    """A field of a vertex class.

    Attributes:
        name: Its name.
        offset: First byte in the object.
        direction: ``in``, ``out``, ``inout`` or ``state``.
        type: Name of its element type.
        shape: ``scalar``, ``vector``, ``rows`` (each of its own length) or ``gather`` (elements wired one by one).
        const: True if it is state that compute cannot change.
        layouts: Layouts of its vectors, the outer first; ``VectorList`` layouts are prefixed so.
        alignment: Bytes that its first element is aligned to, where stated.
        interleaved: True if it asks for interleaved memory.
        location: Source line of its declaration.
        held: C++ type of scalar state that the object holds in 64 bits, 32 on the tile; else empty.
    """

    name: str
    offset: int
    direction: str
    type: str
    shape: str
    const: bool = False
    layouts: tuple[str, ...] = ()
    alignment: int = 1
    interleaved: bool = False
    location: str = ""
    held: str = ""

    @property
    def element(self) -> ElementType:
        """Its element type."""
        return as_element_type(self.type)


@dataclass(frozen=True)
class VertexClass:
    """A vertex class, or one instance of a vertex template.

    Attributes:
        name: Its name as Poplar writes it.
        aliases: The same without one, two, … of the last template arguments, for as long as they have default values.
        base: The same without template arguments.
        kind: ``vertex``, ``multi`` or ``supervisor``.
        file: Its source file.
        line: Its line there.
        size: Bytes of its object.
        members: Its fields, those of base classes first.
        compute: Symbol of its ``compute``; empty where the file has no code for it.
        this_offset: Byte of the object at which that of ``compute``'s class begins.
        cpp: Name in C++ code.
        refusal: Reason for which it is refused (:func:`~abele.codelet.cpp.reflect.refusal_text`); empty where it is
            not.
        tables: Bytes of the object that are pointers to tables of virtual functions.
    """

    name: str
    aliases: tuple[str, ...]
    base: str
    kind: str
    file: str
    line: int
    size: int
    members: tuple[Member, ...]
    compute: str
    this_offset: int
    cpp: str
    refusal: str = ""
    tables: tuple[int, ...] = ()

    @property
    def location(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"

    def check(self) -> None:
        """Refuse a class that has a known reason.

        Raises:
            CodeletError: A field is of a kind that a vertex cannot have, or the vertex runs on the hardware only.
            SymbolError: It has no ``compute``.
        """
        if self.refusal:
            raise text_refusal(self.refusal)


def vertex_classes(metadata: Metadata, defined: set[str], instantiated: set[str]) -> list[VertexClass]:
    """Vertex classes of a module, in order of their lines; refused ones with the reason.

    Debug information has every class that a header mentions, and every instance of a template that some code names.
    Poplar's codelets are fewer: classes that are written out, and instances that are asked for. The difference is in
    the code, since the front end emits only what is used: ``compute`` of a class that is written out is marked as used
    before it compiles, and ``compute`` of an instance is there if ``template class X<…>;`` asks for it. A class that
    others derive from is in doubt, as its ``compute`` may have been emitted for them alone. It counts if it has one,
    and an instance only if that is one of the symbols that explicit instantiation makes (linked as ``weak_odr``).

    Args:
        metadata: Its debug information.
        defined: Symbols that it has code for.
        instantiated: Those of templates that the source instantiates explicitly.
    """
    kinds = {node: kind for node in _classes(metadata) for kind in [_kind(node)] if kind}
    inherited = {base for node in kinds for base, _ in _bases(node)}
    found = {}
    for node, kind in kinds.items():
        method = _compute(node, kind, defined)
        if base_name(node) in _KINDS or scope_name(node).startswith("poplar::") or is_local(node):
            continue
        is_instance = "templateParams" in node.entries
        known = instantiated if is_instance and node in inherited else defined
        if (node in inherited or is_instance) and (method is None or method.symbol not in known):
            continue  # a base of others, or named by another class or function without being instantiated
        found[type_name(node)] = _vertex(node, kind, method, defined)
    return sorted(found.values(), key=lambda v: (v.file, v.line, v.name))


def _classes(metadata: Metadata) -> Iterator[MetadataNode]:
    for node in metadata.of_kind("DICompositeType"):
        if node.tag in ("class_type", "structure_type") and "FwdDecl" not in node.flags:
            yield node


def _bases(node: MetadataNode) -> list[tuple[MetadataNode, int]]:
    """Base classes with the bytes at which they begin."""
    found = []
    for element in node.nodes("elements"):
        if element.tag == "inheritance":
            base = unwrapped(element.node("baseType"))
            if base is not None:
                found.append((base, element.number("offset") // 8))
    return found


def _kind(node: MetadataNode) -> str | None:
    for base, _ in _bases(node):
        kind = _KINDS.get(base_name(base)) or _kind(base)
        if kind is not None:
            return kind
    return None


@dataclass(frozen=True)
class _Method:
    symbol: str
    offset: int


def _compute(node: MetadataNode, kind: str, defined: set[str]) -> _Method | None:
    """Method ``compute`` of a class or of one of its bases.

    Of several overloads, one that takes what its kind of vertex gives comes first, then one with code.
    """
    own = [e for e in node.nodes("elements") if e.kind == "DISubprogram" and e.string("name") == "compute"]
    if own:
        taken = 3 if kind == "multi" else 2  # what it returns, the object, and the number of the worker
        order = sorted(own, key=lambda e: (_num_types(e) != taken, e.string("linkageName") not in defined))
        return _Method(order[0].string("linkageName"), 0)
    for base, offset in _bases(node):
        method = _compute(base, kind, defined)
        if method is not None:
            return replace(method, offset=method.offset + offset)
    return None


def _num_types(method: MetadataNode) -> int:
    """Types in the signature of a method: that of its result, of the object, of each parameter."""
    signature = method.node("type")
    return 0 if signature is None else len(signature.operands("types"))


def _vertex(node: MetadataNode, kind: str, method: _Method | None, defined: set[str]) -> VertexClass:
    name = type_name(node)
    symbol = method.symbol if method is not None and method.symbol in defined else ""
    vertex = VertexClass(
        name=name,
        aliases=tuple(scope_name(node) + own for own in shorter_names(node)),
        base=base_name(node),
        kind=kind,
        file=node.file,
        line=node.number("line"),
        size=max(1, node.number("size") // 8),
        members=(),
        compute=symbol,
        this_offset=0 if method is None else method.offset,
        cpp=_cpp_name(node),
    )
    try:
        _check_runs_here(node, kind)
        _check_computes(node, method)
        _check_bases(node, name)
        members, tables = list(_members(node, name, 0)), tuple(sorted(_tables(node, 0)))
        if any(_METADATA_ASKED in symbol for symbol in defined):
            members += [_metadata_of(m) for m in members if m.element.is_quarter and m.shape in ("vector", "rows")]
        return replace(vertex, members=tuple(members), tables=tables)
    except CodeletError as error:
        return replace(vertex, refusal=refusal_text(error))


def _check_computes(node: MetadataNode, method: _Method | None) -> None:
    if method is None:
        raise SymbolError(
            f"vertex {type_name(node)} has no compute()",
            at=node.location,
            remedy="give it bool compute(), or bool compute(unsigned workerId) for a MultiVertex",
        )


def _check_bases(node: MetadataNode, vertex: str) -> None:
    for element in node.nodes("elements"):
        base = unwrapped(element.node("baseType")) if element.tag == "inheritance" else None
        if base is not None and "Virtual" in element.flags:
            raise CodeletError(
                f"vertex {vertex} has the virtual base class {type_name(base)}",
                at=node.location,
                because="where fields of a virtual base lie is looked up in tables, which a vertex has not",
                remedy=f"derive from {type_name(base)} without virtual",
            )
        if base is not None:
            _check_bases(base, vertex)


def _cpp_name(node: MetadataNode) -> str:
    """C++ name of a class: the compiler writes template arguments as C++ has them, Poplar does not."""
    return f"::{scope_name(node)}{node.string('name')}"


def _check_runs_here(node: MetadataNode, kind: str) -> None:
    marks = [e.constant("extraData") for e in node.nodes("elements") if e.string("name") == "isExternalCodelet"]
    external = any(mark is not None and mark.value for mark in marks)
    if kind == "external" or external:
        raise CodeletError(
            f"vertex {type_name(node)} runs on the hardware only",
            at=node.location,
            because="it is an ExternalExchangeVertex" if kind == "external" else "its body is in assembly",
            remedy="give it a body in C++ where __IPU__ is not defined",
        )


def _members(node: MetadataNode, vertex: str, offset: int) -> Iterator[Member]:
    for base, begin in _bases(node):
        yield from _members(base, vertex, offset + begin)
    for element in node.nodes("elements"):
        is_static = "StaticMember" in element.flags or element.tag == "variable"
        if element.tag == "member" and not is_static and not _is_table(element):
            yield _member(element, vertex, offset + element.number("offset") // 8)


def _metadata_of(member: Member) -> Member:
    """State that holds the format and scale of a field of 8-bit floats."""
    offset = member.offset + METADATA_OFFSET
    return Member(METADATA_OF + member.name, offset, "state", u8.name, "scalar", const=True, location=member.location)


def _tables(node: MetadataNode, offset: int) -> set[int]:
    own = {offset + e.number("offset") // 8 for e in node.nodes("elements") if _is_table(e)}
    return own.union(*(_tables(base, offset + begin) for base, begin in _bases(node)))


def _is_table(element: MetadataNode) -> bool:
    return element.tag == "member" and "Artificial" in element.flags


def _member(element: MetadataNode, vertex: str, offset: int) -> Member:
    name, declared = element.string("name"), element.node("baseType")
    type_ = unwrapped(declared)

    def refused(what: str, remedy: str = _ALLOWED) -> CodeletError:
        return CodeletError(f"field {vertex}.{name or '(unnamed)'} is {what}", at=element.location, remedy=remedy)

    base = "" if type_ is None else base_name(type_)
    if type_ is None or "BitField" in element.flags:
        raise refused("a bit field")
    plain = Member(name, offset, "state", "", "scalar", is_const(declared), location=element.location)
    if base in _DIRECTIONS:
        return _edge(type_, replace(plain, direction=_DIRECTIONS[base]), refused)
    if base in _VECTORS:
        inner = _first_argument(type_)
        if inner is not None and base_name(inner) in _DIRECTIONS:
            within = _edge(inner, replace(plain, direction=_DIRECTIONS[base_name(inner)]), refused)
            if within.shape not in ("scalar", "vector"):
                raise refused("of more than two dimensions")
            shape = "gather" if within.shape == "scalar" else "rows"
            outer = _vector(type_)
            return replace(within, shape=shape, layouts=(*outer.layouts, *within.layouts))
        if inner is not None and base_name(inner) in _VECTORS:
            raise refused("a vector of vectors without a direction", "write Vector<Input<Vector<…>>>")
        return _with_vector(plain, type_, refused)
    held = type_.string("name") if type_.kind == "DIBasicType" else ""
    return replace(plain, type=_element(type_, refused), held=held if held in HELD else "")


def _edge(type_: MetadataNode, member: Member, refused: _Refused) -> Member:
    inner = _first_argument(type_)
    if inner is not None and base_name(inner) in _VECTORS:
        return _with_vector(member, inner, refused)
    return replace(member, type=_element(inner, refused))


def _with_vector(member: Member, type_: MetadataNode, refused: _Refused) -> Member:
    inner, vector = _first_argument(type_), _vector(type_)
    if inner is not None and (base_name(inner) in _VECTORS or base_name(inner) in _DIRECTIONS):
        raise refused("of nested vectors", "write Vector<Input<Vector<…>>>")
    shape = "rows" if base_name(type_) == "poplar::VectorList" else "vector"
    if shape == "rows" and member.direction == "state":
        raise refused("a VectorList without a direction", "write Input<VectorList<…>>")
    return replace(
        member,
        type=_element(inner, refused),
        shape=shape,
        layouts=vector.layouts,
        alignment=vector.alignment,
        interleaved=vector.interleaved,
    )


@dataclass(frozen=True)
class _Vector:
    layouts: tuple[str, ...]
    alignment: int
    interleaved: bool


def _vector(type_: MetadataNode) -> _Vector:
    texts = [text for text, _ in template_arguments(type_)]
    prefix = "VectorList " if base_name(type_) == "poplar::VectorList" else ""
    return _Vector((prefix + texts[1].rpartition("::")[2],), int(texts[2]), texts[3] == "true")


def _first_argument(type_: MetadataNode) -> MetadataNode | None:
    arguments = template_arguments(type_)
    return unwrapped(arguments[0][1].node("type")) if arguments else None


def _element(type_: MetadataNode | None, refused: _Refused) -> str:
    if type_ is not None and type_.tag == "enumeration_type":
        type_ = unwrapped(type_.node("baseType"))
    name = "" if type_ is None else type_.string("name")
    if type_ is not None and type_.tag == "structure_type" and base_name(type_) == "quarter":
        return f8_143.name
    if type_ is not None and type_.tag == "structure_type" and base_name(type_) == "poplar::QuarterMetadata":
        return u8.name
    if type_ is not None and type_.kind == "DIBasicType" and name in ELEMENT_TYPES:
        return ELEMENT_TYPES[name].name
    if name == "long double":
        raise refused("long double: the machine has no 64-bit floats", "use float")
    kind = "" if type_ is None else type_.tag
    words = {"pointer_type": "a raw pointer", "array_type": "an array", "reference_type": "a reference"}
    if kind in words:
        raise refused(words[kind], "use a Vector")
    if name or type_ is None or kind not in _COMPOUND:
        raise refused(f"of type {type_name(type_)}")
    raise refused(f"a {_COMPOUND[kind]} without a name", "declare what it holds as fields")
