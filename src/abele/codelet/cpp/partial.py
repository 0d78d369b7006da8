"""Source of a file without the parts that the compiler refuses: the rest is compiled all the same.

A function with an error gets a body that calls a symbol spelling the error (:mod:`~abele.codelet.cpp.refusals`), a
vertex class whose declarations have errors becomes one without fields that does so. Errors outside both are the file's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from abele.codelet.cpp.braces import Region, directives_alone, regions
from abele.codelet.cpp.diagnostics import Message
from abele.codelet.cpp.refusals import refusal_symbol

_VERTEX = re.compile(r":[^{]*\b(\w*Vertex\w*)\b")
_MULTI = re.compile(r"\bMultiVertex\b")
_STUB = "abele_refused_"


def without_errors(text: str, messages: Sequence[Message]) -> str:
    """The source with the code that the messages are about replaced; lines stay where they are.

    Args:
        text: The source.
        messages: Messages of the compiler about it.

    Raises:
        CodeletError: That of a message which is about neither a function nor a vertex class.
    """
    found = list(regions(text))
    lines = [0, *(m.end() for m in re.finditer("\n", text))]
    replaced: dict[Region, Message] = {}
    for message in messages:
        places = [lines[line - 1] + column - 1 for line, column in message.places if 0 < line <= len(lines)]
        region = next((r for at in places if (r := _region(found, at)) is not None), None)
        if region is None:
            raise message.error
        # Of two heads that share an end (both sides of an #if) the latter's, so that both keep their own.
        replaced.setdefault(max((r for r in found if r.end == region.end), key=lambda r: r.begin), message)
    return _replaced(text, replaced)


def _region(found: Sequence[Region], at: int) -> Region | None:
    """The function that a place is in, else the vertex class."""
    around = [r for r in found if r.begin <= at <= r.end]
    outer_first = sorted(around, key=lambda r: r.begin)
    body = next((r for r in outer_first if r.kind not in ("scope", "class")), None)
    if body is not None and body.kind == "function" and _STUB not in body.head:
        return body
    return next((r for r in outer_first if r.kind == "class" and _VERTEX.search(r.head)), None)


def _replaced(text: str, replaced: dict[Region, Message]) -> str:
    outermost = [r for r in replaced if not any(o.begin < r.begin and r.end < o.end for o in replaced)]
    for region in sorted(outermost, key=lambda r: -r.begin):
        # What stands at the end is compiled whichever side of the conditions within is.
        lines = directives_alone(text, region.begin + 1, region.end)
        text = text[: region.begin + 1] + lines + _stub(region, replaced[region]) + text[region.end :]
    return text


def _stub(region: Region, message: Message) -> str:
    name = f"{_STUB}{region.begin}"
    body = f' void {name}() __asm__("{refusal_symbol(message.error)}"); {name}(); __builtin_unreachable(); '
    if region.kind == "function":
        return body
    worker = "unsigned" if _MULTI.search(region.head) else ""
    return f" public: bool compute({worker}) {{{body}}} "
