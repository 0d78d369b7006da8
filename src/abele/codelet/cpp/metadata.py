"""Debug information of an LLVM module, from its text: types, members and source lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_DEFINITION = re.compile(r"^!(\d+) = (?:distinct )?!(?:(DI\w+)\((.*)\)|\{(.*)\})$", re.M)
_ENTRY = re.compile(r'(\w+): (!?"(?:[^"\\]|\\.)*"|!DIExpression\([^)]*\)|[^,"]+)')


@dataclass(frozen=True)
class MetadataNode:
    """One piece of debug information.

    Attributes:
        number: Its number in the text.
        kind: ``DICompositeType``, ``DIDerivedType``, …; empty for a list.
        text: Its content.
        graph: Where the others are.
    """

    number: int
    kind: str
    text: str
    graph: Metadata

    @cached_property
    def entries(self) -> dict[str, str]:
        """Its entries as they are written, by name."""
        return {k: v.strip() for k, v in _ENTRY.findall(self.text)}

    def get(self, name: str) -> str:
        """An entry as text, without quotes; empty where there is none."""
        return self.entries.get(name, "").strip('"')

    def number_of(self, name: str) -> int:
        """An entry that is a number; 0 where there is none."""
        return int(self.entries.get(name, "0"))

    def node(self, name: str) -> MetadataNode | None:
        """The node that an entry refers to."""
        return self.graph.node(self.entries.get(name, ""))

    @cached_property
    def items(self) -> list[MetadataNode]:
        """Nodes of a list."""
        found = (self.graph.node(part.strip()) for part in self.text.split(","))
        return [n for n in found if n is not None]

    def list_of(self, name: str) -> list[MetadataNode]:
        """Nodes of the list that an entry refers to."""
        listed = self.node(name)
        return [] if listed is None else listed.items

    @property
    def tag(self) -> str:
        """What kind of type it is: ``class_type``, ``member``, …"""
        head, _, rest = self.text.partition("DW_TAG_")
        if head == "tag: ":  # where it stands first, as LLVM writes it, nothing else is read
            return rest.partition(",")[0]
        return self.get("tag").removeprefix("DW_TAG_")

    @cached_property
    def file(self) -> str:
        """Its source file, or that of what it is in."""
        own = self if self.kind == "DIFile" else self.node("file")
        if own is not None:
            name, folder = own.get("filename"), own.get("directory")
            return name if name.startswith("/") or folder in ("", ".") else f"{folder}/{name}"
        scope = self.node("scope")
        return "" if scope is None else scope.file

    @property
    def location(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.number_of('line')}"

    def __hash__(self) -> int:
        return self.number


class Metadata:
    """All debug information of a module.

    Args:
        text: Text of the module.
    """

    def __init__(self, text: str) -> None:
        self._nodes = {
            int(n): MetadataNode(int(n), kind or "", body if kind else items, self)
            for n, kind, body, items in _DEFINITION.findall(text)
        }

    def node(self, reference: str) -> MetadataNode | None:
        """The node behind ``!123``."""
        return self._nodes.get(int(reference[1:])) if reference[:1] == "!" and reference[1:].isdigit() else None

    def of_kind(self, kind: str) -> Iterator[MetadataNode]:
        """All nodes of a kind."""
        return (n for n in self._nodes.values() if n.kind == kind)

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
