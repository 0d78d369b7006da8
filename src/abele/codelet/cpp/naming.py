"""Names of C++ types as Poplar writes them: ``popops::X<popops::Op::ADD,float,true>``."""

from __future__ import annotations

from abele.codelet.cpp.metadata import Node
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
_WRAPPERS = ("typedef", "const_type", "volatile_type", "template_alias")


def unwrapped(type_: Node | None) -> Node | None:
    """A type without aliases, const and volatile."""
    while type_ is not None and type_.kind == "DIDerivedType" and type_.tag in _WRAPPERS:
        type_ = type_.node("baseType")
    return type_


def is_const(type_: Node | None) -> bool:
    """Whether a type is const, aliases looked through."""
    while type_ is not None and type_.kind == "DIDerivedType" and type_.tag in _WRAPPERS:
        if type_.tag == "const_type":
            return True
        type_ = type_.node("baseType")
    return False


def scope_name(node: Node) -> str:
    """Namespaces and classes around a node, each followed by ``::``."""
    scope = node.node("scope")
    if scope is None or scope.kind not in ("DINamespace", "DICompositeType"):
        return ""
    if scope.kind == "DINamespace":
        name = scope.get("name")
        inline = scope.get("exportSymbols") == "true"
        return scope_name(scope) + (f"{name}::" if name and not inline else "")
    return f"{scope_name(scope)}{own_name(scope)}::"


def base_name(node: Node) -> str:
    """Name of a class with its namespaces and without template arguments."""
    return scope_name(node) + node.get("name").partition("<")[0]


def own_name(node: Node, *, defaults: bool = True) -> str:
    """Name of a class with template arguments and without namespaces.

    Args:
        node: The class.
        defaults: Whether to write arguments that have their default value.
    """
    name, arguments = node.get("name").partition("<")[0], template_arguments(node)
    if not defaults:
        while arguments and arguments[-1][1].get("defaulted") == "true":
            arguments.pop()
    return f"{name}<{','.join(text for text, _ in arguments)}>" if arguments else name


def type_name(type_: Node | None) -> str:
    """Name of a type."""
    type_ = unwrapped(type_)
    if type_ is None:
        return "void"
    if type_.kind == "DIBasicType":
        return BASIC.get(type_.get("name"), type_.get("name"))
    if type_.kind == "DIDerivedType" and type_.tag == "pointer_type":
        return f"{type_name(type_.node('baseType'))}*"
    return scope_name(type_) + own_name(type_)


def template_arguments(node: Node) -> list[tuple[str, Node]]:
    """Template arguments as text, each with the node that describes it; packs are opened."""
    found: list[tuple[str, Node]] = []
    for argument in node.list_of("templateParams"):
        if argument.get("tag") == "DW_TAG_GNU_template_parameter_pack":
            found += [(_argument(a), a) for a in argument.list_of("value")]
        else:
            found.append((_argument(argument), argument))
    return found


def _argument(argument: Node) -> str:
    if argument.kind == "DITemplateTypeParameter":
        return type_name(argument.node("type"))
    return value_name(unwrapped(argument.node("type")), argument.get("value"))


def value_name(type_: Node | None, value: str) -> str:
    """A constant such as ``i32 3`` as C++ writes it; an enumerator by its whole name."""
    number = value.partition(" ")[2] or value
    if type_ is not None and type_.tag == "enumeration_type":
        for enumerator in type_.list_of("elements"):
            if enumerator.get("value") == number:
                scoped = "DIFlagEnumClass" in type_.get("flags")
                prefix = f"{type_name(type_)}::" if scoped else scope_name(type_)
                return prefix + enumerator.get("name")
    if type_ is not None and type_.get("name") == "bool":
        return "true" if number in ("true", "1", "-1") else "false"
    return number
