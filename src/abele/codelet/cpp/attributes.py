"""Constraints of vertex classes, ``[[poplar::constraint("…")]]``, read from their source: the compiler drops them.

Debug information has no attributes of other vendors, and clang takes those that it would keep (``btf_decl_tag``) in C
alone. So heads of classes are read as they are written; constraints inside macros are not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from abele.codelet.cpp.braces import Region, code_alone, regions, strings

_ATTRIBUTE = re.compile(r"\[\[(.*?)\]\]", re.S)
_CONSTRAINT = re.compile(r"\bconstraint\s*\(")
_NAMED = re.compile(r"(?:typedef\s+)?(?:namespace|class|struct|union)\s+(?P<name>[^:{]+(?:::[^:{]+)*)")


def stated_constraints(text: str) -> dict[str, list[str]]:
    """Constraints that a source states, by the name of the class without template arguments: ``ns::Outer::X``.

    Args:
        text: A source, or a header.
    """
    if not _CONSTRAINT.search(text):
        return {}
    code, found = code_alone(text), dict[str, list[str]]()
    scopes = [r for r in regions(text) if r.kind in ("scope", "class")]
    for region in scopes:
        texts = [s for begin, end in _constraints(code, region) for s in strings(text, begin, end)]
        if texts:
            # Rows are meant by two stars, what they hold by one: both lie in the same memory.
            found.setdefault(_name(region, scopes), []).extend(s.replace("**", "*") for s in texts)
    return found


def _constraints(code: str, region: Region) -> Iterator[tuple[int, int]]:
    """Spans of the attributes that state constraints in the head of a class."""
    if region.kind != "class":
        return
    for attribute in _ATTRIBUTE.finditer(code, region.start, region.begin):
        if "poplar" in attribute[1] and _CONSTRAINT.search(attribute[1]):
            yield attribute.span()


def _name(region: Region, scopes: list[Region]) -> str:
    """Name of a class with its scopes; namespaces without a name, and inline ones, are not written."""
    around = sorted((s for s in scopes if s.begin <= region.begin and region.end <= s.end), key=lambda s: s.begin)
    names = [found["name"] for s in around if not s.head.startswith("inline") and (found := _NAMED.match(s.head))]
    return "::".join(re.sub(r"<.*|\bfinal\b", "", name).split()[-1] for name in names)
