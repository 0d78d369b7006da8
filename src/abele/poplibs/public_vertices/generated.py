"""Building codelet classes from text, so that one family of vertices covers every type and operation."""

from __future__ import annotations

import hashlib
import linecache
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from abele import codelet as language
from abele.codelet import VertexFunction
from abele.codelet.write import type_name
from abele.expr import FUNCTIONS
from abele.numerics import types

_BUILT: dict[str, type] = {}


def build(
    name: str,
    base: str,
    fields: Sequence[str],
    body: Sequence[str],
    cycles: Callable[..., Any] | None,
    extra: object = None,
) -> type:
    """The codelet class ``name`` with the given fields and ``compute``; one class for one text and cost.

    Args:
        name: Readable part of the class name; a digest of the text is appended.
        base: ``Vertex``, ``MultiVertex`` or ``SupervisorVertex``.
        fields: Declarations, as in ``x: Input[Vector[f32]]``.
        body: Statements of ``compute``.
        cycles: Cost formula; None to count issue slots.
        extra: Key that tells two classes of the same text apart: values that the formula depends on.
    """
    text = _class_text(base, fields, body)
    key = hashlib.sha256(f"{name}\n{text}\n{extra!r}".encode()).hexdigest()[:12]
    if key not in _BUILT:
        _BUILT[key] = _compiled(f"{name}_{key}", text, cycles)
    return _BUILT[key]


def _class_text(base: str, fields: Sequence[str], body: Sequence[str]) -> str:
    arguments = "self, worker_id" if base == "MultiVertex" else "self"
    lines = ["@codelet", f"class CLASS({base}):", *(f"    {f}" for f in fields), ""]
    lines += [f"    def compute({arguments}):", *(f"        {line}" for line in body)]
    return "\n".join(lines) + "\n"


def _compiled(name: str, text: str, cycles: Callable[..., Any] | None) -> type:
    source = text.replace("CLASS", name)
    if cycles is not None:
        source += "\n    cycles = staticmethod(FORMULA)\n"
    file = f"<poplibs {name}>"
    # So that tracebacks, and the reader of codelets, find the lines.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"__name__": __name__, "FORMULA": cycles, "INF": math.inf, "NAN": math.nan} | _names()
    exec(compile(source, file, "exec", dont_inherit=True), scope)
    built: type = scope[name]
    return built


@cache
def _names() -> dict[str, Any]:
    kinds = ("codelet", "Vertex", "MultiVertex", "SupervisorVertex")
    words = ("Input", "Output", "InOut", "Vector", "VectorList", "SPAN", "ONE_PTR", "COMPACT_PTR")
    functions = {name: VertexFunction(name) for name in (*FUNCTIONS, "random_u32")}
    return {w: getattr(language, w) for w in (*kinds, *words)} | functions | {type_name(t): t for t in types.ALL}
