"""Reports of checked code, decoded."""

from __future__ import annotations

from collections.abc import Sequence

from abele.codelet.cpp.checking import WORDS, Site
from abele.codelet.cpp.reflect import Member, VertexClass
from abele.errors import ApplicationRuntimeError, CodeletAccessError


def violation(
    vertex: VertexClass, sites: Sequence[Site], words: Sequence[int]
) -> tuple[int, CodeletAccessError | ApplicationRuntimeError] | None:
    """The vertex that made the first access outside its fields, or ended before its time, and the error; None if there
    was none."""
    first, number, offset, limit, worker, touched = (int(word) for word in words[:WORDS])
    if not first:
        return None
    site = sites[number]
    if site.kind == "end":
        return first - 1, ApplicationRuntimeError(f"vertex {vertex.name} {site.place}", at=site.line)
    text = _text(vertex, site, offset, limit, touched)
    because = f"worker {worker} does so" if vertex.kind == "multi" else None
    return first - 1, CodeletAccessError(text, at=site.line or vertex.location, because=because)


def _text(vertex: VertexClass, site: Site, offset: int, limit: int, touched: int) -> str:
    kind = "read" if site.kind == "row" else site.kind
    if site.place == "local":
        return f"{kind} of byte {offset} of a local array of {vertex.name}, which has {limit} bytes"
    if site.member < 0:
        return f"{kind} at an address that is in no field of {vertex.name} which it may {kind}"
    member = vertex.members[site.member]
    field = f"{vertex.name}.{member.name}"
    if site.place == "field" and member.shape in ("rows", "gather"):
        each = 16 if member.shape == "rows" else 8
        return f"row {offset // each} of {field}, which has {limit // each} rows"
    if site.kind == "write" and member.direction == "in":
        return f"write to {field}{_index(member, site, offset)}, which is an Input"
    size = member.element.bytes
    what = f"{field}{_index(member, site, offset)}"
    if touched != size:
        what = f"{touched} bytes from {what} on"
    return f"{kind} of {what}, which has {limit // size} elements"


def _index(member: Member, site: Site, offset: int) -> str:
    size = member.element.bytes
    index = f"[{offset // size}]" + (f" (and {offset % size} bytes)" if offset % size else "")
    return f"[…]{index}" if site.place == "row" else index
