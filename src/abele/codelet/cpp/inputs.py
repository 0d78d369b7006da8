"""Writes to inputs, which C++ cannot refuse: an element of an ``Input`` is a mutable reference, as codelets expect.

A pointer is one to inputs where every way that it can be made of begins at an input field; a pointer that may be
to an output as well is left alone.
"""

from __future__ import annotations

import re

from abele.codelet.cpp.reflect import Member, VertexClass

_POINTER = re.compile(r"^  %(?P<name>[-\w$.]+) = (?P<op>getelementptr|phi|select|load|freeze)\b(?P<rest>[^\n]*)$", re.M)
_STORE = re.compile(r"^  store (?:volatile )?[^\n]*, ptr %(?P<name>[-\w$.]+), align[^\n]*$", re.M)
_FILL = re.compile(
    r"^  [^\n]*call void @llvm\.mem(?:cpy|move|set)[^(\n]*\(ptr [^%\n]*%(?P<name>[-\w$.]+),[^\n]*$",
    re.M,
)
_BASE = re.compile(r"\bptr %([-\w$.]+)")
_INCOMING = re.compile(r"\[ ([^,]+), %[^\]]+\]")


def written_input(vertex: VertexClass, text: str) -> tuple[Member, str] | None:
    """An input that the code of a vertex writes to.

    Args:
        vertex: The class.
        text: Its function, as :mod:`~abele.codelet.cpp.entry` describes it.

    Returns:
        The field, and the line that writes; None where there is none.
    """
    fields = {f"p{n}": n for n, m in enumerate(vertex.members) if m.direction == "in"}
    writes = [*_STORE.finditer(text), *_FILL.finditer(text)]
    if not fields or not writes:
        return None
    origins = _origins(text, fields, vertex)
    for write in writes:
        if write["name"] in origins:
            return vertex.members[origins[write["name"]]], write[0]
    return None


def _origins(text: str, fields: dict[str, int], vertex: VertexClass) -> dict[str, int]:
    """Input field at which each pointer begins, for pointers of one possible origin."""
    # Fields begin at themselves. A pointer made of others begins where they do, if they agree; a phi does not ask the
    # values that are itself, moved on in its loop. Names are added until none can be: what stays unknown is left alone.
    made = {m["name"]: (m["op"], _sources(m["op"], m["rest"])) for m in _POINTER.finditer(text)}
    known, waiting = dict(fields), True
    while waiting:
        waiting = False
        for name, (op, sources) in made.items():
            if name in known or not sources:
                continue
            # The way round a loop is the pointer itself, moved on: it says nothing about where it begins.
            begins = [known.get(s) for s in sources if not _steps(made, s, name)]
            first = begins[0] if begins else None
            if first is None or None in begins:
                continue
            # A pointer that is loaded from a field points to inputs only where the field is a table of rows.
            if op == "load" and vertex.members[first].shape not in ("rows", "gather"):
                continue
            known[name] = first
            waiting = True
    return known


def _steps(made: dict[str, tuple[str, list[str]]], name: str, phi: str) -> bool:
    """True if a value is that of a phi, moved on in its loop."""
    seen = set()
    while name not in seen:
        if name == phi:
            return True
        seen.add(name)
        op, sources = made.get(name, ("", []))
        if op != "getelementptr" or not sources:
            return False
        name = sources[0]
    return False


def _sources(op: str, rest: str) -> list[str]:
    if op == "phi":
        return [s.lstrip("%") for s in _INCOMING.findall(rest)] if rest.startswith(" ptr") else []
    if op == "load" and not rest.startswith(" ptr,"):
        return []
    found = _BASE.findall(rest)
    return found if op == "select" else found[:1]
