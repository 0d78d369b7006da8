"""Names of C++ types as Poplar writes them: ``popops::X<popops::Op::ADD,float,true>``."""

from __future__ import annotations

from abele.codelet.cpp.metadata import MetadataNode
from abele.codelet.names import normalised
from abele.numerics import ElementType, bool_, f16, f32, i8, i16, i32, i64, u8, u16, u32, u64

BASIC = {
    "_Float16": "half",
    "long long": "longlong",
    "unsigned long long": "unsigned longlong",
}
"""Where Poplar's name of a type differs from C++'s."""
ELEMENT_TYPES: dict[str, ElementType] = {
    "_Float16": f16,
    "float": f32,
    "bool": bool_,
    "char": i8,
    "signed char": i8,
    "unsigned char": u8,
    "short": i16,
    "unsigned short": u16,
    "int": i32,
    "unsigned int": u32,
    "long long": i64,
    "unsigned long long": u64,
    "long": i32,
    "unsigned long": u32,
    "double": f32,
}
"""Element types by their C++ name. ``long``, ``size_t`` and ``double`` have 32 bits on the machine."""
HELD = ("long", "unsigned long", "double")
"""Types whose values have 64 bits in code that runs here."""
_MARKS = {"pointer_type": "*", "reference_type": "&", "rvalue_reference_type": "&&"}
_VECTOR_ELEMENTS = {
    "unsigned char": "uchar",
    "signed char": "schar",
    "unsigned short": "ushort",
    "unsigned int": "uint",
    "unsigned longlong": "ulonglong",
}
"""Elements of vectors whose short name is another: ``uchar4``."""
_ESCAPES = {"'": r"\'", "\\": r"\\", "\n": r"\n", "\t": r"\t", "\r": r"\r", "\0": r"\0"}
_WRAPPERS = ("typedef", "const_type", "volatile_type", "template_alias")


def unwrapped(type_: MetadataNode | None) -> MetadataNode | None:
    """A type without aliases, const and volatile."""
    while type_ is not None and type_.kind == "DIDerivedType" and type_.tag in _WRAPPERS:
        type_ = type_.node("baseType")
    return type_


def is_const(type_: MetadataNode | None) -> bool:
    """Whether a type is const, aliases looked through."""
    while type_ is not None and type_.kind == "DIDerivedType" and type_.tag in _WRAPPERS:
        if type_.tag == "const_type":
            return True
        type_ = type_.node("baseType")
    return False


def scope_name(node: MetadataNode) -> str:
    """Namespaces and classes around a node, each followed by ``::``."""
    scope = node.node("scope")
    if scope is None or scope.kind not in ("DINamespace", "DICompositeType"):
        return ""
    if scope.kind == "DINamespace":
        name = scope.get("name")
        inline = scope.get("exportSymbols") == "true"
        return scope_name(scope) + (f"{name}::" if name and not inline else "")
    return f"{scope_name(scope)}{own_name(scope)}::"


def base_name(node: MetadataNode) -> str:
    """Name of a class with its namespaces and without template arguments."""
    return scope_name(node) + node.get("name").partition("<")[0]


def own_name(node: MetadataNode, *, last: int | None = None) -> str:
    """Name of a class with template arguments and without namespaces.

    Args:
        node: The class.
        last: Template arguments to write; None for all.
    """
    if "templateParams" not in node.entries:  # of a type that is declared only, no more is known than how it is written
        return normalised(node.get("name"))
    name, arguments = node.get("name").partition("<")[0], template_arguments(node)[:last]
    return f"{name}<{','.join(text for text, _ in arguments)}>" if arguments else name


def shorter_names(node: MetadataNode) -> list[str]:
    """The same without the last template arguments, one more each time, for as long as they have default values."""
    arguments = template_arguments(node)
    needed = len(arguments)
    while needed and arguments[needed - 1][1].get("defaulted") == "true":
        needed -= 1
    return [own_name(node, last=number) for number in range(len(arguments) - 1, needed - 1, -1)]


def type_name(type_: MetadataNode | None) -> str:
    """Name of a type, aliases looked through; ``const`` where it is not that of the type as a whole."""
    type_ = unwrapped(type_)
    if type_ is None:
        return "void"
    if type_.kind == "DIBasicType":
        return BASIC.get(type_.get("name"), type_.get("name"))
    mark = _MARKS.get(type_.tag) if type_.kind == "DIDerivedType" else None
    if mark is not None:
        return argument_name(type_.node("baseType")) + mark
    if type_.tag == "array_type":
        return _array_name(type_)
    return scope_name(type_) + own_name(type_)


def argument_name(type_: MetadataNode | None) -> str:
    """Name of a type that is a template argument: ``const float``, ``float2``."""
    return f"{'const ' if is_const(type_) else ''}{type_name(type_)}"


def _array_name(type_: MetadataNode) -> str:
    """``float2`` for a vector, ``float[2]`` for an array."""
    element = type_name(type_.node("baseType"))
    counts = [n.get("count").rpartition(" ")[2] for n in type_.list_of("elements")]
    if "DIFlagVector" in type_.get("flags"):
        return _VECTOR_ELEMENTS.get(element, element.replace(" ", "")) + "".join(counts)
    return element + "".join(f"[{c}]" for c in counts)


def template_arguments(node: MetadataNode) -> list[tuple[str, MetadataNode]]:
    """Template arguments as text, each with the node that describes it; packs are opened."""
    found: list[tuple[str, MetadataNode]] = []
    for argument in node.list_of("templateParams"):
        if argument.get("tag") == "DW_TAG_GNU_template_parameter_pack":
            found += [(_argument(a), a) for a in argument.list_of("value")]
        else:
            found.append((_argument(argument), argument))
    return found


def _argument(argument: MetadataNode) -> str:
    if argument.kind == "DITemplateTypeParameter":
        return argument_name(argument.node("type"))
    return value_name(unwrapped(argument.node("type")), argument.get("value"))


def value_name(type_: MetadataNode | None, value: str) -> str:
    """A constant such as ``i32 3`` as C++ writes it; an enumerator by its whole name."""
    width, _, number = value.rpartition(" ")
    if type_ is None:  # a template
        return value.strip('!"')
    if type_.tag == "enumeration_type":
        return _enumerator(type_, _as_unsigned(type_.node("baseType"), width, number), number)
    name = type_.get("name")
    if name == "bool":
        return "true" if number in ("true", "1", "-1") else "false"
    if name == "char":
        return _character(int(number))
    return _as_unsigned(type_, width, number)


def _as_unsigned(type_: MetadataNode | None, width: str, number: str) -> str:
    """A number as its type means it: LLVM writes all as signed."""
    name = "" if type_ is None else type_.get("name")
    negative = number.startswith("-") and name.startswith(("unsigned", "bool"))
    return str(int(number) + (1 << int(width[1:]))) if negative and width[1:].isdigit() else number


def _enumerator(type_: MetadataNode, number: str, written: str) -> str:
    for enumerator in type_.list_of("elements"):
        if enumerator.get("value") in (number, written):
            scoped = "DIFlagEnumClass" in type_.get("flags")
            prefix = f"{type_name(type_)}::" if scoped else scope_name(type_)
            return prefix + enumerator.get("name")
    return f"({type_name(type_)}){number}"


def _character(code: int) -> str:
    if 32 <= code < 127:
        return f"'{_ESCAPES.get(chr(code), chr(code))}'"
    return f"'{_ESCAPES.get(chr(code & 255)) or f'{chr(92)}x{code & 255:02x}'}'"
