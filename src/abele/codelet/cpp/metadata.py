"""Debug information of an LLVM module, read from its text: types, members and source lines.

LLVM writes one node per line, after all functions, in a form that needs no grammar beyond three facts, which are what
this reader rests on:

- ``!12 = distinct !DIDerivedType(tag: DW_TAG_member, name: "x", baseType: !5)`` is a specialised node, ``!13 = !{!12,
  !14}`` a list;
- the items of either are divided by ``", "``, and an entry's name from its value by ``": "``;
- a string ends at the next ``"``, whatever it holds: a quote within it is written as its code, ``\\22``.

So a line is cut at its quotes first, and only the parts between strings are cut further. Nothing is read before it is
asked for: of the ten thousand nodes that a file with standard headers has, reflection looks at some hundreds.
Object files read by pyelftools, libclang and the JSON of clang were tried in its place and are slower by far: see "C++
classes are reflected from LLVM's metadata" among the decisions.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_PLAIN = str.maketrans("", "", string.ascii_letters + string.digits + "-._")
"""Deletes the characters that a name may have without quotes."""


@dataclass(frozen=True)
class TypedConstant:
    """A constant integer, as ``i8 -56``.

    Attributes:
        bits: Bits of its type.
        value: Its value; LLVM writes all as signed.
    """

    bits: int
    value: int

    @property
    def unsigned(self) -> int:
        """The value with its bits taken as those of an unsigned number."""
        return self.value % (1 << self.bits)


@dataclass(frozen=True, eq=False)
class MetadataNode:
    """One piece of debug information. There is one object per node, so nodes are compared by identity.

    Attributes:
        kind: ``DICompositeType``, ``DIDerivedType``, …; empty for a list.
        text: Its content.
        graph: Graph of all nodes.
    """

    kind: str
    text: str
    graph: Metadata

    @cached_property
    def entries(self) -> dict[str, str]:
        """Entries as written, by name."""
        return dict([item.split(": ", 1) for item in items(self.text) if ": " in item])

    def string(self, name: str) -> str:
        """An entry that is a string; empty where there is none."""
        return string_value(self.entries.get(name, ""))

    def number(self, name: str) -> int:
        """An entry that is a number; 0 where there is none, or none that is known."""
        written = self.entries.get(name, "0")
        return int(written) if written.removeprefix("-").isdigit() else 0

    def constant(self, name: str) -> TypedConstant | None:
        """An entry that is an integer with its type; None where it is something else, or not there."""
        type_, _, value = self.entries.get(name, "").partition(" ")
        value = {"true": "1", "false": "0"}.get(value, value)
        if type_[:1] != "i" or not type_[1:].isdigit() or not value.removeprefix("-").isdigit():
            return None
        return TypedConstant(int(type_[1:]), int(value))

    def is_true(self, name: str) -> bool:
        """True if an entry is ``true``."""
        return self.entries.get(name) == "true"

    def node(self, name: str) -> MetadataNode | None:
        """The node that an entry refers to."""
        return self.graph.node(self.entries.get(name, ""))

    def nodes(self, name: str) -> list[MetadataNode]:
        """Nodes of the list that an entry refers to."""
        listed = self.node(name)
        return [] if listed is None else listed.listed

    def operands(self, name: str) -> list[MetadataNode | None]:
        """The same with None for ``null``, such as the type ``void`` of a function."""
        listed = self.node(name)
        return [] if listed is None else [self.graph.node(item) for item in items(listed.text)]

    @cached_property
    def listed(self) -> list[MetadataNode]:
        """Nodes of a list; other entries are left out."""
        found = map(self.graph.node, items(self.text))
        return [n for n in found if n is not None]

    @cached_property
    def tag(self) -> str:
        """Kind of the type: ``class_type``, ``member``, …; LLVM writes it first, so nothing else is read."""
        head, _, tag = self.text.partition(",")[0].partition("DW_TAG_")
        return tag if head == "tag: " else ""

    @cached_property
    def flags(self) -> frozenset[str]:
        """Its flags: ``Public``, ``StaticMember``, …"""
        return frozenset(word.removeprefix("DIFlag") for word in self.entries.get("flags", "").split(" | "))

    @cached_property
    def file(self) -> str:
        """Source file of the node, or of its scope."""
        own = self if self.kind == "DIFile" else self.node("file")
        if own is not None:
            name, folder = own.string("filename"), own.string("directory")
            return name if name.startswith("/") or folder in ("", ".") else f"{folder}/{name}"
        scope = self.node("scope")
        return "" if scope is None else scope.file

    @property
    def location(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.number('line')}"


class Metadata:
    """All debug information of a module.

    Args:
        text: Text of the module.
    """

    def __init__(self, text: str) -> None:
        start = text.find("\n!")  # functions and what they refer to come first
        lines = text[start + 1 :].splitlines() if start >= 0 else []
        self._lines = dict(line.split(" = ", 1) for line in lines if line[:1] == "!" and " = " in line)
        self._nodes: dict[str, MetadataNode | None] = {}

    def node(self, reference: str) -> MetadataNode | None:
        """The node behind ``!123``; None where the reference is none, or leads nowhere."""
        known = self._nodes.get(reference)
        if known is None and reference in self._lines:
            known = self._nodes[reference] = self._read(self._lines[reference])
        return known

    def of_kind(self, kind: str) -> Iterator[MetadataNode]:
        """All nodes of a kind."""
        heads = (f"!{kind}(", f"distinct !{kind}(")
        for reference, line in self._lines.items():
            if line.startswith(heads):
                node = self.node(reference)
                assert node is not None
                yield node

    def defined(self, symbol: str) -> MetadataNode | None:
        """The function or variable that has a symbol."""
        return self._by_symbol.get(symbol)

    @cached_property
    def _by_symbol(self) -> dict[str, MetadataNode]:
        found = {}
        for kind in ("DIGlobalVariable", "DISubprogram"):
            for node in self.of_kind(kind):
                found[node.string("linkageName") or node.string("name")] = node
        return found

    def source_line(self, reference: str, skip: str) -> str | None:
        """``file:line`` of an instruction's ``!dbg`` reference; of what was inlined from files under ``skip`` and from
        the compiler's own headers, the line in the user's code that it was inlined to."""
        place, last = self.node(reference), None
        while place is not None:
            last = place
            if skip not in place.file and "/ziglang/" not in place.file and not place.file.startswith("/usr/"):
                break
            place = place.node("inlinedAt")
        return None if last is None else last.location

    def _read(self, line: str) -> MetadataNode | None:
        """The node that is written after ``!123 = ``."""
        content = line.removeprefix("distinct ")
        if content.startswith("!{"):
            return MetadataNode("", content[2:-1], self)
        if content.startswith("!") and content.endswith(")"):
            kind, _, text = content[1:-1].partition("(")
            return MetadataNode(kind, text, self)
        return None


def items(text: str) -> list[str]:
    """Entries of a node, which commas divide; strings are left whole.

    Commas within brackets divide too (``!DIExpression(DW_OP_constu, 5)``): no entry that is read here has any, and no
    piece of one looks like an entry, having no ``": "``.
    """
    if '"' not in text:
        return text.split(", ") if text else []
    found: list[str] = []
    pending = ""
    for number, part in enumerate(text.split('"')):
        if number % 2:
            pending += f'"{part}"'
            continue
        first, *rest = part.split(", ")
        pending += first
        for item in rest:
            found.append(pending)
            pending = item
    return [*found, pending] if pending else found


def string_value(written: str) -> str:
    """Content of a string that is written ``"a\\22b"`` or ``!"a\\22b"``; empty for anything else.

    Bytes that are no printable ASCII are written by their codes, and a backslash doubly.
    """
    text = written.removeprefix("!")
    if text[:1] != '"':
        return ""
    text = text[1:-1]
    if "\\" not in text:
        return text
    first, *rest = text.replace("\\\\", "\\5C").split("\\")
    content = first.encode() + b"".join(bytes.fromhex(part[:2]) + part[2:].encode() for part in rest)
    return content.decode("utf-8", "replace")


def global_name(symbol: str) -> str:
    """A symbol as LLVM's text refers to it: ``@main``, ``@"Gr\\C3\\B6\\C3\\9Fe"``."""
    if not symbol.translate(_PLAIN) and not symbol[:1].isdigit():
        return f"@{symbol}"
    coded = "".join(_coded(byte) for byte in symbol.encode())
    return f'@"{coded}"'


def symbol_of(reference: str) -> str:
    """The symbol that a reference in LLVM's text, ``@main`` or ``@"…"``, is to."""
    name = reference.removeprefix("@")
    return string_value(name) or name


def _coded(byte: int) -> str:
    if byte == ord("\\"):
        return "\\\\"
    return chr(byte) if 32 <= byte < 127 and byte != ord('"') else f"\\{byte:02X}"
