"""Names of C++ types as Poplar writes them: ``popops::X<popops::Op::ADD,float,true>``."""

from __future__ import annotations

from abele.codelet.cpp.metadata import MetadataNode, TypedConstant, symbol_of
from abele.codelet.names import normalised
from abele.numerics import ElementType, bool_, f16, f32, i8, i16, i32, i64, u8, u16, u32, u64

BASIC = {
    "_Float16": "half",
    "long long": "longlong",
    "unsigned long long": "unsigned longlong",
}
"""Types whose Poplar name differs from C++'s."""
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
"""Types whose values have 64 bits in code for this host."""
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
    """True if a type is const, aliases looked through."""
    while type_ is not None and type_.kind == "DIDerivedType" and type_.tag in _WRAPPERS:
        if type_.tag == "const_type":
            return True
        type_ = type_.node("baseType")
    return False


def is_local(node: MetadataNode) -> bool:
    """True if a class is declared in a function, where no name outside leads to it.

    A function that has no code is not described; then the mangled name of the class says so (Z: local).
    """
    scope = node.node("scope")
    if node.string("identifier").startswith(("_ZTSZ", "_ZTSNZ")):
        return True
    return scope is not None and (scope.kind in ("DISubprogram", "DILexicalBlock") or is_local(scope))


def scope_name(node: MetadataNode) -> str:
    """Namespaces and classes around a node, each followed by ``::``."""
    scope = node.node("scope")
    if scope is None or scope.kind not in ("DINamespace", "DICompositeType"):
        return ""
    if scope.kind == "DINamespace":
        name = scope.string("name")
        is_seen = name and not scope.is_true("exportSymbols")  # nobody writes inline namespaces
        return scope_name(scope) + (f"{name}::" if is_seen else "")
    return f"{scope_name(scope)}{own_name(scope)}::"


def base_name(node: MetadataNode) -> str:
    """Name of a class with its namespaces and without template arguments."""
    return scope_name(node) + node.string("name").partition("<")[0]


def own_name(node: MetadataNode, *, last: int | None = None) -> str:
    """Name of a class with template arguments and without namespaces.

    Args:
        node: The class.
        last: Template arguments to write; None for all.
    """
    if "templateParams" not in node.entries:  # of a type that is declared only, no more is known than how it is written
        return normalised(node.string("name"))
    name, arguments = node.string("name").partition("<")[0], template_arguments(node)[:last]
    return f"{name}<{','.join(text for text, _ in arguments)}>" if arguments else name


def shorter_names(node: MetadataNode) -> list[str]:
    """The same without the last template arguments, one more each time, for as long as they have default values."""
    arguments = template_arguments(node)
    needed = len(arguments)
    while needed and arguments[needed - 1][1].is_true("defaulted"):
        needed -= 1
    return [own_name(node, last=number) for number in range(len(arguments) - 1, needed - 1, -1)]


def without_arguments(name: str) -> str:
    """A name without template arguments, those of classes around it included: ``Outer<A<int>>::Inner`` as
    ``Outer::Inner``."""
    kept, depth = "", 0
    for character in name:
        depth += character == "<"
        kept += character if not depth else ""
        depth -= character == ">"
    return kept


def type_name(type_: MetadataNode | None) -> str:
    """Name of a type, aliases looked through; ``const`` where it is not that of the type as a whole."""
    type_ = unwrapped(type_)
    if type_ is None:
        return "void"
    if type_.kind == "DIBasicType":
        name = type_.string("name")
        return BASIC.get(name, name)
    if type_.kind == "DISubroutineType":
        result, *taken = type_.operands("types")
        return f"{argument_name(result)}({','.join(map(argument_name, taken))})"
    if type_.tag == "ptr_to_member_type":
        return f"{argument_name(type_.node('baseType'))} {type_name(type_.node('extraData'))}::*"
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
    counts = [str(n.number("count")) for n in type_.nodes("elements")]
    if "Vector" in type_.flags:
        return _VECTOR_ELEMENTS.get(element, element.replace(" ", "")) + "".join(counts)
    return element + "".join(f"[{c}]" for c in counts)


def template_arguments(node: MetadataNode) -> list[tuple[str, MetadataNode]]:
    """Template arguments as text, each with the node that describes it; packs are opened."""
    found: list[tuple[str, MetadataNode]] = []
    for argument in node.nodes("templateParams"):
        if argument.tag == "GNU_template_parameter_pack":
            found += [(_argument(a), a) for a in argument.nodes("value")]
        else:
            found.append((_argument(argument), argument))
    return found


def _argument(argument: MetadataNode) -> str:
    if argument.kind == "DITemplateTypeParameter":
        return argument_name(argument.node("type"))
    if argument.tag == "GNU_template_template_param":
        return argument.string("value")
    value, type_ = argument.constant("value"), unwrapped(argument.node("type"))
    if value is None:
        return _address(argument)
    return "nullptr" if type_ is not None and type_.tag == "pointer_type" else value_name(type_, value)


def _address(argument: MetadataNode) -> str:
    """An argument that is the address of a function or variable: ``&ns::square``."""
    reference = argument.entries.get("value", "").rpartition(" ")[2]
    named = argument.graph.defined(symbol_of(reference))
    return reference if named is None else f"&{scope_name(named)}{named.string('name')}"


def value_name(type_: MetadataNode | None, value: TypedConstant) -> str:
    """A constant as C++ writes it; an enumerator by its whole name."""
    name = "" if type_ is None else type_.string("name")
    if type_ is not None and type_.tag == "enumeration_type":
        return _enumerator(type_, value)
    if name == "bool":
        return "true" if value.value else "false"
    if name == "char":
        return _character(value.value)
    return str(_meant(type_, value))


def _meant(type_: MetadataNode | None, value: TypedConstant) -> int:
    """A number as its type means it."""
    is_unsigned = type_ is not None and type_.string("name").startswith(("unsigned", "bool"))
    return value.unsigned if is_unsigned else value.value


def _enumerator(type_: MetadataNode, value: TypedConstant) -> str:
    number = _meant(unwrapped(type_.node("baseType")), value)
    for enumerator in type_.nodes("elements"):
        if enumerator.number("value") in (number, value.value):
            prefix = f"{type_name(type_)}::" if "EnumClass" in type_.flags else scope_name(type_)
            return prefix + enumerator.string("name")
    return f"({type_name(type_)}){number}"


def _character(code: int) -> str:
    if 32 <= code < 127:
        return f"'{_ESCAPES.get(chr(code), chr(code))}'"
    return f"'{_ESCAPES.get(chr(code & 255)) or f'{chr(92)}x{code & 255:02x}'}'"
